"""TRL's data and rewards as tasks and reward components."""

from oncurve.config.migrate import shared
from oncurve.config.migrate.ledger import Ledger

_OVERLONG = "get_soft_overlong_punishment"


def read_tasks(book: Ledger) -> None:
    """A local file becomes tasks.path; a data set of the Hub is named and left out."""
    name = book.value("dataset_name")
    if shared.is_task_file(name):
        shared.task_file(book, "tasks.path", str(name), "dataset_name")
    elif name is not None:
        book.absent("dataset_name", f"It loads {name} from the Hub there; here save it as a file and set tasks.path.")
    if book.value("datasets") is not None:
        book.absent("datasets", "It mixes several data sets there; here tasks.path names one file.")
    if "tasks.path" in book.settings:
        _prompts(book)
    else:
        book.remarks[""] = (
            "There is no tasks.path yet: until it is set, tasks are those of the embedded default, countdown."
        )
        for key, what in (("system_prompt", "tasks.system_prompt"), ("dataset_prompt_column", "tasks.columns.prompt")):
            if book.value(key) is not None:
                book.absent(key, f"It belongs to data that is not here yet; set {what} with tasks.path.")
    if book.value("test_split_size") is not None:
        _held_out(book)


def _held_out(book: Ledger) -> None:
    share = book.number("test_split_size")
    if 0.01 <= share <= 0.5:
        note = "The rows are drawn there; here a hash of each prompt chooses them."
        book.write("tasks.held_out_fraction", share, "test_split_size", note=note)
    else:
        book.absent("test_split_size", "It sets that many rows apart there; here tasks.held_out_fraction, 0.01 to 0.5.")


def _prompts(book: Ledger) -> None:
    if book.value("system_prompt") is not None:
        book.write("tasks.system_prompt", str(book.value("system_prompt")), "system_prompt")
    if book.value("dataset_prompt_column") is not None:
        book.write("tasks.columns.prompt", str(book.value("dataset_prompt_column")), "dataset_prompt_column")


def read_rewards(book: Ledger) -> None:
    """Functions become components; those that TRL brings become the verifier that comes nearest."""
    names = book.value("reward_funcs")
    names = [names] if isinstance(names, str) else list(names or ())
    given = book.value("reward_weights")
    weights = [1.0] * len(names) if given is None else list(given)
    if book.value("reward_model_name_or_path") is not None:
        book.absent("reward_model_name_or_path", "A model gives a reward there; here rewards come from rules.")
        weights = weights[1:] if given is not None else weights
    if not names:
        if given is not None:
            book.absent(
                "reward_weights",
                "They belong to functions that the Python script names; here give each component its weight.",
            )
        return
    if len(weights) != len(names):
        raise book.error("reward_weights", f"must be one number for each of the {len(names)} reward_funcs")
    for name, weight in zip(names, weights, strict=True):
        _component(book, str(name), float(weight))
    if not any(setting.startswith("reward.components.") for setting in book.settings):
        book.settings["reward.components.correct.weight"] = 0.0
        book.remarks["reward.components.correct.weight"] = (
            "the task metric, recorded only: theirs is no part of the reward"
        )


def _component(book: Ledger, name: str, weight: float) -> None:
    module, dot, function = name.rpartition(".")
    if name == _OVERLONG:
        _overlong(book, weight)
    elif name == "accuracy_reward":
        _verifier(book, "accuracy", "task", weight)
        book.settings["reward.components.accuracy.options.answer.carrier"] = "box"
        book.absent(
            "reward_funcs",
            "accuracy_reward takes the answer from wherever math-verify finds one there; here from the last \\boxed{}, "
            "unless options.answer.carrier names another place.",
        )
    elif name == "think_format_reward":
        _verifier(book, "think_format", "tags", weight)
        options = {"order": ["think"], "only": False, "text_after": True}
        book.settings |= {f"reward.components.think_format.options.{key}": value for key, value in options.items()}
    elif dot and function.isidentifier():
        _verifier(book, function, f"{module.replace('.', '/')}.py:{function}", weight)
    else:
        book.absent(
            "reward_funcs", f"{name} is a function of a script there; here write its file: path/to/file.py:{name}."
        )


def _verifier(book: Ledger, name: str, verifier: str, weight: float) -> None:
    book.settings.setdefault("reward.primary", name)
    book.remarks["reward.primary"] = "decides right or wrong, for accuracy and filters: the first of reward_funcs"
    book.write(f"reward.components.{name}.verifier", verifier, "reward_funcs")
    book.write(f"reward.components.{name}.weight", weight, "reward_weights", "reward_funcs")


def _overlong(book: Ledger, weight: float) -> None:
    """Its numbers are fixed in the script: it begins at 1024 tokens and is whole at 1280."""
    longest, margin = 1280, 256
    limit = int(book.settings["rollout.sampling.max_tokens"])
    if limit <= longest - margin:
        book.same("reward_funcs", f"{_OVERLONG} begins at {longest - margin} tokens, which no completion passes.")
        return
    if limit < longest:
        longest, margin = limit, limit - (longest - margin)
        book.absent("reward_funcs", f"{_OVERLONG} is not whole where completions end there; here it is: steeper.")
    book.write("reward.length.shape", "overlong", "reward_funcs")
    book.write("reward.length.max_tokens", longest, "reward_funcs")
    book.write("reward.length.margin", margin, "reward_funcs")
    book.write("reward.length.weight", weight, "reward_weights", "reward_funcs")
