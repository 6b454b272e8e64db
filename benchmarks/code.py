"""Speed of the code verifier with full isolation, beside a fresh bubblewrap and interpreter for each program.

    python benchmarks/code.py            a table
    python benchmarks/code.py --json     the same figures as one JSON object

A program is a function of one line with ten tests; every program differs, so none is deduplicated. All figures come
from one run on one machine, in rounds that alternate between the ways, so that their ratios mean something where the
figures do not. ``cpu_ms`` is what a program costs in all processes together: 1000 / cpu_ms programs a second fit on a
core that does nothing else. It misses what ends unseen in a fresh bubblewrap, so that way has a rate only.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cpu_time import cpu_s

from oncurve.sandbox import SandboxSettings, close_shared_pools
from oncurve.types import Status, Task
from oncurve.verify import Item
from oncurve.verify.code import CodeSettings, CodeVerifier

TESTS = [{"args": [number, 3], "expected": number + 3} for number in range(10)]
FRESH, START = "bwrap + fresh interpreter", "python -I -S -c pass"
HARNESS = """
import json, sys
request = json.load(sys.stdin)
namespace = {}
exec(request["source"], namespace)
print(json.dumps([namespace["add"](*args) for args in request["args"]]))
"""


def source(number: int) -> str:
    return f"def add(a, b):\n    return a + b  # {number}\n"


class Warm:
    """The verifier, with this many sandboxes."""

    def __init__(self, num_workers: int, isolation: str) -> None:
        sandbox = SandboxSettings.model_validate({"num_workers": num_workers, "isolation": isolation})
        self._verifier = CodeVerifier(CodeSettings(carrier="text", sandbox=sandbox))
        meta = {"mode": "function", "entry_point": "add", "tests": TESTS}
        self._task = Task(id="add", prompt="", gold="", kind="bench", verifier="code", meta=meta)

    def __call__(self, first: int, number: int) -> None:
        items = [Item(task=self._task, text=source(first + place)) for place in range(number)]
        if any(verdict.status is not Status.CORRECT for verdict in self._verifier.judge(items)):
            raise SystemExit("a right program was refused")


def fresh(first: int, number: int) -> None:
    """bubblewrap and a new interpreter for each program, all its tests in it, outputs compared outside."""
    home = Path(sys.base_prefix).resolve()
    python = Path(sys.executable).resolve().relative_to(home)
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr"]
    command += ["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--ro-bind", str(home), "/python"]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--clearenv"]
    command += ["--setenv", "LD_LIBRARY_PATH", "/python/lib", "--", f"/python/{python}", "-I", "-S", "-c", HARNESS]
    for place in range(number):
        request = json.dumps({"source": source(first + place), "args": [test["args"] for test in TESTS]})
        done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=60, check=True)
        if json.loads(done.stdout) != [test["expected"] for test in TESTS]:
            raise SystemExit("a right program was refused")


def interpreter(_: int, number: int) -> None:
    """A measure of the machine: an interpreter that starts and does nothing."""
    for _ in range(number):
        subprocess.run([str(Path(sys.executable).resolve()), "-I", "-S", "-c", "pass"], check=True)


def measure(ways: dict[str, Callable[[int, int], None]], number: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {name: {"per_s": [], "cpu_ms": []} for name in ways}
    for way in ways.values():
        way(-100, 5)  # starts what is started once
    for turn in range(rounds):
        for name, way in ways.items():
            started, cpu = time.perf_counter(), cpu_s()
            way(turn * number, number)
            found[name]["per_s"].append(number / (time.perf_counter() - started))
            found[name]["cpu_ms"].append((cpu_s() - cpu) / number * 1000)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if shutil.which("bwrap") is None:
        raise SystemExit(
            "this compares ways to isolate with bubblewrap, which is not installed: apt install bubblewrap"
        )
    cores = len(os.sched_getaffinity(0))
    ways: dict[str, Callable[[int, int], None]] = {
        "isolated, 1 worker": Warm(1, "namespaces"),
        f"isolated, {cores} workers": Warm(cores, "namespaces"),
        "not isolated, 1 worker": Warm(1, "none"),
        FRESH: fresh,
        START: interpreter,
    }
    figures = measure(ways, options.programs, options.rounds)
    close_shared_pools()
    summary = {
        name: {key: {"median": statistics.median(v), "min": min(v), "max": max(v)} for key, v in values.items()}
        for name, values in figures.items()
    }
    if options.json:
        print(
            json.dumps(
                {"ways": summary, "cores": cores, "load": os.getloadavg()[0], "python": platform.python_version()}
            )
        )
        return
    base, start = summary[FRESH]["per_s"]["median"], summary[START]["cpu_ms"]["median"]
    for name, values in summary.items():
        rate, cost = values["per_s"], values["cpu_ms"]
        print(f"{name:26} {rate['median']:5.0f}/s (min {rate['min']:.0f}, max {rate['max']:.0f})", end="")
        print(f" = {rate['median'] / base:.1f}x", end="")
        print(
            ""
            if name == FRESH
            else f"; CPU {cost['median']:.1f} ms (min {cost['min']:.1f}) = {cost['median'] / start:.2f} starts"
        )
    print(f"{cores} cores, load {os.getloadavg()[0]:.1f}, {options.programs} programs a round, {options.rounds} rounds")


if __name__ == "__main__":
    main()
