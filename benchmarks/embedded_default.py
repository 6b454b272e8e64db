"""Does the embedded default learn, and how fast? Runs `oncurve train` for several seeds and prints a table.

python benchmarks/embedded_default.py --seeds 0 1 2
python benchmarks/embedded_default.py --seeds 0 -- --learner.lr 1e-4     any setting after --
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def run(seed: int, words: list[str], folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "oncurve", "train", "--seed", str(seed), "--json", *words]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--run_dir", str(folder / f"seed-{seed}")], stdout=subprocess.PIPE, text=True, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    result["wall_seconds"] = time.perf_counter() - started  # start-up and report included
    return result


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def row(seed: int, result: dict[str, Any]) -> str:
    before, after = result["eval_before"], result["eval_after"]
    cells = [str(seed)]
    for examined in (before, after):
        low, high = examined["interval"]
        cells.append(f"{percent(examined['greedy'])} [{percent(low)}, {percent(high)}]")
        cells.append(f"{percent(examined['pass_at_1'])} / {percent(examined['pass_at_k'])}")
    cells.append(f"{100 * (after['greedy'] - before['greedy']):+.1f}")
    cells.append("yes" if after["interval"][0] > before["interval"][1] else "no")
    cells.append(f"{result['wall_seconds']:.0f}")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("words", nargs="*", help="settings of the run, after --")
    arguments = parser.parse_args()
    print("| seed | greedy before | pass@1 / pass@8 | greedy after | pass@1 / pass@8 | gain | disjoint | wall s |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for seed in arguments.seeds:
            print(row(seed, run(seed, arguments.words, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
