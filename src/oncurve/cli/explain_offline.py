"""``oncurve explain`` of a run on given pairs or examples."""

from typing import Any

from oncurve.config import RunConfig, dump_config
from oncurve.model import Policy
from oncurve.tasks import TaskSet
from oncurve.train import formula_of
from oncurve.train.plan import available_memory, plan_memory
from oncurve.train.plan_offline import plan_offline

_GIB = 1024**3


def explain_offline(config: RunConfig, policy: Policy, tasks: TaskSet) -> tuple[str, dict[str, Any]]:
    """What the run would do, for people and for programs."""
    plan = plan_offline(config, policy, tasks)
    config = config.model_copy(update={"steps": plan.steps})
    memory, available = plan_memory(config, row_tokens=plan.row_tokens), available_memory(policy.model.device)
    data = {
        "config": config.model_dump(mode="json", exclude_none=True),
        "formula": formula_of(config),
        plan.given.what: plan.given.count,
        "left_out": {note.kind: note.count for note in plan.given.notes if note.kind != "given"},
        "batch_size": plan.given.batch_size,
        "completion_tokens_first_step": plan.completion_tokens,
        "optimiser_steps": plan.steps,
        "memory_bytes": {**memory.parts(), "peak": memory.peak, "available": available},
        "seconds_per_step": {"update": plan.seconds},
        "seconds_total": plan.steps * plan.seconds,
    }
    parts = ", ".join(f"{name} {size / _GIB:.2f}" for name, size in memory.parts().items())
    lines = [
        dump_config(config),
        data["formula"],
        "",
        *(note.text for note in plan.given.notes),
        _extent(plan.given.count, plan.given.what, plan.given.batch_size, plan.steps),
        f"the first step learns {plan.completion_tokens} tokens of completions",
        f"memory, estimated: {memory.peak / _GIB:.2f} GiB at the peak, of {available / _GIB:.2f} free",
        f"  {parts} GiB",
        f"time, roughly, scaled from a few rows run now: {plan.seconds:.2f} s a step, "
        f"{plan.steps * plan.seconds / 60:.1f} min without evaluation",
    ]
    return "\n".join(map(str, lines)), data


def _extent(count: int | None, what: str, batch_size: int, steps: int) -> str:
    if count is None:
        return f"{steps} optimiser steps of {batch_size} {what}, of as many as there are tasks"
    passes = steps * batch_size / count
    return f"{steps} optimiser steps of {batch_size} {what}, {passes:.1f} passes over {count}"
