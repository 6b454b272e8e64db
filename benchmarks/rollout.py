"""Rollout speed: oncurve's engine against `transformers.generate`, interleaved in one process.

    python benchmarks/rollout.py                    three models, the sampler, and the share of the machine reached
    python benchmarks/rollout.py --quick            the same with less of everything, in minutes
    python benchmarks/rollout.py --model smollm2    one of them
    python benchmarks/rollout.py --json             one object

Prints generate / engine in wall seconds for the same number of tokens (above 1: the engine is faster), median and range
over pairs. Both sides sample at temperature 1 from the same weights, with the same threads and malloc settings, and no
row ends early. `generate` is given the better of float32 and bfloat16 weights, its dynamic cache, and no log-probs to
record; the engine records them.
"""

import argparse
import copy
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import measure
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from oncurve.model import ModelSettings, Policy, fresh_embedded_policy, load_policy
from oncurve.rollout import Request, TorchEngine
from oncurve.rollout.sampler import draw
from oncurve.types import Sampling, derive_seed


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A model and what is asked of it."""

    policy: Policy
    num_prompts: int
    group_size: int
    prompt_tokens: int
    max_tokens: int

    def prompts(self) -> list[tuple[int, ...]]:
        """Random tokens: nothing in common."""
        size = len(self.policy.tokenizer)
        return [
            tuple(1 + derive_seed("prompt", place, i) % (size - 1) for i in range(self.prompt_tokens))
            for place in range(self.num_prompts)
        ]


def embedded(quick: bool) -> Case:
    policy = fresh_embedded_policy(0)
    return Case(policy=policy, num_prompts=32, group_size=16, prompt_tokens=12, max_tokens=16 if quick else 48)


def qwen3(quick: bool) -> Case:
    """The 3.97 M model of Qwen3's kind."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=1024, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).eval()
    small = fresh_embedded_policy(0)
    policy = Policy(model=model, tokenizer=small.tokenizer, terminators=frozenset({0}), context_length=512)
    return Case(policy=policy, num_prompts=16, group_size=16, prompt_tokens=12, max_tokens=8 if quick else 32)


def smollm2(quick: bool) -> Case:
    policy = load_policy(ModelSettings(path="smollm2", dtype="bfloat16"), seed=0)
    return Case(policy=policy, num_prompts=8, group_size=8, prompt_tokens=200, max_tokens=8 if quick else 64)


CASES: dict[str, Callable[[bool], Case]] = {"embedded": embedded, "qwen3-4m": qwen3, "smollm2": smollm2}


def engine_of(case: Case) -> Callable[[], str]:
    """One rollout of the engine, without an early end; gives its note."""
    endless = copy.copy(case.policy)
    endless.terminators = frozenset({endless.model.config.vocab_size})
    requests = [
        Request(task_id=str(place), index=index, prompt_ids=ids, seed=derive_seed("benchmark", place, index))
        for place, ids in enumerate(case.prompts())
        for index in range(case.group_size)
    ]
    engine = TorchEngine(endless, max_rows=len(requests))

    def run() -> str:
        engine.generate(requests, Sampling(max_tokens=case.max_tokens), policy_version=0)
        return engine.note

    return run


def generate_of(case: Case, model: torch.nn.Module) -> Callable[[], object]:
    """The same with `generate`."""
    ids = torch.tensor([prompt for prompt in case.prompts() for _ in range(case.group_size)])

    def run() -> object:
        with torch.inference_mode():
            return model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                max_new_tokens=case.max_tokens,
                min_new_tokens=case.max_tokens,
                pad_token_id=0,
            )

    return run


