"""Rollout speed: oncurve's engine against `transformers.generate`, interleaved in one process.

    python benchmarks/rollout.py                    the embedded model, 512 rows
    python benchmarks/rollout.py --model smollm2 --rows 64 --max-tokens 32

Prints the ratio generate / engine of wall seconds (above 1: the engine is faster), median and range over pairs. Both
sides sample at temperature 1 from the same weights; rows of `generate` go on until the last one ends, as it does.
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import torch

from oncurve.model import ModelSettings, Policy, fresh_embedded_policy, load_policy
from oncurve.rollout import Request, TorchEngine
from oncurve.tasks import TaskSettings, load_tasks
from oncurve.types import Sampling, derive_seed


def prompts_of(policy: Policy, num_prompts: int) -> list[tuple[int, ...]]:
    style = "chat" if policy.tokenizer.chat_template else "compact"
    tasks = load_tasks(TaskSettings(prompt_style=style), seed=0)
    return [policy.encode_prompt(task.prompt) for task in tasks.train[:num_prompts]]


def engine_seconds(policy: Policy, prompts: list[tuple[int, ...]], group_size: int, max_tokens: int) -> float:
    requests = [
        Request(task_id=str(place), index=index, prompt_ids=ids, seed=derive_seed("benchmark", place, index))
        for place, ids in enumerate(prompts)
        for index in range(group_size)
    ]
    engine = TorchEngine(policy, max_rows=len(requests))
    started = time.perf_counter()
    engine.generate(requests, Sampling(max_tokens=max_tokens), policy_version=0)
    return time.perf_counter() - started


def generate_seconds(policy: Policy, prompts: list[tuple[int, ...]], group_size: int, max_tokens: int) -> float:
    rows = [torch.tensor(ids) for ids in prompts for _ in range(group_size)]
    pad = int(policy.tokenizer.pad_token_id or 0)
    inputs = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad, padding_side="left")
    mask = torch.nn.utils.rnn.pad_sequence(
        [torch.ones_like(row) for row in rows], batch_first=True, padding_side="left"
    )
    started = time.perf_counter()
    with torch.inference_mode():
        policy.model.generate(
            inputs,
            attention_mask=mask,
            do_sample=True,
            top_k=0,
            max_new_tokens=max_tokens,
            eos_token_id=list(policy.terminators),
            pad_token_id=pad,
            return_dict_in_generate=True,
            output_logits=True,  # the log-probs that training needs
        )
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--group-size", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    fresh = arguments.model == "fresh"
    policy = fresh_embedded_policy(0) if fresh else load_policy(ModelSettings(path=arguments.model), seed=0)
    prompts = prompts_of(policy, arguments.rows // arguments.group_size)
    work = (policy, prompts, arguments.group_size, arguments.max_tokens)
    engine_seconds(*work), generate_seconds(*work)  # warm-up
    ratios = sorted(generate_seconds(*work) / engine_seconds(*work) for _ in range(arguments.pairs))
    result = {
        "model": arguments.model,
        "rows": arguments.rows,
        "threads": arguments.threads,
        "load": os.getloadavg()[0],
        "generate_over_engine": {"median": statistics.median(ratios), "min": ratios[0], "max": ratios[-1]},
    }
    ratio = result["generate_over_engine"]
    text = f"{arguments.model}, {arguments.rows} rows, {arguments.threads} threads, load {result['load']:.1f}: "
    text += f"generate / engine {ratio['median']:.2f} (min {ratio['min']:.2f}, max {ratio['max']:.2f})"
    print(json.dumps(result) if arguments.json else text)


if __name__ == "__main__":
    main()
