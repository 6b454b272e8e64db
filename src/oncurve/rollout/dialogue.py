"""What stands around an environment's answer, as token ids: the end of the policy's turn and the start of its next."""

from collections.abc import Sequence
from dataclasses import dataclass

from oncurve.model import Policy
from oncurve.types import DataError, Inserted, ModelError, Task
from oncurve.verify.environments import (
    Answer,
    EnvironmentSpec,
    Stage,
    Syntax,
    environment_of,
    gold_calls,
    write_call,
)

_CALL, _ANSWER = "ASSISTANTCALLS", "TOOLANSWERS"
_TEXT: dict[Syntax, tuple[str, str]] = {
    "hermes": ("<tool_response>\n", "\n</tool_response>"),
    "short": (":", "\n"),
}


@dataclass(frozen=True, slots=True)
class Frame:
    """Encoded once for a policy and a syntax; an answer is encoded once, between them."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    def around(self, policy: Policy, answer: Answer, token_ids: Sequence[int]) -> Inserted:
        """An answer as tokens that follow what was sampled so far.

        Args:
            policy: whose tokenizer is used; special tokens in the answer become plain text.
            answer: of the environment.
            token_ids: sampled so far; they are not encoded again.
        """
        ids = (*self.before, *policy.encode_foreign(answer.text), *self.after)
        (said,) = policy.spell([ids])
        return Inserted(after=len(token_ids), token_ids=ids, text=said, after_chars=len(policy.decode(token_ids)))


def encode_episode(
    policy: Policy, task: Task, stage: Stage, *, end: Sequence[int]
) -> tuple[tuple[int, ...], tuple[Inserted, ...]]:
    """The episode that a tool task's gold describes, as the policy would have to sample it.

    Args:
        policy: whose tokenizer and chat template are used.
        task: its gold lists the calls.
        stage: carries them out, so that the answers are true.
        end: what ends the last turn.

    Returns:
        Token ids of the policy's turns, and the answers between them.

    Raises:
        ValueError: the task names no environment, or its gold is no list of calls.
        DataError: the environment failed.
    """
    spec = environment_of(task)
    if spec is None:
        raise ValueError(f"task {task.id} names no environment, so there is no episode to show")
    calls = gold_calls(task)
    (scene,) = stage.play([(spec, calls)])
    if scene.fault is not None:
        raise DataError(f"task {task.id}: its environment failed ({scene.fault[0]}): {scene.fault[1]}")
    frame, token_ids, inserted = frame_of(policy, spec), list[int](), list[Inserted]()
    for call, answer in zip(calls, scene.answers, strict=True):
        text = write_call(call.name, call.arguments, spec.syntax)
        token_ids += policy.tokenizer.encode(text, add_special_tokens=False)
        inserted.append(frame.around(policy, answer, token_ids))
    return (*token_ids, *end), tuple(inserted)


def frame_of(policy: Policy, spec: EnvironmentSpec) -> Frame:
    """The frame of an environment's answers: a user's turn of the chat template, or plain marks behind a text prompt.

    Raises:
        ModelError: the chat template does not write turns one after the other.
    """
    opening, closing = _TEXT[spec.syntax]
    before, after = ("", "") if spec.syntax == "short" else ("\n", "\n")
    if spec.is_chat:
        before, after = _turns(policy)
    pieces = (before + opening, closing + after)
    left, right = (tuple(policy.tokenizer.encode(piece, add_special_tokens=False)) for piece in pieces)
    return Frame(left, right)


def _turns(policy: Policy) -> tuple[str, str]:
    """What the template writes between an assistant's words and a user's, and from there to the assistant's next."""
    said = [("user", "QUESTION"), ("assistant", _CALL), ("user", _ANSWER)]
    messages = [{"role": role, "content": content} for role, content in said]
    text = str(policy.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    before, found, after = text.rpartition(_CALL)[2].partition(_ANSWER)
    if _CALL not in text or not found:
        raise ModelError(
            "The model's chat template does not keep what the assistant and the user said in their order, so an "
            "environment's answer has no place in it. Use another model for tool tasks."
        )
    return before, after
