"""From a problem to a task: its prompt, and where its verifier will look for the answer."""

from oncurve.tasks.problem import Problem, Source
from oncurve.tasks.settings import AnswerFormat, PromptStyle, TaskSettings
from oncurve.tasks.taskset import task_id
from oncurve.types import Message, Prompt, Task

_INSTRUCTIONS: dict[AnswerFormat, str] = {
    "tag": "Write the final answer inside <answer></answer>.",
    "box": r"Write the final answer inside \boxed{}.",
    "hash": "Write the final answer on a last line that begins with ####.",
    "last_line": "Write the final answer alone on the last line.",
}


def pose(problem: Problem, source: Source, settings: TaskSettings, *, split: str) -> Task:
    """Make a task of a problem of a source.

    A program is asked for in a chat, and found in its last block of code (``meta["carrier"]`` is ``fence``); or the
    prompt is the beginning of the program itself, and the completion goes on with it (``continuation``).
    """
    is_compact = settings.style == "compact" and problem.compact is not None
    question = problem.compact if is_compact and problem.compact is not None else problem.question
    if settings.style == "text" and problem.opening is not None:
        question = problem.opening
    answer_format = settings.answer_format or "tag"
    meta = {**problem.meta, "generator": source.name, "answer_format": answer_format}
    if source.has_tools:
        meta["environment"] = {**problem.meta["environment"], "syntax": "short" if is_compact else "hermes"}
    if source.asks_for == "program":
        meta["carrier"] = "continuation" if settings.style == "text" else "fence"
        del meta["answer_format"]
    asks = source.asks_for == "answer" and not is_compact
    return Task(
        id=task_id(problem.kind, problem.canonical),
        prompt=ask(question, settings, answer_format=answer_format if asks else None, style=settings.style),
        gold=problem.gold,
        kind=problem.kind,
        verifier=settings.verifier or source.verifier,
        difficulty=problem.difficulty,
        split=split,
        meta=meta,
    )


def ask(
    question: str, settings: TaskSettings, *, answer_format: AnswerFormat | None, style: PromptStyle | None
) -> Prompt:
    """Phrase a question: add where the answer goes, put it into the template; in a chat, after the examples.

    Args:
        question: the bare question.
        settings: template and system prompt.
        answer_format: what the prompt says about the place of the answer; None says nothing.
        style: ``chat`` gives messages, anything else text.
    """
    if style != "chat":
        return _phrase(question, settings, answer_format)
    messages = [] if settings.system_prompt is None else [Message(role="system", content=settings.system_prompt)]
    for example in settings.examples:
        messages.append(Message(role="user", content=_phrase(example.question, settings, answer_format)))
        messages.append(Message(role="assistant", content=example.answer))
    return (*messages, Message(role="user", content=_phrase(question, settings, answer_format)))


def _phrase(question: str, settings: TaskSettings, answer_format: AnswerFormat | None) -> str:
    text = question if answer_format is None else f"{question}\n{_INSTRUCTIONS[answer_format]}"
    return settings.prompt_template.replace("{prompt}", text)


def state_answer(answer: str, reasoning: str, answer_format: AnswerFormat) -> str:
    """A completion that reasons and then states its answer where ``answer_format`` asks for it."""
    if answer_format == "tag":
        return f"<think>{reasoning}</think><answer>{answer}</answer>"
    if answer_format == "box":
        return f"{reasoning}\n\\boxed{{{answer}}}"
    if answer_format == "hash":
        return f"{reasoning}\n#### {answer}"
    return f"{reasoning}\n{answer}"


def prompt_text(prompt: Prompt) -> str:
    """A prompt for people to read: messages one below the other, each after its role."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"[{message.role}] {message.content}" for message in prompt)
