"""verl's ppo_trainer configuration, nested or as Hydra overrides, read as our settings."""

from math import ceil
from pathlib import Path
from typing import Any

from oncurve.config.migrate import shared
from oncurve.config.migrate.ledger import Ledger
from oncurve.config.migrate.verl_objective import read_objective
from oncurve.config.migrate.verl_tasks import read_rewards, read_tasks

ACTOR, ROLLOUT, MODEL, TRAINER = (
    "actor_rollout_ref.actor.",
    "actor_rollout_ref.rollout.",
    "actor_rollout_ref.model.",
    "trainer.",
)


def read_verl(book: Ledger) -> None:
    """Fill the ledger.

    Raises:
        ConfigError: a value is none that verl would take.
    """
    updates = _batches(book)
    _sampling(book)
    read_objective(book)
    read_tasks(book)
    read_rewards(book)
    steps = _length(book)
    _optimiser(book, steps * updates)
    _model(book)
    _critic(book)
    _keeping(book)


def _batches(book: Ledger) -> int:
    """A rollout has data.train_batch_size prompts; ppo_mini_batch_size of them make an optimiser step."""
    prompts, mini = book.whole("data.train_batch_size"), book.whole(f"{ACTOR}ppo_mini_batch_size")
    if mini > prompts:
        raise book.error(f"{ACTOR}ppo_mini_batch_size", f"must be at most data.train_batch_size, {prompts}")
    group = book.whole(f"{ROLLOUT}n")
    updates = max(1, prompts // mini)
    if group == 1:
        group, prompts = 2, max(1, prompts // 2)
        updates = min(updates, prompts)
        book.settings["rollout.group_size"] = group
        book.settings["rollout.num_prompts"] = prompts
        book.remarks["rollout.num_prompts"] = "half of data.train_batch_size: as many completions as there"
        book.absent(f"{ROLLOUT}n", "One completion a prompt there; here at least two, of half as many prompts.")
        book.absent("data.train_batch_size", "So many prompts there; here half, with two completions each.")
    else:
        book.write("rollout.group_size", group, f"{ROLLOUT}n")
        book.write("rollout.num_prompts", prompts, "data.train_batch_size")
    note = "" if prompts % mini == 0 or group == 2 else "The last optimiser step of a rollout is smaller there."
    book.write("learner.updates_per_rollout", updates, f"{ACTOR}ppo_mini_batch_size", note=note)
    repeats = book.whole(f"{ACTOR}ppo_epochs")
    if repeats > 1:
        book.absent(f"{ACTOR}ppo_epochs", f"Each completion is trained on {repeats} times there; here once.")
    else:
        book.same(f"{ACTOR}ppo_epochs", "Each completion is trained on once.")
    if book.value("data.gen_batch_size") is not None:
        book.absent(
            "data.gen_batch_size", "So many prompts are generated at once there; here what is missing is resampled."
        )
    return updates


def _sampling(book: Ledger) -> None:
    own = book.value(f"{ROLLOUT}response_length") is not None
    key = f"{ROLLOUT}response_length" if own else "data.max_response_length"
    if own and "${" in str(book.value(key)):
        book.same(key, "It follows data.max_response_length.")
        key = "data.max_response_length"
    book.write("rollout.sampling.max_tokens", book.whole(key), key)
    if key != "data.max_response_length" and book.is_given("data.max_response_length"):
        book.same("data.max_response_length", "rollout.response_length has its value, or wins there, too.")
    book.write("rollout.sampling.temperature", book.number(f"{ROLLOUT}temperature"), f"{ROLLOUT}temperature")
    book.write("rollout.sampling.top_p", book.number(f"{ROLLOUT}top_p"), f"{ROLLOUT}top_p")
    book.write("rollout.sampling.top_k", max(0, book.whole(f"{ROLLOUT}top_k", least=-1)), f"{ROLLOUT}top_k")
    if book.value(f"{ROLLOUT}min_p") not in (None, 0):
        book.absent(f"{ROLLOUT}min_p", "It is not written by itself: rollout.sampling.min_p rules out the same tokens.")
    elif book.is_given(f"{ROLLOUT}min_p"):
        book.same(f"{ROLLOUT}min_p", "It is off.")
    _evaluation_sampling(book)


def _evaluation_sampling(book: Ledger) -> None:
    group = f"{ROLLOUT}val_kwargs."
    samples = book.whole(f"{group}n")
    book.write("evaluation.num_samples", samples, f"{group}n")
    book.write("evaluation.k", samples, f"{group}n")
    for name in ("do_sample", "temperature", "top_p", "top_k"):
        if book.is_given(group + name):
            book.absent(
                group + name,
                "It decides how held-out tasks are answered there; here greedily and as in training.",
            )


def _length(book: Ledger) -> int:
    """Rollouts of the run."""
    limit = book.value(f"{TRAINER}total_training_steps")
    if limit is not None and book.number(f"{TRAINER}total_training_steps") > 0:
        steps = book.whole(f"{TRAINER}total_training_steps")
        book.write("steps", steps, f"{TRAINER}total_training_steps")
        book.same(f"{TRAINER}total_epochs", "total_training_steps wins there, too.")
        return steps
    key, rows = f"{TRAINER}total_epochs", shared.count_rows(book)
    if rows is not None:
        most = book.whole("data.train_max_samples", least=-1)
        rows = rows if most <= 0 else min(rows, most)
        steps = max(1, book.whole(key) * (rows // int(book.settings["rollout.num_prompts"])))
        book.write("steps", steps, key)
        return steps
    steps = shared.default_steps()
    book.settings["steps"] = steps
    book.absent(
        key,
        f"It is {book.value(key)} passes over the data there, and how much that is cannot be told from here; steps "
        f"stays at {steps}: set it to passes * prompts / rollout.num_prompts.",
    )
    return steps


def _optimiser(book: Ledger, total: int) -> None:
    group = f"{ACTOR}optim."
    book.write("learner.lr", book.number(f"{group}lr"), f"{group}lr")
    book.write("learner.weight_decay", book.number(f"{group}weight_decay"), f"{group}weight_decay")
    betas = book.value(f"{group}betas")
    if not isinstance(betas, list) or len(betas) != 2:
        raise book.error(f"{group}betas", "must be two numbers")
    for name, beta in zip(("beta1", "beta2"), betas, strict=True):
        book.write(f"learner.{name}", float(beta), f"{group}betas")
    norm, new = f"{ACTOR}grad_clip", f"{group}clip_grad"
    shared.clip_norm(book, new if book.is_given(new) else norm)
    if book.is_given(new):
        book.same(norm, "optim.clip_grad has taken its place.")
    own_total = book.whole(f"{group}total_training_steps", least=-1)
    total = own_total if own_total > 0 else total
    _warmup(book, group, total)
    _schedule(book, group, total)
    if book.value("data.seed") is not None:
        book.write("seed", book.whole("data.seed", least=0), "data.seed")


def _warmup(book: Ledger, group: str, total: int) -> None:
    steps_key, ratio_key = f"{group}lr_warmup_steps", f"{group}lr_warmup_steps_ratio"
    steps = book.value(steps_key)
    note = "The first step has learning rate 0 there, lr/n here."
    if steps is not None and book.number(steps_key) >= 0:
        book.write("learner.warmup_steps", int(book.number(steps_key)), steps_key, note=note if steps else "")
        book.same(ratio_key, "lr_warmup_steps wins there, too.")
    else:
        warmup = int(book.number(ratio_key) * total)
        book.write("learner.warmup_steps", warmup, ratio_key, note=note if warmup else "")
        book.same(steps_key, "It is off: lr_warmup_steps_ratio decides.")


def _schedule(book: Ledger, group: str, total: int) -> None:
    kind_key, old_key = f"{group}lr_scheduler_type", f"{group}warmup_style"
    key = kind_key if book.value(old_key) is None else old_key
    kind, warmup = book.value(key), int(book.settings["learner.warmup_steps"])
    if key == old_key and book.is_given(kind_key):
        book.same(kind_key, "warmup_style wins there, too.")
    if kind == "constant":
        book.write("learner.decay_steps", 0, key)
        book.same(f"{group}min_lr_ratio", "The learning rate stays.")
    else:
        book.settings["learner.decay_steps"] = max(total, warmup + 1)
        book.absent(key, f"The curve {kind} leads from the peak down there; here a straight line to 0.")
        if book.number(f"{group}min_lr_ratio") > 0:
            book.absent(f"{group}min_lr_ratio", "The learning rate ends above 0 there; here at 0.")
        else:
            book.same(f"{group}min_lr_ratio", "The learning rate ends at 0.")
    if book.is_given(f"{group}total_training_steps"):
        book.same(f"{group}total_training_steps", "It scales warm-up and schedule, and is read for that.")


def _model(book: Ledger) -> None:
    if book.is_given(f"{MODEL}path"):
        shared.model_path(book, f"{MODEL}path")
    dtype_key, mixed_key = f"{ACTOR}fsdp_config.model_dtype", f"{ACTOR}fsdp_config.dtype"
    names = {"fp32": "float32", "float32": "float32", "bf16": "bfloat16", "bfloat16": "bfloat16"}
    dtype, mixed = names.get(str(book.value(dtype_key))), names.get(str(book.value(mixed_key)))
    if dtype is None:
        book.absent(
            dtype_key, f"Weights are {book.value(dtype_key)} there; here float32 or bfloat16, float32 is written."
        )
        book.settings["model.dtype"] = dtype = "float32"
    else:
        book.write("model.dtype", dtype, dtype_key)
    if mixed is None:
        book.absent(mixed_key, f"Matrices are multiplied in {book.value(mixed_key)} there; here as the weights are.")
    else:
        is_mixed = mixed == "bfloat16" and dtype == "float32"
        book.write("learner.compute_dtype", "bfloat16" if is_mixed else "weights", mixed_key)
    key = f"{MODEL}enable_gradient_checkpointing"
    book.write("model.gradient_checkpointing", book.flag(key), key)
    _lora(book)


def _lora(book: Ledger) -> None:
    rank, others = book.whole(f"{MODEL}lora_rank", least=0), ("lora_alpha", "target_modules")
    for name in ("lora_adapter_path", "exclude_modules"):
        if book.value(MODEL + name) is not None:
            book.absent(
                MODEL + name, "It loads an adapter, or leaves layers out, there; here a new adapter on all named."
            )
        elif book.is_given(MODEL + name):
            book.same(MODEL + name, "It is empty.")
    if rank == 0:
        for name in ("lora_rank", *others):
            book.same(MODEL + name, "Every weight is trained.")
        return
    book.write("model.lora.rank", rank, f"{MODEL}lora_rank")
    book.write("model.lora.alpha", book.number(f"{MODEL}lora_alpha"), f"{MODEL}lora_alpha")
    targets = book.value(f"{MODEL}target_modules")
    chosen: Any = targets if targets == "all-linear" else [targets] if isinstance(targets, str) else list(targets)
    book.write("model.lora.target_modules", chosen, f"{MODEL}target_modules")


def _critic(book: Ledger) -> None:
    ours = {
        "lr": "critic.optim.lr",
        "value_clip": "critic.cliprange_value",
        "max_grad_norm": "critic.grad_clip",
        "warmup_rollouts": f"{TRAINER}critic_warmup",
    }
    for name, key in ours.items():
        if book.settings["objective.advantage.estimator"] != "gae":
            book.same(key, "Without GAE there is no critic.")
        elif name == "warmup_rollouts":
            book.write(f"critic.{name}", book.whole(key, least=0), key)
        else:
            book.write(f"critic.{name}", book.number(key), key)


def _keeping(book: Ledger) -> None:
    """Evaluation, checkpoints, names."""
    if book.is_given(f"{TRAINER}experiment_name"):
        shared.run_name(book, f"{TRAINER}experiment_name")
    directory = str(book.value(f"{TRAINER}default_local_dir"))
    if "${" in directory:
        book.same(f"{TRAINER}default_local_dir", "A run folder is named after the run.")
    else:
        book.write("output", str(Path(directory).expanduser()), f"{TRAINER}default_local_dir")
    save, test = book.number(f"{TRAINER}save_freq"), book.number(f"{TRAINER}test_freq")
    note = "One more is written at the end, and on Ctrl-C, here."
    book.write("checkpoint_every", ceil(save) if save > 0 else shared.NEVER, f"{TRAINER}save_freq", note=note)
    book.write("evaluation.every", ceil(test) if test > 0 else 0, f"{TRAINER}test_freq")
    keep = f"{TRAINER}max_actor_ckpt_to_keep"
    book.write("keep_checkpoints", shared.KEEP_ALL if book.value(keep) is None else book.whole(keep), keep)
    if book.flag(f"{TRAINER}val_before_train"):
        book.same(f"{TRAINER}val_before_train", "The policy is examined before the first step.")
    else:
        book.absent(f"{TRAINER}val_before_train", "Nothing is examined before training there; here always.")
