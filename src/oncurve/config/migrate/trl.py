"""TRL's GRPOConfig, and the YAML of its ``trl grpo`` script, read as our settings."""

from fractions import Fraction
from math import ceil

from oncurve.config.migrate import shared
from oncurve.config.migrate.ledger import Ledger
from oncurve.config.migrate.trl_objective import read_objective
from oncurve.config.migrate.trl_tasks import read_rewards, read_tasks

SCHEDULES = ("linear", "constant", "constant_with_warmup")


def read_trl(book: Ledger, processes: int) -> None:
    """Fill the ledger.

    Args:
        book: their keys.
        processes: how many processes their run has; TRL's batch size is that of one of them.

    Raises:
        ConfigError: a value is none that TRL would take.
    """
    updates = _batches(book, processes)
    _sampling(book)
    read_objective(book)
    read_tasks(book)
    read_rewards(book)
    steps = _length(book, updates)
    _optimiser(book, steps * updates)
    _model(book)
    _keeping(book, updates)


def _batches(book: Ledger, processes: int) -> int:
    """Prompts and optimiser steps of a rollout.

    completions of a rollout = processes * per_device_train_batch_size * steps_per_generation
    completions of a step    = processes * per_device_train_batch_size * gradient_accumulation_steps
    """
    group = book.whole("num_generations", least=2)
    micro = book.whole("per_device_train_batch_size") * processes
    accumulated = book.whole("gradient_accumulation_steps")
    generated, keys = _generated(book, micro, accumulated)
    if micro * generated % group:
        raise book.error(
            "num_generations", f"must divide the {micro * generated} completions of a generation ({', '.join(keys)})"
        )
    whole_steps = max(1, generated // accumulated)
    completions = micro * max(generated, accumulated)
    if completions % group:
        raise book.error("num_generations", f"must divide the {completions} completions of an optimiser step")
    prompts = completions // group
    book.write("rollout.group_size", group, "num_generations")
    book.write("rollout.num_prompts", prompts, "per_device_train_batch_size", "num_generations", *keys)
    book.remarks["rollout.num_prompts"] = f"{completions} completions a rollout, {processes} process(es)"
    return _updates(book, whole_steps, prompts, Fraction(generated, accumulated), keys)


def _generated(book: Ledger, micro: int, accumulated: int) -> tuple[int, tuple[str, ...]]:
    """Micro-batches of a generation, and the keys that say so."""
    size, steps = book.value("generation_batch_size"), book.value("steps_per_generation")
    if size is not None and steps is not None:
        raise book.error("generation_batch_size", "and steps_per_generation say the same thing: remove one of them")
    if steps is not None:
        return book.whole("steps_per_generation"), ("steps_per_generation",)
    if size is None:
        return accumulated, ("gradient_accumulation_steps",)
    if book.whole("generation_batch_size") % micro:
        raise book.error("generation_batch_size", f"must be a multiple of the {micro} completions of a micro-batch")
    return book.whole("generation_batch_size") // micro, ("generation_batch_size",)


def _updates(book: Ledger, whole_steps: int, prompts: int, exact: Fraction, keys: tuple[str, ...]) -> int:
    updates = min(whole_steps, prompts)
    book.write("learner.updates_per_rollout", updates, "gradient_accumulation_steps", *keys)
    if whole_steps > prompts:
        book.absent(
            keys[0],
            f"A rollout of {prompts} prompt(s) gives {whole_steps} optimiser steps there, its groups cut apart; here a "
            f"group stays whole, so it gives {updates}.",
        )
    elif exact > 1 and exact.denominator > 1:
        book.absent(
            keys[0], f"An optimiser step reaches into the next generation there ({exact} steps each); here not."
        )
    elif updates > 1:
        book.same(keys[0], "An optimiser step takes completions of all groups at random there; here whole groups.")
    repeats = book.whole("num_iterations")
    if repeats > 1:
        book.absent("num_iterations", f"Each completion is trained on {repeats} times there; here once.")
    else:
        book.same("num_iterations", "Each completion is trained on once.")
    return updates


def _sampling(book: Ledger) -> None:
    if book.value("max_completion_length") is None:
        book.absent("max_completion_length", "No limit of its own there; here one is needed, and 512 is written.")
        book.settings["rollout.sampling.max_tokens"] = 512
    else:
        book.write("rollout.sampling.max_tokens", book.whole("max_completion_length"), "max_completion_length")
    book.write("rollout.sampling.temperature", book.number("temperature"), "temperature")
    book.write("rollout.sampling.top_p", book.number("top_p"), "top_p")
    if book.value("top_k") is None:
        book.same("top_k", "All tokens are kept.")
    else:
        book.write("rollout.sampling.top_k", max(0, book.whole("top_k", least=-1)), "top_k")
    if book.value("min_p") in (None, 0):
        book.same("min_p", "No token is ruled out by its share of the likeliest one.")
    else:
        book.absent("min_p", "It is not written by itself: rollout.sampling.min_p rules out the same tokens.")
    shared.refuse_extra(book, "generation_kwargs", "goes to the sampler and wins over other keys")


def _length(book: Ledger, updates: int) -> int:
    """Rollouts of the run."""
    limit = book.value("max_steps")
    if limit is not None and book.number("max_steps") > 0:
        steps = ceil(book.whole("max_steps") / updates)
        book.write("steps", steps, "max_steps")
        book.same("num_train_epochs", "max_steps wins there, too.")
        return steps
    rows = shared.count_rows(book)
    book.same("max_steps", "It is off: epochs decide.")
    if rows is None:
        steps = shared.default_steps()
        book.absent(
            "num_train_epochs",
            f"It is {book.value('num_train_epochs')} passes over the data there, and how much that is cannot be told "
            f"from here; steps stays at {steps}: set it to passes * prompts / rollout.num_prompts.",
        )
        book.settings["steps"] = steps
        return steps
    steps = max(1, ceil(book.number("num_train_epochs") * (rows // int(book.settings["rollout.num_prompts"]))))
    book.write("steps", steps, "num_train_epochs")
    return steps


def _optimiser(book: Ledger, total: int) -> None:
    book.write("learner.lr", book.number("learning_rate"), "learning_rate")
    warmup = _warmup(book, total)
    kind = book.value("lr_scheduler_type")
    if kind == "constant" and warmup:
        for key in ("warmup_steps", "warmup_ratio"):
            book.same(key, "The schedule constant has no warm-up there.")
        warmup = 0
    elif warmup:
        key = "warmup_steps" if book.value("warmup_steps") else "warmup_ratio"
        book.write("learner.warmup_steps", warmup, key, note="The first step has learning rate 0 there, lr/n here.")
    decays = kind not in ("constant", "constant_with_warmup")
    if kind in SCHEDULES:
        book.write("learner.decay_steps", max(total, warmup + 1) if decays else 0, "lr_scheduler_type")
    else:
        book.settings["learner.decay_steps"] = max(total, warmup + 1)
        book.absent("lr_scheduler_type", f"The curve {kind} leads from the peak down there; here a straight line to 0.")
    shared.refuse_extra(book, "lr_scheduler_kwargs", "bends the schedule")
    book.write("learner.weight_decay", book.number("weight_decay"), "weight_decay")
    book.write("learner.beta1", book.number("adam_beta1"), "adam_beta1")
    book.write("learner.beta2", book.number("adam_beta2"), "adam_beta2")
    book.write("learner.adam_eps", book.number("adam_epsilon"), "adam_epsilon")
    shared.clip_norm(book, "max_grad_norm")
    book.write("seed", book.whole("seed", least=0), "seed")


def _warmup(book: Ledger, total: int) -> int:
    """Warm-up in optimiser steps; below 1, and as warmup_ratio, it is a share of all of them."""
    steps = 0.0 if book.value("warmup_steps") is None else book.number("warmup_steps")
    if steps == 0 and book.value("warmup_ratio") is not None:
        steps = book.number("warmup_ratio")
    elif book.value("warmup_ratio") is not None:
        book.same("warmup_ratio", "warmup_steps wins there, too.")
    if steps == 0:
        book.same("warmup_steps", "There is no warm-up.")
        book.same("warmup_ratio", "There is no warm-up.")
    return ceil(total * steps) if steps < 1 else int(steps)


def _model(book: Ledger) -> None:
    shared.model_path(book, "model_name_or_path")
    dtype_key = "dtype" if book.value("torch_dtype") is None else "torch_dtype"
    dtype = book.value(dtype_key)
    half = not book.flag("fp16") if book.value("bf16") is None else book.flag("bf16")
    if dtype in ("float32", "bfloat16", "auto", None):
        book.write("model.dtype", dtype or "auto", dtype_key)
    else:
        book.settings["model.dtype"] = "float32"
        book.absent(dtype_key, f"Weights are {dtype} there; here float32 is written, bfloat16 is the other choice.")
    if book.flag("fp16"):
        book.absent("fp16", "Matrices are multiplied in float16 there; here in the precision of the weights.")
    else:
        book.same("fp16", "There is no float16 arithmetic.")
    is_mixed = half and dtype != "bfloat16"
    book.write("learner.compute_dtype", "bfloat16" if is_mixed else "weights", "bf16")
    book.write("model.gradient_checkpointing", book.flag("gradient_checkpointing"), "gradient_checkpointing")
    shared.refuse_extra(book, "model_init_kwargs", "goes to from_pretrained")
    _lora(book)


def _lora(book: Ledger) -> None:
    keys = ("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules")
    if not book.flag("use_peft"):
        for key in ("use_peft", *keys):
            book.same(key, "Every weight is trained.")
        return
    book.write("model.lora.rank", book.whole("lora_r"), "lora_r", "use_peft")
    book.write("model.lora.alpha", book.number("lora_alpha"), "lora_alpha")
    book.write("model.lora.dropout", book.number("lora_dropout"), "lora_dropout")
    targets = book.value("lora_target_modules")
    if targets is None:
        book.settings["model.lora.target_modules"] = ["q_proj", "v_proj"]
        book.absent(
            "lora_target_modules",
            "Left open, peft chooses by the kind of model there; here its usual choice is written, q_proj and v_proj.",
        )
        return
    chosen = [targets] if isinstance(targets, str) else list(targets)
    book.write("model.lora.target_modules", "all-linear" if chosen == ["all-linear"] else chosen, "lora_target_modules")


def _keeping(book: Ledger, updates: int) -> None:
    """Evaluation, checkpoints, names."""
    shared.run_name(book, "run_name")
    if book.value("output_dir") is not None:
        book.write("output", str(book.value("output_dir")), "output_dir")
    save = book.choice("save_strategy", ("steps", "epoch", "no", "best"))
    if save == "steps":
        book.write("checkpoint_every", max(1, ceil(book.number("save_steps") / updates)), "save_steps", "save_strategy")
    else:
        book.absent("save_strategy", f"Checkpoints are written by {save} there; here every checkpoint_every steps.")
        book.same("save_steps", f"It does nothing there either with save_strategy {save}.")
    limit = book.value("save_total_limit")
    book.write(
        "keep_checkpoints", shared.KEEP_ALL if limit is None else book.whole("save_total_limit"), "save_total_limit"
    )
    _evaluation(book, updates)


def _evaluation(book: Ledger, updates: int) -> None:
    key = "evaluation.every"
    strategy = book.choice("eval_strategy", ("no", "steps", "epoch"))
    if strategy == "steps":
        every = 10 if book.value("eval_steps") is None else book.number("eval_steps")
        book.write(key, max(1, ceil(every / updates)), "eval_strategy", "eval_steps")
    elif strategy == "no":
        book.write(key, 0, "eval_strategy", note="Before and after the run the policy is examined anyway here.")
        book.same("eval_steps", "Nothing is evaluated during the run.")
    else:
        book.absent("eval_strategy", "It evaluates after each epoch there; here every evaluation.every steps.")
        book.same("eval_steps", "It does nothing there either with eval_strategy epoch.")
    if book.value("num_generations_eval") is not None:
        samples = book.whole("num_generations_eval")
        book.write("evaluation.num_samples", samples, "num_generations_eval")
        book.write("evaluation.k", samples, "num_generations_eval")
