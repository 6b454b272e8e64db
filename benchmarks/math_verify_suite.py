"""Agreement of the answer verifier with the test suite that Math-Verify ships, in one fixed configuration.

    pip download --no-deps --no-binary :all: math-verify==0.9.0 && tar xf math_verify-0.9.0.tar.gz
    python benchmarks/math_verify_suite.py math_verify-0.9.0/tests          counts, and every row that disagrees
    python benchmarks/math_verify_suite.py math_verify-0.9.0/tests --json   the same as one JSON object

The rows are read out of the test files as literals; nothing of the package is imported or run. A row is a gold, a
prediction and whether they should agree. Every row is judged by the default settings with the box carrier: a
prediction without a box is put into one. The suite itself changes its options from test to test.

A row is disputed when what the suite expects contradicts mathematics, or states an option of the suite (a
rounding, a strictness) rather than a truth. DISPUTED names each of them by gold and prediction, with the reason.
Disputed rows are judged and shown, too.
"""

import argparse
import ast
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from oncurve.types import Status, Task
from oncurve.verify import AnswerSettings, AnswerVerifier, Item

FALSE_CHAIN = "mathematics: the sides of a chain of equations contradict each other"
ROUNDING = "option: the suite rounds to two decimals in this test"
NAMES = "option: the suite holds this pair twice, once expected to agree and once not"
DISPUTED = {
    ("$x = 11$", "$x = 5+5+1 = 7 =11$"): FALSE_CHAIN,
    ("$x = 1/3$", "$x = 5+5+1 = 1/3 \\approx 11$"): FALSE_CHAIN,
    ("$1/3$", "$x=1/3\\approx1.3$"): FALSE_CHAIN,
    ("$1 = \\zzz = x = 0$", "$0$"): FALSE_CHAIN,
    ("$z = 1 + 1 = 2$", "$z = 3+3 = 2$"): FALSE_CHAIN,
    ("$1 - \\frac{1}{\\mathrm{e}}$", "$1 + \\frac{1}{\\mathrm{e}}$"): "mathematics: two different numbers",
    (
        "$(\\begin{pmatrix}\\frac{1}{3}\\\\ \\frac{1}{5} \\end{pmatrix})$",
        "$\\begin{pmatrix}0.33\\\\0.2 \\end{pmatrix}$",
    ): ROUNDING,
    ("$(\\frac{3}{5},\\frac{8}{3}]$", "$(0.6,2.6667]$"): ROUNDING,
    ("$x \\in [-2,7]$", "$-2 \\\\le x \\\\le 7$"): NAMES,
    ("$f(x)$", "$f(y)$"): NAMES,
}
"""Gold and prediction of the disputed rows, with the reason."""


@dataclass(frozen=True)
class Row:
    """One row of the suite."""

    test: str
    gold: str
    prediction: str
    should_agree: bool


def read_suite(folder: Path) -> tuple[list[Row], int]:
    """The rows of a folder of test files, and how many rows are computed and therefore left out."""
    rows: list[Row] = []
    num_computed = 0
    for file in sorted(folder.glob("test_*.py")):
        for function in ast.parse(file.read_text(encoding="utf-8")).body:
            if not isinstance(function, ast.FunctionDef):
                continue
            for case, names in _cases(function):
                try:
                    values = dict(zip(names, ast.literal_eval(case), strict=True))
                except ValueError:
                    num_computed += 1
                    continue
                should_agree = bool(values.get("expected", values.get("result")))
                rows.append(Row(f"{file.stem}.{function.name}", values["gold"], values["pred"], should_agree))
    return rows, num_computed


def _cases(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, list[str]]]:
    """The cases of a test that is parametrised by a gold, a prediction and an expectation."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("parametrize"):
            names = [name.strip() for name in ast.literal_eval(decorator.args[0]).split(",")]
            cases = decorator.args[1]
            if names[:2] == ["gold", "pred"] and isinstance(cases, ast.List):
                yield from ((case, names) for case in cases.elts)


def judge(verifier: AnswerVerifier, row: Row) -> Status:
    """What the answer verifier says of a row; a prediction without a box is put into one."""
    text = row.prediction if "boxed" in row.prediction else f"\\boxed{{{row.prediction}}}"
    task = Task(id="row", prompt="?", gold=row.gold, kind="row", verifier="answer")
    return verifier.judge([Item(task=task, text=text)])[0].status


def measure(rows: list[Row]) -> dict[str, object]:
    """Counts of the undisputed rows, and every row that is disputed or disagrees."""
    verifier = AnswerVerifier(AnswerSettings(carrier="box"))
    counts: Counter[str] = Counter()
    shown: list[dict[str, object]] = []
    for row in rows:
        status = judge(verifier, row)
        reason = DISPUTED.get((row.gold, row.prediction), "")
        is_same = status is (Status.CORRECT if row.should_agree else Status.WRONG)
        outcome = "agrees" if is_same else "no verdict" if status is Status.NO_VERDICT else f"is {status}"
        kind = "disputed" if reason else "agree" if is_same else f"undisputed: {outcome}"
        counts[kind] += 1
        if reason or not is_same:
            shown.append({"kind": kind, "outcome": outcome, "reason": reason, **asdict(row)})
    return {"rows": len(rows), "counts": dict(counts), "shown": shown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder with the test files")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    rows, num_computed = read_suite(options.folder)
    if not rows:
        raise SystemExit(
            f"{options.folder} holds no test_*.py with rows. Give the folder tests/ of the unpacked archive."
        )
    found = measure(rows) | {"left out, since the suite computes them": num_computed}
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for row in found.pop("shown"):  # type: ignore[attr-defined]
        print(f"{row['kind']} ({row['outcome']}; {row['reason'] or 'no reason'}), {row['test']}")
        print(f"    gold {row['gold'][-160:]!r}, should agree: {row['should_agree']}")
        print(f"    prediction {row['prediction'][-160:]!r}")
    print(found)


if __name__ == "__main__":
    main()
