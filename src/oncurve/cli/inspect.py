"""Commands that look and change nothing: explain, check, eval."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oncurve.cli.explain_offline import explain_offline
from oncurve.config import RunConfig, dump_config, load_config
from oncurve.evaluate import evaluate_policy
from oncurve.learner import latest_checkpoint
from oncurve.model import Policy, load_policy
from oncurve.model.threads import use_threads
from oncurve.rollout import local_engine
from oncurve.rollout.reward_model import NETWORK_VERIFIERS
from oncurve.tasks import load_tasks, preview, prompt_text
from oncurve.train import formula_of
from oncurve.train.cores import plan_cores
from oncurve.train.encode import unknown_characters
from oncurve.train.plan import available_memory, measure_step, plan_memory
from oncurve.train.supervised import EMBEDDED
from oncurve.types import RunError, Task
from oncurve.verify import GoldProblem, Scorer, check_golds
from oncurve.verify.code.references import review_references

_GIB = 1024**3
_TIMED_TASKS = 2
_GOLDS_CHECKED = 10_000
_READ = 1000
"""Tasks whose characters are looked up in the tokenizer: it takes a millisecond for each."""
_SHOWN = 10
_CHARACTERS_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Findings:
    """The same facts for people and for programs."""

    text: str
    data: dict[str, Any]


def explain_config(path: Path | None, overrides: Sequence[str]) -> Findings:
    """Everything a run of this config would do, without training."""
    config = load_config(path, overrides)
    use_threads(config.threads)
    tasks = load_tasks(config.tasks, seed=config.seed)
    policy = load_policy(config.model, seed=config.seed)
    if config.method in ("dpo", "sft"):
        return Findings(*explain_offline(config, policy, tasks))
    prompt_tokens = max(len(policy.encode_prompt(task.prompt)) for task in tasks.held_out)
    row_tokens = min(policy.context_length, prompt_tokens + config.rollout.sampling.max_tokens)
    memory, available = plan_memory(config, row_tokens=row_tokens), available_memory(policy.model.device)
    seconds = measure_step(config, policy, list(tasks.train[:_TIMED_TASKS]))
    completions = config.rollout.num_prompts * config.rollout.group_size
    data = {
        "config": config.model_dump(mode="json", exclude_none=True),
        "formula": formula_of(config),
        "completions_per_step": completions,
        "most_tokens_per_step": completions * config.rollout.sampling.max_tokens,
        "optimiser_steps": config.steps * config.learner.updates_per_rollout,
        "memory_bytes": {**memory.parts(), "peak": memory.peak, "available": available},
        "cores": plan_cores(config).as_dict(),
        "seconds_per_step": {"rollout": seconds.rollout, "update": seconds.update},
        "seconds_total": config.steps * (seconds.rollout + seconds.update),
    }
    return Findings(_explanation(config, data), data)


def check_tasks(path: Path | None, overrides: Sequence[str]) -> Findings:
    """Three rendered prompts, their golds, what loading noticed, and golds that their own verifier rejects."""
    config = load_config(path, overrides)
    policy = load_policy(config.model, seed=config.seed)
    seen = preview(config.tasks, seed=config.seed)
    tasks = load_tasks(config.tasks, seed=config.seed)
    checked = (
        [*tasks.train[: min(len(tasks.train), _GOLDS_CHECKED)], *tasks.held_out] if seen.num_train else tasks.held_out
    )
    with Scorer(config.reward, builders=NETWORK_VERIFIERS) as scorer:
        problems = check_golds(checked, scorer)
        references = review_references(checked, scorer)
    data = {
        "source": seen.source,
        "num_train": seen.num_train,
        "num_held_out": seen.num_held_out,
        "model": config.model.path,
        "samples": [_sample(task, policy) for task in seen.samples],
        "unreadable": _unreadable(checked[:_READ], policy),
        "notes": [{"kind": note.kind, "count": note.count, "text": note.text} for note in seen.notes],
        "golds_checked": len(checked),
        "rejected_golds": [{"task": problem.task_id, "reason": problem.reason} for problem in problems],
        "code": asdict(references) if references.num_code else None,
    }
    return Findings(_task_view(data, problems), data)


def evaluate_target(target: Path | None, overrides: Sequence[str]) -> dict[str, Any]:
    """Examine the last checkpoint of a run, or the model of a config."""
    step = 0
    if target is not None and not target.exists() and target.suffix != ".toml":
        raise RunError(f"there is no run folder {target}. A config file ends in .toml; a model goes to --model.path.")
    if target is not None and target.is_dir():
        checkpoint = latest_checkpoint(target / "checkpoints")
        if checkpoint is None:
            raise RunError(
                f"{target} holds no checkpoint yet. Examine a model directory with: oncurve eval --model.path DIR"
            )
        config = load_config(target / "config.toml", [*overrides, "--model.path", json.dumps(str(checkpoint))])
        config = config.model_copy(update={"model": config.model.model_copy(update={"lora": None})})
        step = int(checkpoint.name.rpartition("_")[2])
    else:
        config = load_config(target, overrides)
    use_threads(config.threads)
    policy = load_policy(config.model, seed=config.seed)
    settings = config.evaluation
    with Scorer(config.reward, builders=NETWORK_VERIFIERS) as scorer, local_engine(policy, config.rollout) as engine:
        evaluation = evaluate_policy(
            engine,
            scorer,
            load_tasks(config.tasks, seed=config.seed).held_out[: settings.num_tasks],
            policy.encode_prompt,
            sampling=config.rollout.sampling,
            num_samples=settings.num_samples,
            k=settings.k,
            seed=config.seed,
            step=step,
            adversarial=settings.adversarial,
        )
    return {"model": config.model.path, **evaluation.figures()}


def _explanation(config: RunConfig, data: dict[str, Any]) -> str:
    memory, seconds = data["memory_bytes"], data["seconds_per_step"]
    parts = ", ".join(f"{name} {size / _GIB:.2f}" for name, size in memory.items() if name not in ("peak", "available"))
    return "\n".join(
        [
            dump_config(config),
            data["formula"],
            "",
            f"a step samples {data['completions_per_step']} completions, at most {data['most_tokens_per_step']} tokens",
            f"{config.steps} steps make {data['optimiser_steps']} optimiser steps",
            f"memory, estimated: {memory['peak'] / _GIB:.2f} GiB at the peak, of {memory['available'] / _GIB:.2f} free",
            f"  {parts} GiB",
            plan_cores(config).sentence(),
            f"time, roughly, scaled from {_TIMED_TASKS} groups sampled now: {seconds['rollout']:.2f} s rollout and "
            f"{seconds['update']:.2f} s update a step, {data['seconds_total'] / 60:.1f} min without evaluation",
        ]
    )


def _sample(task: Task, policy: Policy) -> dict[str, Any]:
    prompt_ids = policy.encode_prompt(task.prompt)
    return {
        "task": task.id,
        "prompt": str(policy.tokenizer.decode(list(prompt_ids))),
        "prompt_tokens": len(prompt_ids),
        "gold": task.gold,
        "verifier": task.verifier,
    }


def _unreadable(tasks: Sequence[Task], policy: Policy) -> dict[str, Any] | None:
    """What the model cannot read of prompts and golds; None where it can read everything."""
    found = [unknown_characters(policy, f"{prompt_text(task.prompt)} {task.gold}") for task in tasks]
    if not any(found):
        return None
    characters = "".join(sorted(set().union(*found)))
    return {"tasks": sum(map(bool, found)), "of": len(tasks), "characters": characters}


def _unreadable_view(found: dict[str, Any], model: str) -> str:
    shown = (
        found["characters"]
        if len(found["characters"]) <= _CHARACTERS_SHOWN
        else found["characters"][:_CHARACTERS_SHOWN] + "…"
    )
    whose = "the embedded model, the default," if model == EMBEDDED else f"the model {model}"
    return (
        f"warning: {found['tasks']} of {found['of']} tasks hold characters for which {whose} has no token: {shown!r}. "
        "It reads <unk> in their place and can never write them. Name the model that you will train: --model.path DIR"
    )


def _task_view(data: dict[str, Any], problems: Sequence[GoldProblem]) -> str:
    train = "endless" if data["num_train"] is None else data["num_train"]
    lines = [f"{data['source']}: {train} training tasks, {data['num_held_out']} held out", ""]
    for sample in data["samples"]:
        lines += [f"--- {sample['task']} ({sample['prompt_tokens']} tokens, judged by {sample['verifier']})"]
        lines += [sample["prompt"], f"gold: {sample['gold']}", ""]
    lines += [f"{note['kind']}: {note['text']}" for note in data["notes"]]
    if data["unreadable"]:
        lines.append(_unreadable_view(data["unreadable"], data["model"]))
    lines.append(f"{data['golds_checked']} golds checked, {len(problems)} rejected by their own verifier")
    lines += [f"  {problem.task_id}: {problem.reason}" for problem in problems]
    if data["code"]:
        lines += _code_view(data["code"])
    return "\n".join(lines)


def _code_view(code: dict[str, Any]) -> list[str]:
    """Missing references are no failure, and mutants that pass may be right: both are shown, neither fails a check."""
    without, weak = code["without"], code["weak"]
    lines = [f"{code['num_code']} code tasks, {code['num_code'] - len(without)} reference solutions run"]
    if without:
        shown = ", ".join(without[:_SHOWN]) + (", ..." if len(without) > _SHOWN else "")
        lines.append(f"{len(without)} have no reference solution, so nobody knows that they can be solved: {shown}")
    passed = sum(one["num_passed"] for one in weak)
    lines.append(f"{passed} of {code['num_mutants']} mutants of reference solutions pass the tests")
    for one in weak[:_SHOWN]:
        changes = "; ".join(one["changes"])
        lines.append(f"  {one['task_id']}: {one['num_passed']} of {one['num_mutants']} ({changes}): weak tests?")
    return lines
