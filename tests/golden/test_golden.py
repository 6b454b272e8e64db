"""Golden cases: {id, op, inputs, expected, tolerance}, run in float64 through the functions of the package.

``pytest tests/golden --golden-file FILE`` checks a whole file; an operation without an entry in ``OPERATIONS`` fails
with its name.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.golden.operations import OPERATIONS
from tests.golden.operations.shared import rectangular

KEPT = Path(__file__).with_name("algorithms.json")


def load_cases(path: Path) -> list[dict[str, Any]]:
    try:
        cases = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"--golden-file {path}: {error}. It must be a JSON list of cases.") from error
    required = {"id", "op", "inputs", "expected", "tolerance"}
    for position, case in enumerate(cases):
        if missing := required - set(case):
            raise pytest.UsageError(f"--golden-file {path}: case {position} lacks {', '.join(sorted(missing))}")
    return cases


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--golden-file")
        cases = load_cases(Path(chosen) if chosen else KEPT)
        metafunc.parametrize("case", cases, ids=[case["id"] for case in cases])


def test_golden_case(case: dict[str, Any]) -> None:
    assert case["op"] in OPERATIONS, f"unknown operation {case['op']}"
    inputs = rectangular(case["inputs"])
    found = OPERATIONS[case["op"]](inputs)
    assert list(differences(found, case["expected"], case["tolerance"], inputs.get("mask"))) == []


def test_every_operation_has_a_case() -> None:
    assert set(OPERATIONS) == {case["op"] for case in load_cases(KEPT)}
    assert len(OPERATIONS) == 76


def differences(found: Any, expected: Any, tolerance: float, mask: Any = None, where: str = "") -> Any:
    """Yield a line for every expected entry that is missing or further away than the tolerance."""
    if isinstance(expected, Mapping):
        for key, value in expected.items():
            if not isinstance(found, Mapping) or key not in found:
                yield f"{where}{key}: missing"
            else:
                yield from differences(found[key], value, tolerance, mask, f"{where}{key}")
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        found, expected = at_valid(found, mask), at_valid(expected, mask)
        if len(found) != len(expected):
            yield f"{where}: {len(found)} entries instead of {len(expected)}"
            return
        for index, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            yield from differences(ours, theirs, tolerance, None, f"{where}[{index}]")
    elif isinstance(expected, (int, float)) and isinstance(found, (int, float)):
        if found != expected and not abs(found - expected) <= tolerance:
            yield f"{where}: {found} instead of {expected}"
    elif found is None and isinstance(expected, float) and not math.isfinite(expected):
        return  # ours is None where nothing is defined
    elif found != expected:
        yield f"{where}: {found!r} instead of {expected!r}"


def at_valid(rows: Any, mask: Any) -> Any:
    """Drop the padding of [B, T] rows: it may hold any value."""
    if not mask or not rows or not all(isinstance(row, Sequence) for row in (*rows, *mask)) or len(rows) != len(mask):
        return rows
    return [
        [value for value, valid in zip(row, flags, strict=True) if valid] if len(row) == len(flags) else list(row)
        for row, flags in zip(rows, mask, strict=True)
    ]


def test_rows_of_any_width_are_compared() -> None:
    inputs = rectangular({"mask": [[1, 1], [1]], "logp": [[-1.0, -2.0], [-3.0, 9.0]], "adv": [1.0, 2.0]})
    assert inputs == {"mask": [[1, 1], [1, 0]], "logp": [[-1.0, -2.0], [-3.0, 9.0]], "adv": [1.0, 2.0]}
    assert list(differences([[1.0, 2.0], [3.0, 0.0]], [[1.0, 2.0], [3.0]], 1e-6, inputs["mask"])) == []


def test_the_comparison_sees_every_kind_of_difference() -> None:
    assert list(differences({"a": 1.0}, {"a": 1.0 + 1e-7}, 1e-6)) == []
    assert list(differences({"a": 1.0}, {"a": 1.1}, 1e-6)) == ["a: 1.0 instead of 1.1"]
    assert list(differences({}, {"a": 1.0}, 1e-6)) == ["a: missing"]
    assert list(differences({"a": [1.0]}, {"a": [1.0, 2.0]}, 1e-6)) == ["a: 1 entries instead of 2"]
    assert list(differences({"a": float("nan")}, {"a": 1.0}, 1e-6)) == ["a: nan instead of 1.0"]
    assert list(differences({"a": None}, {"a": 1.0}, 1e-6)) == ["a: None instead of 1.0"]
    assert list(differences({"a": None, "b": None}, {"a": float("nan"), "b": float("inf")}, 1e-6)) == []
    assert list(differences({"a": float("inf")}, {"a": float("inf")}, 1e-6)) == []
    assert list(differences({"a": [[1.0, 7.0]]}, {"a": [[1.0, 9.0]]}, 1e-6, [[1, 0]])) == []
    assert list(differences({"a": [[1.0, 7.0]]}, {"a": [[2.0, 9.0]]}, 1e-6, [[1, 0]])) == [
        "a[0][0]: 1.0 instead of 2.0"
    ]


@pytest.mark.parametrize("content", ["not json", '[{"id": "x"}]'])
def test_a_broken_file_is_one_clear_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "cases.json"
    path.write_text(content)
    with pytest.raises(pytest.UsageError, match=r"cases\.json"):
        load_cases(path)
