"""The whole GRPO step, and time to accuracy, against TRL's GRPOTrainer, in steps that alternate.

    python benchmarks/grpo_step.py                  all cases, about 20 minutes on two quiet cores
    python benchmarks/grpo_step.py --quick          fewer pairs, no run to an accuracy: 5.5 minutes without AMX
    python benchmarks/grpo_step.py --case qwen3-4m --json

Both trainers are children of this process with the same environment and threads; each does one step when told, so a
pair of steps meets the same machine. Same model, prompts, group size, lengths, reward, learning rate. TRL runs in an
environment of its own, made at the first use (some minutes, 1.5 GB, not counted), with the settings that were fastest
for it: bfloat16 weights (autocast over float32 ones where accuracy counts), no checkpointing, large micro-batches, no
logging. Ours records its metrics and rollouts within the step, as every run does. Ratios are TRL / oncurve: above 1,
oncurve is faster.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import measure
from peer_env import ROOT, ensure
from sides.cases import CASES, Case

HERE = Path(__file__).parent
PAIRS = {"embedded": (10, 4), "qwen3-4m": (15, 5), "smollm2-135m": (4, 1)}
"""Timed pairs of steps, in full and with ``--quick``."""
WARM_UP = {"embedded": 2, "qwen3-4m": 2, "smollm2-135m": 1}
EVALUATE_EVERY = 5
MOST_STEPS = 150
ENVIRONMENT = {**measure.ENVIRONMENT, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
"""Of both sides: an idle one does not spin while the other one works, and memory is not faulted in again each step."""


class Side:
    """A trainer in a child process."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path, threads: int) -> None:
        self.name, self._log = name, log
        environment = {**os.environ, **ENVIRONMENT, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT / "src")}
        with log.open("w", encoding="utf-8") as errors:
            self._child = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                text=True,
            )
        self.about = self._answer()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a command and wait for the answer."""
        if self._child.stdin is None:
            raise RuntimeError("a child without standard input")
        self._child.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._child.stdout.readline() if self._child.stdout else ""
        if not line:
            tail = self._log.read_text(encoding="utf-8", errors="replace")[-3000:]
            status = self._child.wait()
            hint = "killed, for memory? Try --trl-micro-batches.\n" if status == -9 else ""
            raise SystemExit(f"{self.name} ended with {status}: {hint}{tail}")
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.stdin:
            self._child.stdin.close()
        try:
            self._child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


@dataclass
class Race:
    """Two trainers that take turns."""

    ours: Side
    theirs: Side
    folder: Path
    steps: int = 0

    def pair(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """One step of each, the order swapped every time."""
        sides = (self.ours, self.theirs) if self.steps % 2 == 0 else (self.theirs, self.ours)
        answers = {side.name: side.ask("step") for side in sides}
        self.steps += 1
        return answers[self.ours.name], answers[self.theirs.name]

    def accuracies(self) -> tuple[float, float]:
        """Greedy accuracy of both by the same evaluation, from the weights as saved."""
        path = str(self.folder / "theirs")
        self.theirs.ask("save", path=path)
        return self.ours.ask("evaluate", path=None)["greedy"], self.ours.ask("evaluate", path=path)["greedy"]


@contextmanager
def racing(case: Case, options: argparse.Namespace) -> Iterator[Race]:
    """Start both sides on the same model and prompts."""
    python = options.trl_python or ensure(HERE / "trl-requirements.txt")
    with tempfile.TemporaryDirectory(prefix="oncurve-step-") as name:
        folder, threads = Path(name), options.threads
        command = [sys.executable, HERE / "sides" / "ours.py", case.name, folder, str(threads), *options.words]
        with Side("oncurve", command, folder / "ours.log", threads) as ours:
            change_job(folder / "job.json", options)
            command = [python, HERE / "sides" / "theirs.py", folder, str(threads)]
            with Side("trl", command, folder / "theirs.log", threads) as theirs:
                for key in ("prompt_digest", "parameters"):
                    if ours.about[key] != theirs.about[key]:
                        raise SystemExit(f"{case.name}: the sides differ in {key}: {ours.about} {theirs.about}")
                yield Race(ours, theirs, folder)


def change_job(path: Path, options: argparse.Namespace) -> None:
    """Put what the command line says about TRL in the place of what the case says."""
    chosen = {
        "dtype": options.trl_dtype,
        "attention": options.trl_attention,
        "micro_batches": options.trl_micro_batches,
    }
    job = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**job, **{key: value for key, value in chosen.items() if value}}), encoding="utf-8")


def spread(values: Sequence[float]) -> dict[str, float]:
    return measure.ratios_of(list(values)).as_dict()


def compare(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Ratios of the whole step and of its two large parts, and what stands behind them."""
    pairs = list(zip(ours, theirs, strict=True))
    parts = {
        part: [b["parts"][key] / a["parts"][key] for a, b in pairs]
        for part, key in (("rollout", "seconds/rollout"), ("update", "seconds/update"))
    }
    return {
        "step": spread([b["seconds"] / a["seconds"] for a, b in pairs]),
        "step_cpu": spread([b["cpu_seconds"] / a["cpu_seconds"] for a, b in pairs]),
        **{part: spread(values) for part, values in parts.items()},
        "sides": {name: about_side(steps) for name, steps in (("oncurve", ours), ("trl", theirs))},
    }