def best_generate(case: Case) -> tuple[str, Callable[[], object]]:
    """`generate` with the dtype and attention in which it is fastest here, found with a few tokens."""
    short = replace(case, max_tokens=3)
    models, seconds = {}, {}
    for dtype in (torch.bfloat16, torch.float32):
        for attention in ("sdpa", "eager"):
            name = f"{str(dtype).removeprefix('torch.')}, {attention}"
            models[name] = copy.deepcopy(case.policy.model).to(dtype)
            models[name].set_attn_implementation(attention)
            seconds[name] = measure.seconds_of(generate_of(short, models[name]))
    name = min(seconds, key=lambda one: seconds[one])
    return name, generate_of(case, models[name])


def measure_case(case: Case, pairs: int) -> dict[str, object]:
    """generate / engine, and tokens a second of the engine."""
    engine = engine_of(case)
    setting, generate = best_generate(case)
    ratios = measure.interleaved(engine, generate, pairs)
    num_tokens = case.num_prompts * case.group_size * case.max_tokens
    seconds = measure.seconds_of(engine)
    return {
        "generate_over_engine": ratios.as_dict(),
        "generate_setting": setting,
        "engine_tokens_per_second": round(num_tokens / seconds, 1),
        "engine_note": engine(),
        "rows": case.num_prompts * case.group_size,
        "max_tokens": case.max_tokens,
    }


def shares(case: Case, limits: dict[str, float]) -> dict[str, float]:
    """Shares of the ceilings of this run that prefill and decode reach: their products alone counted, 2 a weight and
    token, over the best product; and the weights read a step over the best read."""
    num_weights = sum(weight.numel() for weight in case.policy.model.parameters())
    dtype = case.policy.model.dtype
    peak = limits["gemm_bfloat16_gflops" if dtype is torch.bfloat16 else "gemm_float32_gflops"] * 1e9
    begin, whole = (
        min(measure.seconds_of(engine_of(one)) for _ in range(2)) for one in (replace(case, max_tokens=1), case)
    )
    steps = case.max_tokens - 1
    rows = case.num_prompts * case.group_size
    step = max(whole - begin, 1e-9) / steps
    return {
        "prefill_of_gemm": 2 * num_weights * case.num_prompts * case.prompt_tokens / begin / peak,
        "decode_of_gemm": 2 * num_weights * rows / step / peak,
        "decode_of_read": num_weights * dtype.itemsize / step / (limits["read_gbps"] * 1e9),
    }


def sampler(pairs: int, quick: bool) -> dict[str, dict[str, float]]:
    """log_softmax + exp + multinomial over one draw, 64 rows, by vocabulary."""
    found = {}
    for size in (1024, 49_152) if quick else (1024, 4096, 49_152, 151_936, 262_144):
        logits = 3 * torch.randn(64, size, generator=torch.Generator().manual_seed(0))
        uniforms = torch.rand(64, dtype=torch.float64)

        def naive(logits: torch.Tensor = logits) -> object:
            logprobs = torch.log_softmax(logits.float(), dim=-1)
            return logprobs.gather(1, torch.multinomial(logprobs.exp(), 1))

        def ours(logits: torch.Tensor = logits, uniforms: torch.Tensor = uniforms) -> object:
            return draw(logits, uniforms, Sampling())

        found[str(size)] = measure.interleaved(ours, naive, pairs).as_dict()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=[*CASES, "all"], default="all")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    measure.restart_with_environment()
    torch.set_num_threads(arguments.threads)
    pairs = min(arguments.pairs, 3) if arguments.quick else arguments.pairs
    limits = measure.ceilings()
    result: dict[str, object] = {"machine": measure.machine(), "ceilings": limits}
    for name in CASES if arguments.model == "all" else [arguments.model]:
        case = CASES[name](arguments.quick)
        result[name] = measure_case(case, pairs) | {"shares": shares(case, limits)}
        if not arguments.json:
            print(f"{name}: {json.dumps(result[name])}", flush=True)
    if arguments.model == "all":
        result["sampler_naive_over_ours"] = sampler(pairs, arguments.quick)
    print(json.dumps(result if arguments.json else {key: result[key] for key in result if key not in CASES}))


if __name__ == "__main__":
    main()
