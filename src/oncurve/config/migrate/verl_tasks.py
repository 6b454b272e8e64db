"""verl's data and rewards as tasks and reward components."""

from collections.abc import Sequence
from typing import Any

from oncurve.config.migrate import shared
from oncurve.config.migrate.ledger import Ledger

_BUFFERS = (
    "reward.reward_kwargs.overlong_buffer_cfg.",
    "reward_model.reward_kwargs.overlong_buffer_cfg.",
    "reward_model.overlong_buffer.",
    "custom_reward_function.overlong_buffer.",
)
"""Where verl's versions and recipes keep the punishment of long completions."""


def read_tasks(book: Ledger) -> None:
    """Training and validation files; of several, the first."""
    for key, setting in (("data.train_files", "tasks.path"), ("data.val_files", "tasks.held_out_path")):
        if book.is_given(key):
            _file(book, key, setting)
    if "tasks.path" not in book.settings:
        book.settings.pop("tasks.held_out_path", None)
        book.remarks[""] = (
            "There is no tasks.path yet: until it is set, tasks are those of the embedded default, countdown."
        )
    elif book.is_given("data.prompt_key"):
        book.write("tasks.columns.prompt", str(book.value("data.prompt_key")), "data.prompt_key")
    for key, setting in (("data.train_max_samples", "tasks.num_train"), ("data.val_max_samples", "tasks.num_held_out")):
        if book.whole(key, least=-1) > 1:
            book.write(setting, book.whole(key), key)
        else:
            book.same(key, "All rows are used.")


def _file(book: Ledger, key: str, setting: str) -> None:
    value: Any = book.value(key)
    names: Sequence[Any] = value if isinstance(value, list) else [value]
    if not names or not all(shared.is_task_file(name) for name in names):
        book.absent(key, "It names data that is no .parquet or .jsonl file; here set tasks.path to one.")
        return
    shared.task_file(book, setting, str(names[0]), key)
    if len(names) > 1:
        book.absent(key, f"{len(names)} files are joined there; here the first is written: join them into one.")


def read_rewards(book: Ledger) -> None:
    """verl's own rules are chosen by the data source; here by the task, with the answer in a box."""
    for key in ("reward.custom_reward_function.path", "custom_reward_function.path"):
        if book.value(key) is not None:
            book.absent(
                key,
                "It holds compute_score(data_source, solution_str, ground_truth, extra_info) there; here a component's "
                "verifier is path/to/file.py:function of (prompts, completions, gold, **columns), which can call it.",
            )
    for key in ("reward.custom_reward_function.name", "custom_reward_function.name"):
        if book.is_given(key):
            book.absent(
                key, "It names the function of custom_reward_function.path there; here the verifier names both."
            )
    for key in ("reward.reward_model.enable", "reward_model.enable"):
        if book.value(key) in (None, False):
            book.same(key, "No model gives rewards.")
        else:
            book.absent(key, "A model gives rewards there; here rules do.")
    for key in ("reward.reward_manager.name", "reward_model.reward_manager"):
        if book.is_given(key):
            book.same(key, "It calls one function a completion, as here; the rules below say which.")
    if "tasks.path" in book.settings:
        book.settings["reward.components.correct.verifier"] = "task"
        book.settings["reward.components.correct.options.answer.carrier"] = "box"
        book.remarks["reward.components.correct.options.answer.carrier"] = (
            "verl's rules for math read \\boxed{}; hash reads ####, as its rule for gsm8k does"
        )
    _overlong(book)


def _overlong(book: Ledger) -> None:
    for group in _BUFFERS:
        names = [f"{group}{name}" for name in ("enable", "len", "penalty_factor")]
        if not book.is_given(*names):
            continue
        if not book.flag(names[0]):
            for key in names:
                book.same(key, "Long completions are not punished.")
            continue
        limit = book.settings["rollout.sampling.max_tokens"]
        book.write("reward.length.shape", "overlong", names[0])
        book.write("reward.length.max_tokens", limit, names[0])
        book.write("reward.length.margin", book.whole(names[1]), names[1])
        book.write("reward.length.weight", book.number(names[2]), names[2])
