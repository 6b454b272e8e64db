"""What both trainers do in the comparison of whole steps."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EVEN_SHARE = f"{Path(__file__).with_name('reward.py')}:even_share"
SAME_WORK = {"watch_kl_completions": 0, "warmup_steps": 0}
"""TRL without a KL term runs no reference model, so neither do we. The two warm-ups differ by a step: there is none."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model and one size of step."""

    name: str
    settings: dict[str, Any]
    """Of our run, over the embedded default where ``is_embedded``."""
    is_embedded: bool = False
    """Starts from the embedded default, whose accuracy both sides are measured by."""
    build: str = ""
    """Name of a model that is made from its config first."""
    trl: dict[str, Any] = field(default_factory=dict)
    """``dtype``, ``attention`` and ``micro_batches`` of the other side: the fastest that was found."""


def _trained_on_even_ids(prompts: int, group: int, max_tokens: int, lr: float) -> dict[str, Any]:
    return {
        "steps": 100_000,
        "rollout": {
            "num_prompts": prompts,
            "group_size": group,
            "sampling": {"temperature": 1.0, "max_tokens": max_tokens},
        },
        "reward": {"components": {"even": {"verifier": EVEN_SHARE}}},
        "objective": {"aggregation": "token-mean", "zero_variance": "keep"},
        "learner": {"lr": lr, **SAME_WORK},
    }


CASES = {
    case.name: case
    for case in (
        Case(
            name="embedded",
            is_embedded=True,
            settings={"steps": 100_000, "learner": SAME_WORK, "model": {"dtype": "bfloat16"}},
            trl={"dtype": "autocast", "attention": "eager"},  # bfloat16 weights round small updates away
        ),
        Case(
            name="qwen3-4m",
            build="qwen3-4m",
            settings={
                **_trained_on_even_ids(16, 16, 32, 3e-4),
                "model": {"dtype": "bfloat16"},  # as the other side; ours keeps the optimiser's copy in float32
                "tasks": {"source": "countdown", "options": {"num_numbers": 4, "max_number": 30}, "num_held_out": 16},
            },
            trl={"dtype": "bfloat16", "attention": "eager"},
        ),
        Case(
            name="smollm2-135m",
            settings={
                **_trained_on_even_ids(8, 8, 64, 1e-5),
                "model": {"path": "smollm2"},
                "tasks": {
                    "source": "largest",
                    "options": {"num_numbers": 20, "min_number": 100_000, "max_number": 999_999},  # 200 tokens
                    "num_held_out": 16,
                },
            },
            trl={"dtype": "bfloat16", "attention": "eager", "micro_batches": 4},  # one takes more than 11 GiB
        ),
    )
}
