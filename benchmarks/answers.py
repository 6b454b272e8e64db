"""Speed of the answer verifier: easy numbers, what needs the CAS, and hostile text.

    python benchmarks/answers.py            a table
    python benchmarks/answers.py --json     the same figures as one JSON object

Every answer and every gold of a round is different, so nothing comes from a cache. Easy answers take one core and no
process; those for the CAS are measured with one process and with one on each core. Figures are medians over rounds,
with the range, and beside them the rate per second of CPU time of all processes together: what one core does that
has nothing else to do, and what a busy machine leaves comparable.
"""

import argparse
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from cpu_time import cpu_s

from oncurve.types import Status, Task
from oncurve.verify import AnswerSettings, AnswerVerifier, Item

Pair = tuple[str, str]


def easy(draw: random.Random) -> Pair:
    """An integer, a decimal or a fraction, as gold and answer."""
    value = draw.randrange(10**9)
    kind = draw.randrange(3)
    if kind == 0:
        return str(value), str(value)
    if kind == 1:
        return f"{value}.5", f"{value}.50"
    return f"{value}/7", f"\\frac{{{value}}}{{7}}"


def symbolic(draw: random.Random) -> Pair:
    """A radical, a logarithm, an identity or an equation, as gold and answer in another form."""
    a, b = draw.randrange(2, 10**4), draw.randrange(2, 10**4)
    return (
        (f"{a}\\sqrt{{{b}}}", f"\\sqrt{{{a * a * b}}}"),
        (f"{a}\\ln {b}", f"\\ln({b}^{{{a}}})"),
        (f"(x+{a})^2", f"x^2+{2 * a}x+{a * a}"),
        (f"{a}\\sin 2x", f"{2 * a}\\sin x\\cos x"),
        (f"y={a}x+{b}", f"{a}x-y+{b}=0"),
        (f"\\frac{{{a}}}{{x+{b}}}", f"{a}(x+{b})^{{-1}}"),
    )[draw.randrange(6)]


HOSTILE = {
    "tower": "9^{9^{9^{9}}}",
    "factorial": "(10^{9})!",
    "sum": r"\sum_{k=1}^{10^{12}} k^{k}",
    "nested sums": r"\sum_{a=1}^{4000}\sum_{b=1}^{4000} ab",
    "integral": r"\int_0^{\infty} e^{-x^{x^{x}}}\sin(x^{7})\,dx",
    "divergent sum": r"\sum_{n=1}^\infty \frac{1}{n}",
    "100 kB of terms": "1+" * 50_000 + "1",
    "deep braces": "{" * 50_000 + "1" + "}" * 50_000,
    "deep roots": r"\sqrt{" * 600 + "2" + "}" * 600,
    "code": "__import__('os').abort()",
}


def items(make: Callable[[random.Random], Pair], number: int, seed: int) -> list[Item]:
    draw = random.Random(seed)
    pairs = [make(draw) for _ in range(number)]
    return [
        Item(
            task=Task(id=str(place), prompt="p", gold=gold, kind="k", verifier="answer"),
            text=f"<think>some steps before it</think>\nThe answer is $\\boxed{{{answer}}}$.",
        )
        for place, (gold, answer) in enumerate(pairs)
    ]


def rate(verifier: AnswerVerifier, make: Callable[[random.Random], Pair], number: int, rounds: int) -> dict[str, float]:
    rates, cpu_rates = [], []
    for seed in range(rounds):
        batch = items(make, number, seed)
        started, cpu_started = time.perf_counter(), cpu_s()
        verdicts = verifier.judge(batch)
        rates.append(number / (time.perf_counter() - started))
        cpu_rates.append(number / (cpu_s() - cpu_started))
        refused = [v.evidence for v in verdicts if v.status is not Status.CORRECT]
        if refused:
            raise SystemExit(f"{len(refused)} of {number} right answers refused, first: {refused[0]}")
    return {
        "median_per_s": statistics.median(rates),
        "min_per_s": min(rates),
        "max_per_s": max(rates),
        "median_per_cpu_s": statistics.median(cpu_rates),
        "max_per_cpu_s": max(cpu_rates),
    }


def slowest(verifier: AnswerVerifier) -> dict[str, float]:
    seconds = {}
    for name, answer in HOSTILE.items():
        task = Task(id=name, prompt="p", gold=r"\sqrt2+x", kind="k", verifier="answer")
        started = time.perf_counter()
        (verdict,) = verifier.judge([Item(task=task, text=f"\\boxed{{{answer}}}")])
        seconds[name] = round(time.perf_counter() - started, 3)
        if verdict.status is Status.CORRECT:
            raise SystemExit(f"{name} was paid")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    verifier = AnswerVerifier(AnswerSettings(carrier="box"))
    figures: dict[str, Any] = {"easy": rate(verifier, easy, 20_000, options.rounds)}
    for num_workers in sorted({1, cores}):
        using = AnswerVerifier(AnswerSettings(carrier="box", num_workers=num_workers))
        using.judge(items(symbolic, 50, seed=-1))  # starts the processes
        figures[f"cas, {num_workers} workers"] = rate(using, symbolic, 500, options.rounds)
    figures |= {
        "hostile_s": slowest(verifier),
        "cores": cores,
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
    }
    if options.json:
        print(json.dumps(figures))
        return
    for name, found in figures.items():
        if name == "easy" or name.startswith("cas"):
            middle, low, high, cpu, best = found.values()
            print(f"{name:14} {middle:9,.0f} verdicts/s (min {low:,.0f}, max {high:,.0f}", end="")
            print(f"; per CPU second {cpu:,.0f}, at best {best:,.0f})")
    print(f"hostile: slowest {max(figures['hostile_s'].values())} s of {len(HOSTILE)}; ", end="")
    print(f"{cores} cores, load {figures['load']:.1f}")


if __name__ == "__main__":
    main()