def about_side(steps: Sequence[dict[str, Any]]) -> dict[str, Any]:
    names = steps[0]["parts"]
    return {
        "seconds": spread([step["seconds"] for step in steps]),
        "cpu_seconds": spread([step["cpu_seconds"] for step in steps]),
        "parts": {name: statistics.median(step["parts"].get(name, 0.0) for step in steps) for name in names},
        "tokens": statistics.mean(step["tokens"] for step in steps),
        "truncated": statistics.mean(step["truncated"] for step in steps),
        "reward_first": steps[0]["reward"],
        "reward_last": steps[-1]["reward"],
        "peak_bytes": steps[-1]["peak_bytes"],
    }


def time_to_accuracy(race: Race, target: float) -> dict[str, Any]:
    """Steps of both until each answers ``target`` of the held-out tasks greedily; a side that is there waits.

    The seconds are those of its steps alone; start-up and evaluation are left out on both sides. A side that has not
    got there within the most steps counts with what it has spent, which makes the ratio a bound.
    """
    sides = {"oncurve": race.ours, "trl": race.theirs}
    spent, reached = dict.fromkeys(sides, 0.0), dict.fromkeys(sides, 0)
    curve: list[dict[str, float]] = []
    steps: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for number in range(1, MOST_STEPS + 1):
        waiting = [name for name in sides if not reached[name]]
        for name in waiting if number % 2 else waiting[::-1]:
            answer = sides[name].ask("step")
            steps[name].append(answer)
            spent[name] += answer["seconds"]
        if number % EVALUATE_EVERY == 0:
            found = dict(zip(sides, race.accuracies(), strict=True))
            curve.append({"step": number, **found})
            print(f"  step {number}: {found}, seconds {spent}", file=sys.stderr)
            for name in waiting:
                reached[name] = number if found[name] >= target else 0
        if all(reached.values()):
            break
    both = min(len(done) for done in steps.values())
    return {
        "target": target,
        "seconds": spent,
        "steps": {name: reached[name] or None for name in sides},
        "ratio": spent["trl"] / spent["oncurve"],
        "is_bound": not all(reached.values()),
        "curve": curve,
        **compare(steps["oncurve"][2:both], steps["trl"][2:both]),
    }


def run_case(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    with racing(case, options) as race:
        about = {"oncurve": race.ours.about, "trl": race.theirs.about}
        if case.is_embedded and not options.quick:
            return {"about": about, **time_to_accuracy(race, options.target)}
        for _ in range(WARM_UP[case.name]):
            race.pair()
        pairs = [race.pair() for _ in range(options.pairs or PAIRS[case.name][options.quick])]
        return {"about": about, **compare(*zip(*pairs, strict=True))}


def table(name: str, found: dict[str, Any]) -> str:
    cells = [
        f"{part} {found[part]['median']:.2f}x (min {found[part]['min']:.2f}, max {found[part]['max']:.2f})"
        for part in ("step", "step_cpu", "rollout", "update")
    ]
    lines = [f"{name}, {found['step']['pairs']} pairs: TRL / oncurve " + ", ".join(cells)]
    for side, about in found["sides"].items():
        parts = ", ".join(f"{key.removeprefix('seconds/')} {value:.3f}" for key, value in about["parts"].items())
        lines.append(
            f"  {side}: {about['seconds']['median']:.3f} s, {about['cpu_seconds']['median']:.3f} of processor time "
            f"({parts}), {about['tokens']:.1f} tokens, truncated {about['truncated']:.0%}, reward "
            f"{about['reward_first']:.3f} -> {about['reward_last']:.3f}, peak {about['peak_bytes'] / 1024**3:.1f} GiB"
        )
    if "target" in found:
        bound = ">= " if found["is_bound"] else ""
        lines.append(
            f"  to {found['target']:.0%} greedy: {bound}{found['ratio']:.2f}x, steps {found['steps']}, "
            f"seconds {found['seconds']}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=CASES, help="only this case; may be repeated")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--pairs", type=int, help="timed pairs of steps of each case")
    parser.add_argument("--target", type=float, default=0.7, help="greedy accuracy that the embedded run is timed to")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--trl-python", help="an environment with TRL, instead of the one that is made")
    parser.add_argument("--trl-dtype", choices=["bfloat16", "float32", "autocast"])
    parser.add_argument("--trl-attention", choices=["eager", "sdpa"])
    parser.add_argument("--trl-micro-batches", type=int)
    parser.add_argument("words", nargs="*", help="settings of our side, after --")
    options = parser.parse_args()
    started, load = time.perf_counter(), os.getloadavg()[0]
    cases = {}
    for name in options.case or CASES:
        cases[name] = run_case(CASES[name], options)
        print(table(name, cases[name]), file=sys.stderr)
    if options.json:
        ratios = {f"step/{name}": found["step"] for name, found in cases.items()}
        ratios |= {f"step_cpu/{name}": found["step_cpu"] for name, found in cases.items()}
        ratios |= {
            f"time_to_accuracy/{name}": {"median": found["ratio"], "is_bound": found["is_bound"]}
            for name, found in cases.items()
            if "target" in found
        }
        seconds = time.perf_counter() - started
        result = {
            "ratios": ratios,
            "threads": options.threads,
            "machine": measure.machine() | measure.ceilings(),
            "load_before": load,
            "load_after": os.getloadavg()[0],
            "wall_seconds": seconds,
            "cases": cases,
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
