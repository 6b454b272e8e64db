"""What a rollout and an update cost as the work grows, beside plain transformers: group, length, vocabulary, model.

    python benchmarks/growth.py               four axes, two timed pairs a point: about 12 minutes on two quiet cores
    python benchmarks/growth.py --quick       without the largest points, one pair: under 3 minutes
    python benchmarks/growth.py --axis group --json

Every point is a bfloat16 Qwen3-style model with random weights that never ends a completion early, so that the tokens
are exactly those of the point. Plain is ``generate`` with the logits that training needs, and a padded step with logits
at completion positions, eager attention and fused AdamW; it is left out where its logits alone would take 2 GB. The
exponent tells how the seconds follow the axis from one point to the next: 1 is in proportion, 0 is for nothing.
"""

import argparse
import copy
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from measure import ceilings, machine, ratios_of, restart_with_environment, seconds_of
from transformers import Qwen3Config, Qwen3ForCausalLM

from oncurve.algo import ObjectiveSettings
from oncurve.learner import Learner, LearnerSettings
from oncurve.model import Policy, fresh_embedded_policy
from oncurve.rollout import Request, TorchEngine
from oncurve.types import Completion, Group, Sampling, Status, Task, Verdict, derive_seed

LR = 1e-5
MOST_LOGITS_BYTES = 2 * 1024**3
SIZES = {  # width, layers, heads, inner width
    "0.6m": (128, 3, 4, 384),
    "4m": (256, 5, 4, 768),
    "30m": (512, 9, 8, 1536),
    "135m": (768, 19, 12, 2304),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One size of the work."""

    prompts: int = 4
    group: int = 8
    prompt_tokens: int = 64
    new_tokens: int = 32
    vocabulary: int = 1024
    model: str = "4m"

    @property
    def rows(self) -> int:
        return self.prompts * self.group


AXES: dict[str, list[tuple[float, Point]]] = {
    "group": [(size, Point(group=size)) for size in (4, 16, 64)],
    "length": [(size, Point(prompts=2, group=4, new_tokens=size)) for size in (32, 128, 512, 1024)],
    "vocabulary": [(size, Point(prompts=2, vocabulary=size)) for size in (1024, 16_384, 262_144)],
    "model": [(index, Point(model=name)) for index, name in enumerate(SIZES)],  # the place is replaced by the size
}


def policy_of(point: Point) -> Policy:
    width, layers, heads, inner = SIZES[point.model]
    config = Qwen3Config(
        vocab_size=point.vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=width // heads,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    model = Qwen3ForCausalLM(config).train(False)
    torch.set_default_dtype(torch.float32)
    model.set_attn_implementation("eager")
    never = frozenset({point.vocabulary})  # an id that no row of the logits stands for
    return Policy(model=model, tokenizer=fresh_embedded_policy(0).tokenizer, terminators=never, context_length=2048)


class Ours:
    """The engine and the learner on one point."""

    def __init__(self, point: Point, policy: Policy) -> None:
        draw = torch.Generator().manual_seed(0)
        shape = (point.prompts, point.prompt_tokens)
        self.prompts = torch.randint(1, point.vocabulary, shape, generator=draw).tolist()
        self.sampling = Sampling(max_tokens=point.new_tokens)
        self.group = point.group
        self.engine = TorchEngine(policy, max_rows=point.rows)
        settings = LearnerSettings(lr=LR, max_logprob_gap=1e3, watch_kl_completions=0)  # no reference on either side
        self.learner = Learner(policy, settings, ObjectiveSettings(zero_variance="keep"), sampling=self.sampling)
        self.completions: list[Completion] = []

    def rollout(self) -> None:
        requests = [
            Request(task_id=str(place), index=index, prompt_ids=tuple(ids), seed=derive_seed("growth", place, index))
            for place, ids in enumerate(self.prompts)
            for index in range(self.group)
        ]
        self.completions = self.engine.generate(requests, self.sampling, policy_version=0)

    def update(self) -> None:
        groups = []
        for place in range(len(self.prompts)):
            members = tuple(self.completions[place * self.group : (place + 1) * self.group])
            task = Task(id=str(place), prompt="p", gold="", kind="growth", verifier="growth")
            verdicts = [
                Verdict(status=(Status.WRONG, Status.CORRECT)[one.index % 2], reward=float(one.index % 2))
                for one in members
            ]
            groups.append(Group(task=task, completions=members, verdicts=tuple(verdicts)))
        self.learner.update(groups)


class Plain:
    """The same with transformers alone."""

    def __init__(self, point: Point, policy: Policy, prompts: Sequence[Sequence[int]]) -> None:
        self.point, self.model = point, copy.deepcopy(policy.model)
        self.prompts = torch.tensor(prompts).repeat_interleave(point.group, dim=0)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LR, weight_decay=0.0, fused=True)
        self.ids = torch.cat([self.prompts, torch.ones(point.rows, point.new_tokens, dtype=torch.long)], dim=1)

    def rollout(self) -> None:
        self.model.train(False)
        with torch.inference_mode():
            found = self.model.generate(
                self.prompts,
                attention_mask=torch.ones_like(self.prompts),
                do_sample=True,
                top_k=0,
                max_new_tokens=self.point.new_tokens,
                pad_token_id=0,
                return_dict_in_generate=True,
                output_logits=True,
            )
        self.ids = found.sequences.clone()

    def update(self) -> None:
        self.model.train()
        new = self.point.new_tokens
        logits = self.model(self.ids, logits_to_keep=new + 1, use_cache=False).logits[:, :-1]
        rows = [
            torch.log_softmax(row, -1).gather(-1, said[:, None])[:, 0]
            for row, said in zip(logits, self.ids[:, -new:], strict=True)
        ]
        logprobs = torch.stack(rows).float()
        ratio = (logprobs - logprobs.detach()).exp()
        advantages = (torch.arange(len(rows)) % 2 * 2.0 - 1.0)[:, None]
        (-torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)).mean().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def measured(ours: Callable[[], None], plain: Callable[[], None] | None, pairs: int) -> dict[str, Any]:
    """Seconds of ours, and plain / ours, in pairs that change their order."""
    ours()
    if plain is None:
        seconds = [seconds_of(ours) for _ in range(pairs)]
        return {"seconds": statistics.median(seconds), "plain_over_ours": None}
    plain()
    seconds, ratios = [], []
    for pair in range(pairs):
        slow = seconds_of(plain) if pair % 2 else 0.0
        seconds.append(seconds_of(ours))
        ratios.append((slow or seconds_of(plain)) / seconds[-1])
    return {"seconds": statistics.median(seconds), "plain_over_ours": ratios_of(ratios).as_dict()}


def measure_point(point: Point, pairs: int) -> dict[str, Any]:
    policy = policy_of(point)
    ours = Ours(point, policy)
    plain = Plain(point, policy, ours.prompts)
    is_cheap = 4 * point.rows * point.new_tokens * point.vocabulary <= MOST_LOGITS_BYTES
    rollout = measured(ours.rollout, plain.rollout, pairs)
    update = measured(ours.update, plain.update if is_cheap else None, pairs)
    return {
        **asdict(point),
        "parameters": sum(parameter.numel() for parameter in policy.model.parameters()),
        "rollout": rollout,
        "update": update,
    }


def exponents(sizes: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """log(seconds ratio) / log(size ratio) of neighbouring points."""
    return [
        math.log(seconds[place + 1] / seconds[place]) / math.log(sizes[place + 1] / sizes[place])
        for place in range(len(sizes) - 1)
    ]


def measure_axis(name: str, points: Sequence[tuple[float, Point]], pairs: int) -> dict[str, Any]:
    found, sizes = [], []
    for size, point in points:
        row = measure_point(point, pairs)
        found.append(row)
        sizes.append(float(row["parameters"]) if name == "model" else size)
        print(line(name, sizes[-1], row), file=sys.stderr, flush=True)
    kinds = ("rollout", "update")
    return {
        "sizes": sizes,
        "points": found,
        "exponents": {kind: exponents(sizes, [row[kind]["seconds"] for row in found]) for kind in kinds},
    }


def line(name: str, size: float, row: dict[str, Any]) -> str:
    cells = []
    for kind in ("rollout", "update"):
        figures = row[kind]
        ratio = figures["plain_over_ours"]
        beside = f"plain / ours {ratio['median']:.2f}x" if ratio else "plain left out"
        cells.append(f"{kind} {figures['seconds']:.3f} s ({beside})")
    return f"{name} {size:,.0f}: " + ", ".join(cells)


def main() -> None:
    restart_with_environment()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axis", action="append", choices=AXES, help="only this axis; may be repeated")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    began = time.perf_counter()
    pairs = options.pairs or (1 if options.quick else 2)
    axes = {name: AXES[name][:-1] if options.quick else AXES[name] for name in options.axis or AXES}
    found = {name: measure_axis(name, points, pairs) for name, points in axes.items()}
    if options.json:
        ratios = {
            f"{kind}/{name}/{size:.0f}": row[kind]["plain_over_ours"]
            for name, axis in found.items()
            for size, row in zip(axis["sizes"], axis["points"], strict=True)
            for kind in ("rollout", "update")
        }
        print(
            json.dumps(
                {
                    "ratios": ratios,
                    "machine": machine() | ceilings(),
                    "wall_seconds": time.perf_counter() - began,
                    "axes": found,
                }
            )
        )
        return
    for name, axis in found.items():
        powers = (f"{kind} ^ {' '.join(f'{power:.2f}' for power in each)}" for kind, each in axis["exponents"].items())
        print(f"{name}, from point to point: " + ", ".join(powers))


if __name__ == "__main__":
    main()
