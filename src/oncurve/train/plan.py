"""What a run would take, before it starts: completions, tokens, memory, time."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from oncurve.config import RunConfig
from oncurve.model import MemoryEstimate, Policy, Workload, estimate_memory
from oncurve.model.precision import choose_device
from oncurve.rollout import Collector, local_engine
from oncurve.rollout.reward_model import NETWORK_VERIFIERS
from oncurve.types import Group, RunError, Task, weave
from oncurve.verify import Scorer

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_GIB = 1024**3
_FORWARDS_PER_UPDATE = 3.0
"""A backward pass costs about two forward passes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepSeconds:
    """Rough wall seconds of one step, scaled up from a small sample measured now."""

    rollout: float
    update: float


def available_memory(device: torch.device) -> int:
    """Bytes this process may still take: of the GPU, or of the machine and by its control group."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = int(psutil.virtual_memory().available)
    try:
        limit = _CGROUP_LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return free
    used = psutil.Process().memory_info().rss
    return free if limit == "max" else min(free, int(limit) - used)


def plan_memory(config: RunConfig, *, row_tokens: int) -> MemoryEstimate:
    """Estimate the run's memory by part.

    Args:
        row_tokens: longest prompt and completion together.
    """
    rollout, budget = config.rollout, config.learner.micro_batch_tokens
    longest = min(rollout.sampling.max_tokens, row_tokens)
    completions = rollout.num_prompts * rollout.group_size * longest
    copies = 1 if config.learner.share_prompts == "auto" else rollout.group_size
    prompts = rollout.num_prompts * copies * (row_tokens - longest)
    return estimate_memory(
        config.model,
        Workload(
            rows=min(rollout.max_rows, rollout.num_prompts * rollout.group_size),
            row_tokens=row_tokens,
            max_cache_tokens=rollout.max_cache_tokens,
            micro_batch_tokens=min(max(budget, row_tokens), prompts + completions),
            head_tokens=min(budget, completions),
            logits_chunk_bytes=config.learner.logits_chunk_bytes,
            has_reference=True,
            has_critic=config.method == "online" and config.objective.advantage.estimator == "gae",
        ),
    )


def require_memory(config: RunConfig, *, row_tokens: int) -> None:
    """Refuse a run that cannot fit, while nothing is lost.

    Raises:
        RunError: the estimate exceeds what is available; names the largest parts and what lowers them.
    """
    estimate, available = (
        plan_memory(config, row_tokens=row_tokens),
        available_memory(choose_device(config.model.device)),
    )
    if estimate.still_needed <= available:
        return
    parts = sorted(estimate.parts().items(), key=lambda part: -part[1])[:4]
    raise RunError(
        f"the run needs about {estimate.still_needed / _GIB:.1f} GiB of memory beside the libraries, and "
        f"{available / _GIB:.1f} GiB are available. "
        f"Largest parts: {', '.join(f'{name} {size / _GIB:.1f}' for name, size in parts)} GiB. "
        "Lower rollout.max_cache_tokens or rollout.max_rows (kv_cache), learner.micro_batch_tokens (activations) or "
        'learner.logits_chunk_bytes (logits), or train less: model.dtype = "bfloat16", [model.lora]. '
        "`oncurve explain` prints the estimate."
    )


def measure_step(config: RunConfig, policy: Policy, tasks: Sequence[Task]) -> StepSeconds:
    """Sample the groups of a few tasks, run them through the model once, and scale up to a whole step."""
    with Scorer(config.reward, builders=NETWORK_VERIFIERS) as scorer, local_engine(policy, config.rollout) as engine:
        collector = Collector(policy, engine, scorer, config.rollout, seed=config.seed)
        rollout = collector.collect(tasks, policy_version=0)
    scale = config.rollout.num_prompts / len(tasks)
    started = time.perf_counter()
    for group in rollout.groups:
        _forward(policy, group)
    forward = time.perf_counter() - started
    return StepSeconds(rollout=rollout.seconds_rollout * scale, update=forward * scale * _FORWARDS_PER_UPDATE)


def _forward(policy: Policy, group: Group) -> None:
    rows = [
        torch.tensor([*done.prompt_ids, *weave(done.token_ids, done.inserted).token_ids]) for done in group.completions
    ]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    is_token = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    with torch.inference_mode():
        policy.model(input_ids=padded, attention_mask=is_token, logits_to_keep=1)
