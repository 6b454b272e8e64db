"""Learner speed and memory: one update of oncurve against a plain padded step of transformers on the same batch.

    python benchmarks/learner.py                 three models, 3 pairs each
    python benchmarks/learner.py --quick         the two small ones, 2 pairs: under 5 minutes on a quiet machine
    python benchmarks/learner.py --models smollm2 --pairs 5 --json

Both sides hold the same bfloat16 weights (of the named shape, random) and learn from the same completions. The plain
step is what a trainer does with transformers at its best here: prompts padded on the left and completions on the right,
one micro-batch (four for SmolLM2, whose activations take more than 24 GiB in one), logits at completion positions, a
clipped loss, clipped gradient, fused AdamW on the bfloat16 weights; eager or fused attention, whichever a first run of
both finds faster. Ours also keeps float32 masters, measures entropy and writes metrics. Prints plain / oncurve of wall
seconds, so above 1 means that oncurve is faster, and the share of the machine's bfloat16 products per second that our
step reaches. Memory: the peak of a process for each.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from measure import ceilings, interleaved, machine, restart_with_environment, seconds_of
from transformers import (
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from oncurve.algo import ObjectiveSettings
from oncurve.learner import Learner, LearnerSettings
from oncurve.model import Policy, fresh_embedded_policy
from oncurve.sandbox.own_memory import peak_bytes
from oncurve.types import Completion, FinishReason, Group, Sampling, Status, Task, Verdict

OLD_LOGPROB, LR = -4.0, 1e-5


@dataclass(frozen=True, kw_only=True)
class Workload:
    prompts: int
    group: int
    prompt_tokens: int
    shortest: int
    longest: int
    vocabulary: int
    micro_batches: int = 1
    """Of the plain step: as few as its logits leave memory for."""


WORKLOADS = {
    "embedded": Workload(prompts=32, group=16, prompt_tokens=11, shortest=20, longest=36, vocabulary=57),
    "qwen3-4m": Workload(prompts=16, group=16, prompt_tokens=12, shortest=24, longest=32, vocabulary=128),
    "smollm2": Workload(
        prompts=8, group=8, prompt_tokens=200, shortest=32, longest=64, vocabulary=49152, micro_batches=4
    ),
}


def policy_of(name: str, attention: str) -> Policy:
    base = fresh_embedded_policy(0)
    ends = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": True}
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    model: PreTrainedModel
    if name == "embedded":
        model = GPT2LMHeadModel(base.model.config)
    elif name == "qwen3-4m":
        sizes = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 5, "vocab_size": 128}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 512}
        model = Qwen3ForCausalLM(Qwen3Config(**sizes, **heads, **ends))
    else:
        sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "vocab_size": 49152}
        heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192}
        model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, **ends))
    torch.set_default_dtype(torch.float32)
    model.set_attn_implementation(attention)
    return Policy(model=model.train(False), tokenizer=base.tokenizer, terminators=frozenset({0}), context_length=512)


def groups_of(name: str) -> tuple[list[Group], Sampling]:
    work, rng = WORKLOADS[name], random.Random(0)
    sampling = Sampling(temperature=1.0, max_tokens=work.longest)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(1, work.vocabulary) for _ in range(count))

    def completion(task: str, index: int, prompt: tuple[int, ...]) -> Completion:
        said = tokens(rng.randint(work.shortest, work.longest))
        return Completion(
            task_id=task, index=index, prompt_ids=prompt, token_ids=said, old_logprobs=(OLD_LOGPROB,) * len(said),
            policy_version=0, finish_reason=FinishReason.LENGTH, sampling=sampling, text="",
        )  # fmt: skip

    groups = []
    for place in range(work.prompts):
        prompt = tokens(work.prompt_tokens + rng.randint(-2, 2))
        verdicts = [
            Verdict(status=(Status.WRONG, Status.CORRECT)[i % 2], reward=float(i % 2)) for i in range(work.group)
        ]
        task = Task(id=str(place), prompt="", gold="", kind="benchmark", verifier="benchmark")
        members = tuple(completion(task.id, index, prompt) for index in range(work.group))
        groups.append(Group(task=task, completions=members, verdicts=tuple(verdicts)))
    return groups, sampling


def learner_of(name: str) -> tuple[Learner, list[Group]]:
    groups, sampling = groups_of(name)
    settings = LearnerSettings(lr=LR, max_logprob_gap=1e3, watch_kl_completions=0)  # no reference on either side
    return Learner(policy_of(name, "eager"), settings, ObjectiveSettings(), sampling=sampling), groups


def plain_step(name: str, attention: str) -> Callable[[], None]:
    model = policy_of(name, attention).model
    adamw = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0, fused=True)
    done = [completion for group in groups_of(name)[0] for completion in group.completions]
    before = max(len(one.prompt_ids) for one in done)
    after = max(len(one.token_ids) for one in done)

    def padded(values: Sequence[tuple[Sequence[int], Sequence[int]]]) -> torch.Tensor:
        return torch.tensor([[0] * (before - len(p)) + [*p, *c] + [0] * (after - len(c)) for p, c in values])

    ids = padded([(one.prompt_ids, one.token_ids) for one in done])
    is_token = padded([([1] * len(one.prompt_ids), [1] * len(one.token_ids)) for one in done])
    loss_mask = is_token[:, before:].float()
    advantages = torch.tensor([1.0 if one.index % 2 else -1.0 for one in done])[:, None]

    def add_gradient(part: slice) -> None:
        arguments = {"attention_mask": is_token[part], "logits_to_keep": after + 1, "use_cache": False}
        rows = [
            torch.log_softmax(row, -1).gather(-1, said[:, None])[:, 0]
            for row, said in zip(model(ids[part], **arguments).logits[:, :-1], ids[part, before:], strict=True)
        ]
        ratio = (torch.stack(rows).float() - OLD_LOGPROB).exp()
        losses = -torch.min(ratio * advantages[part], ratio.clamp(0.8, 1.2) * advantages[part])
        ((losses * loss_mask[part]).sum() / loss_mask.sum()).backward()

    size = len(done) // WORKLOADS[name].micro_batches

    def step() -> None:
        model.train()
        for first in range(0, len(done), size):
            add_gradient(slice(first, first + size))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()

    return step


def faster_attention(name: str) -> str:
    steps = {attention: plain_step(name, attention) for attention in ("eager", "sdpa")}
    return min(steps, key=lambda attention: (steps[attention](), seconds_of(steps[attention]))[1])


def memory_of(name: str, side: str, threads: int) -> dict[str, int]:
    """Peak bytes of a process that takes two steps, and what it held before them."""
    command = [sys.executable, __file__, "--child", side, "--models", name, "--threads", str(threads)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def child(name: str, side: str) -> None:
    if side == "oncurve":
        learner, groups = learner_of(name)
        step: Callable[[], object] = lambda: learner.update(groups)  # noqa: E731
    else:
        step = plain_step(name, side)
    before = peak_bytes()
    step(), step()
    print(json.dumps({"peak": peak_bytes(), "before": before}))


def products_of(learner: Learner, groups: list[Group]) -> float:
    """Multiplications and additions of one update, in 1e9: six a weight and token that is run, head at its tokens."""
    model = learner.policy.model
    head = model.get_output_embeddings().weight.numel()
    body = sum(p.numel() for p in model.parameters() if p.ndim > 1) - head
    done = [completion for group in groups for completion in group.completions]
    said = sum(len(one.token_ids) for one in done)
    run = said - len(done) + sum(len(group.completions[0].prompt_ids) for group in groups)
    return 6 * (body * run + head * said) / 1e9


def measured(name: str, pairs: int, threads: int) -> dict[str, object]:
    attention = faster_attention(name)
    learner, groups = learner_of(name)
    ratio = interleaved(lambda: learner.update(groups), plain_step(name, attention), pairs)
    spent = seconds_of(lambda: learner.update(groups))
    rate = products_of(learner, groups) / spent
    ours, plain = memory_of(name, "oncurve", threads), memory_of(name, attention, threads)
    return {
        "model": name,
        "plain_attention": attention,
        "plain_over_oncurve": ratio.as_dict(),
        "seconds": spent,
        "tokens_per_second": sum(len(one.token_ids) for group in groups for one in group.completions) / spent,
        "gflops": rate,
        "of_gemm_bfloat16": rate / ceilings()["gemm_bfloat16_gflops"],
        "memory": {"oncurve": ours, "plain": plain},
        "memory_of_process": ours["peak"] / plain["peak"],
        "memory_of_step": (ours["peak"] - ours["before"]) / (plain["peak"] - plain["before"]),
    }


def main() -> None:
    restart_with_environment()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="")
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=("oncurve", "eager", "sdpa"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    names = arguments.models.split(",") if arguments.models else list(WORKLOADS)[: 2 if arguments.quick else 3]
    if arguments.child:
        child(names[0], arguments.child)
        return
    began, pairs = time.perf_counter(), arguments.pairs or (2 if arguments.quick else 3)
    found = [measured(name, pairs, arguments.threads) for name in names]
    result = {"machine": machine(), "models": found, "seconds": time.perf_counter() - began}
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"{result['machine']}")
    for one in found:
        ratio = one["plain_over_oncurve"]
        print(f"{one['model']}: plain ({one['plain_attention']}) / oncurve {ratio['median']:.2f}x", end=" ")
        print(f"(min {ratio['min']:.2f}, max {ratio['max']:.2f}, {ratio['pairs']} pairs)", end=", ")
        print(f"{one['seconds']:.2f} s an update, {one['of_gemm_bfloat16']:.0%} of the bfloat16 ceiling", end="; ")
        print(f"peak memory of the process {one['memory_of_process']:.2f}x", end=", ")
        print(f"beyond what it held before {one['memory_of_step']:.2f}x")


if __name__ == "__main__":
    main()
