"""``oncurve verify {math,code,format} CASES.jsonl``: rows in, one JSON object a row out, in order."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FIELDS = ["id", "status", "reward", "evidence", "cause", "seconds"]
ROWS: dict[str, list[tuple[dict[str, Any], str]]] = {
    "math": [
        ({"id": "a", "gold": "1/2", "completion": r"\boxed{0.5}"}, "correct"),
        ({"id": "b", "gold": "1/2", "completion_parts": [["so ", 2], [r"\boxed{2}", 1]]}, "wrong"),
        ({"id": "c", "gold": "", "completion": r"\boxed{2}", "expect": False, "source": "x"}, "no_verdict"),
        ({"id": "d", "gold": "3", "completion": "#### 3", "carrier": "hash"}, "correct"),
    ],
    "format": [
        ({"id": "é", "spec": {"type": "length", "unit": "words", "max": 1}, "completion": "one"}, "correct"),
        ({"spec": {"type": "length", "unit": "words", "max": 1}, "completion_parts": [["one ", 2]]}, "wrong"),
        ({"spec": {"type": "json", "schema": {"type": "null"}}, "completion": "null"}, "correct"),
        ({"spec": {"type": "sonnet"}, "completion": "x"}, "no_verdict"),
    ],
}


def oncurve(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "oncurve", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=240)


def write(folder: Path, rows: list[dict[str, Any]], name: str = "cases.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


@pytest.mark.parametrize("kind", ROWS)
def test_rows_come_out_in_order_with_the_fields_that_are_promised(tmp_path: Path, kind: str) -> None:
    done = oncurve("verify", kind, write(tmp_path, [row for row, _ in ROWS[kind]]), "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["status"] for row in found] == [status for _, status in ROWS[kind]]
    assert [row["id"] for row in found] == [row.get("id", f"row-{n}") for n, (row, _) in enumerate(ROWS[kind], 1)]
    for row in found:
        assert list(row) == FIELDS
        assert row["reward"] == {"correct": 1.0, "wrong": 0.0, "no_verdict": None}[row["status"]]
        assert (row["cause"] is None) == (row["status"] != "no_verdict")
        assert row["seconds"] >= 0


def test_without_json_it_is_a_table(tmp_path: Path) -> None:
    done = oncurve("verify", "format", write(tmp_path, [ROWS["format"][0][0]]))
    assert done.stdout.split() == ["correct", "é", "1", "words,", "accepted", "0", "to", "1"]


def test_judging_cases_imports_no_torch(tmp_path: Path) -> None:
    math, form = (write(tmp_path, [row for row, _ in rows], kind) for kind, rows in ROWS.items())
    source = (
        "import sys; from oncurve.cli.cases import judge_kind\n"
        f"rows = [*judge_kind('math', [{str(math)!r}]), *judge_kind('format', [{str(form)!r}])]\n"
        "import oncurve.verify.code.cases\n"
        "print(len(rows), [name for name in ('torch', 'transformers', 'sympy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout.strip() == "8 []", done.stderr


GOOD = '{"gold": "1", "completion": "x", "spec": {}, "solution": "", "mode": "stdin", "tests": []}'


@pytest.mark.parametrize(
    ("kind", "line", "message"),
    [
        ("math", "{", "not JSON"),
        ("format", "[1]", "a line holds one JSON object, got list"),
        ("math", '{"completion": "x"}', "gold is missing"),
        ("math", '{"gold": "1"}', "completion is missing"),
        ("math", '{"gold": null, "completion": "x"}', "gold must be text or a number, got null"),
        ("math", '{"gold": [1, 2], "completion": "x"}', "gold is a list, which does not say how it is meant"),
        ("math", '{"gold": "1", "completion": 1}', "completion must be a string, got 1"),
        ("math", '{"gold": "1", "completion": "x", "carrier": "bag"}', "carrier"),
        ("math", '{"gold": "1", "completion": "x", "comparison": {"unti": "cm"}}', "comparison"),
        ("format", '{"completion": "x"}', "spec is missing"),
        ("format", '{"spec": {}, "completion_parts": [["x"]]}', 'completion_parts must be a list of ["text", repeat]'),
        ("code", '{"mode": "stdin", "tests": []}', "solution is missing"),
        ("code", '{"solution": "", "tests": []}', "mode is missing"),
        ("code", '{"solution": 1, "mode": "stdin", "tests": []}', "solution must be a string"),
    ],
)
def test_a_broken_row_is_one_error_before_anything_is_judged(
    tmp_path: Path, kind: str, line: str, message: str
) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(f"{GOOD}\n\n{line}\n")
    done = oncurve("verify", kind, path, "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{path}, line 3: " in done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["math"], "takes one file of cases, got none"),
        (["format", "a", "b"], "takes one file of cases, got a b"),
        (["code", "--jsno"], "takes one file of cases, got --jsno"),
        (["math", "missing.jsonl"], "there is no file missing.jsonl."),
        (["math", "src"], "src is a folder, and one file is read. Expected one JSON object a line"),
        (["math", "/dev/null"], "holds no case"),
    ],
)
def test_what_is_no_file_of_cases(words: list[str], message: str) -> None:
    done = oncurve("verify", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr


def test_a_file_of_completions_named_like_a_kind_is_reached_by_its_path(tmp_path: Path) -> None:
    write(tmp_path, [{"completion": "<answer>1</answer>", "gold": "1"}], "math")
    done = oncurve("verify", "./math", cwd=tmp_path)
    assert json.loads(done.stdout)["status"] == "correct"
    assert json.loads(oncurve("verify", "./math", "--json", cwd=tmp_path).stdout)["status"] == "correct"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"gold": "1"}\n\xff', "line 2: byte 0xff is no text in UTF-8. Text in another encoding becomes UTF-8 with"),
        (b"PAR1\xff", "line 1: byte 0xff is no text in UTF-8. It is a parquet file"),
        (b"\x1f\x8b\x08", "line 1: byte 0x8b is no text in UTF-8. It is compressed: unpack it with gunzip."),
        ("é".encode("utf-16"), "It is UTF-16: iconv -f UTF-16 -t UTF-8"),
    ],
)
@pytest.mark.parametrize("words", [["math"], []], ids=["cases", "completions"])
def test_what_is_no_text_is_told_with_its_place(tmp_path: Path, words: list[str], data: bytes, message: str) -> None:
    path = tmp_path / "any.jsonl"
    path.write_bytes(data)
    done = oncurve("verify", *words, path)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert str(path) in done.stderr
    assert "Expected one JSON object a line" in done.stderr


def test_a_number_is_a_gold_as_it_is_written(tmp_path: Path) -> None:
    # 0.1 + 10**-20 is not 0.1, and no float tells them apart.
    golds = ["1", "-2", "0.50", "1e-3", "0.10000000000000000001"]
    answers = ["1", "-2", "1/2", "0.001", "0.1"]
    path = tmp_path / "numbers.jsonl"
    rows = [
        f'{{"gold": {g}, "completion": "<answer>{a}</answer>\\\\boxed{{{a}}}"}}'
        for g, a in zip(golds, answers, strict=True)
    ]
    path.write_text("\n".join(rows))
    for words in (["verify", path], ["verify", "math", path, "--json"]):
        found = [json.loads(line)["status"] for line in oncurve(*words).stdout.splitlines()]
        assert found == ["correct", "correct", "correct", "correct", "wrong"]


def test_help_says_where_each_reads_its_answers() -> None:
    text = " ".join(oncurve("verify", "--help").stdout.split())
    assert "Its answers are read from <answer>...</answer>" in text
    assert r"Answers of math are read from \boxed{...}" in text
