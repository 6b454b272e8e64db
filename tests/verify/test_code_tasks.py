"""Where a program stands in a completion, and which tests can be used."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.types import Task
from oncurve.verify.code.extract import extract_program
from oncurve.verify.code.settings import CodeSettings
from oncurve.verify.code.tasks import BadTaskError, Call, Run, read_task

FENCE, TEXT, CONTINUED = CodeSettings(), CodeSettings(carrier="text"), CodeSettings(carrier="continuation")


def program(text: str, language: str = "python", settings: CodeSettings = FENCE) -> str | None:
    return extract_program(text, language, settings.carrier, settings.thinking_tag).program


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("Here:\n```py\nx = 1\n```\nDone.", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```Python\nx = 1\n```", "x = 1\n"),
        ("~~~python\nx = 1\n~~~", "x = 1\n"),
        ("  ```python\n  x = 1\n  ```", "  x = 1\n"),
        ("```python\nx = 1\n```\n```python\nx = 2\n```", "x = 2\n"),
        ("```python\nx = 1\n```\n```bash\npip install x\n```", "x = 1\n"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n"),
        ("<think>```python\nx = 1\n```</think>```python\nx = 2\n```", "x = 2\n"),
        ("a </think> b </think>\n```python\nx = 3\n```", "x = 3\n"),
        ("```python\nx = 1\n```\n<think>more", None),
        ("<think>```python\nx = 1\n```", None),
        ("```python\nx = 1\n", None),
        ("```python\nx = 1\n```\nor\n```python\nx = 2", None),
        ("```python\n\n```", None),
        ("x = 1", None),
        ("Use `x = 1`.", None),
        ("```javascript\nlet x\n```", None),
        ("", None),
    ],
)
def test_the_fence(text: str, found: str | None):
    assert program(text) == found


def test_text_is_all_that_follows_the_thinking():
    assert program("<think>hm</think>x = 1\n", settings=TEXT) == "x = 1\n"
    assert program("x = 1\n", settings=TEXT) == "x = 1\n"
    assert program("  \n", settings=TEXT) is None
    assert program("<think>x = 1", settings=TEXT) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("    return 1\n", "    return 1\n"),
        ("\n    x = (\n1,\n    )\n    return x", "\n    x = (\n"),  # what stands at the left edge is not the body
        ("    return [\n        1,\n]\n", "    return [\n        1,\n]\n"),  # but a bracket that closes
        ("    return 1\n\nprint(f())\n", "    return 1\n\n"),
        ("    return 1\n\ndef g():\n    return 2", "    return 1\n\n"),
        ("    return 1\n```\nThis adds one.", "    return 1\n"),
        ("    return 1\n# and so on", "    return 1\n"),
        (" return 1", " return 1"),
        ("def f():\n    return 1\n\ndef g():\n    return 2\nf()", "def f():\n    return 1\n\ndef g():\n    return 2\n"),
        ("import math\ndef f():\n    return 1\n", "import math\ndef f():\n    return 1\n"),
        ("\n```python\ndef f():\n    return 1\n```\nDone.", "def f():\n    return 1\n"),
        ("```python\ndef f():\n    return 1\n", None),
        ("<think>hm</think>    return 1\n", "    return 1\n"),
        ("<think>    return 1", None),
        (" \n", None),
    ],
)
def test_a_continuation_ends_where_something_else_begins(text: str, found: str | None):
    assert program(text, settings=CONTINUED) == found


@given(st.text(alphabet=" \n()]ab:`#", max_size=40))
def test_a_continuation_is_the_beginning_of_the_text(text: str):
    found = program(text, settings=CONTINUED)
    assert found is None or "`" in text or text.startswith(found.rstrip("\n"))


def test_a_task_says_where_its_programs_stand():
    meta = {"mode": "function", "entry_point": "f", "tests": [{"args": [], "expected": 1}]}
    asked = Task(id="t", prompt="", gold="", kind="k", verifier="code", meta=meta)
    told = Task(id="t", prompt="", gold="", kind="k", verifier="code", meta={**meta, "carrier": "text"})
    assert [read_task(task, CONTINUED).carrier for task in (asked, told)] == ["continuation", "text"]
    wrong = Task(id="t", prompt="", gold="", kind="k", verifier="code", meta={**meta, "carrier": "box"})
    with pytest.raises(BadTaskError, match=r"meta\.carrier must be one of fence, text, continuation, got 'box'"):
        read_task(wrong, FENCE)


@pytest.mark.parametrize(("name", "language"), [("c", "c"), ("C++", "cpp"), ("js", "javascript"), ("", "cpp")])
def test_names_of_languages(name: str, language: str):
    assert program(f"```{name}\nsource\n```", language) == "source\n"
    assert program("```rust\nsource\n```", language) is None


@given(st.text("`~\nab p</think>", max_size=60))
def test_no_text_raises_and_what_is_found_is_in_it(text: str):
    for settings in (FENCE, TEXT):
        found = program(text, settings=settings)
        assert found is None or found.rstrip("\n") in text


def task(**meta: Any) -> Task:
    return Task(id="t", prompt="p", gold="g", kind="k", verifier="code", meta=meta)


CALLS = [{"args": [1, [2]], "expected": 3}]


def test_function_tests_are_trees_of_plain_data():
    read = read_task(task(mode="function", entry_point="f", tests=[{"args": [(1, 2)], "expected": {1: 2}}]), FENCE)
    assert read.cases == (Call(args=[{"t": [1, 2]}], kwargs={}, expected={"d": [[1, 2]]}),)
    assert (read.language, read.timeout_s, read.prefix, read.setup) == ("python", 8.0, "", "")


def test_tests_may_be_json_text():
    read = read_task(task(mode="stdin", tests='[{"input": "1\\n", "output": "2\\n"}]'), FENCE)
    assert read.cases == (Run(input=b"1\n", output="2\n"),)


def test_a_task_overrides_limits_and_rules():
    meta = {"mode": "function", "entry_point": "f", "tests": CALLS}
    read = read_task(task(**meta, timeout_s=2, comparison={"int_equals_float": True}), FENCE)
    assert (read.timeout_s, read.comparison.int_equals_float, read.comparison.tuple_equals_list) == (2.0, True, True)


@pytest.mark.parametrize(
    ("meta", "needle"),
    [
        ({}, "meta.mode"),
        ({"mode": "functions"}, "function, stdin, assert"),
        ({"mode": "function", "tests": CALLS}, "entry_point"),
        ({"mode": "function", "entry_point": "f(x)", "tests": CALLS}, "entry_point"),
        ({"mode": "function", "entry_point": "f"}, "holds no test"),
        ({"mode": "function", "entry_point": "f", "tests": []}, "holds no test"),
        ({"mode": "function", "entry_point": "f", "tests": "["}, "not JSON"),
        ({"mode": "function", "entry_point": "f", "tests": [{"args": [1]}]}, "expected"),
        ({"mode": "function", "entry_point": "f", "tests": [5]}, "meta.tests"),
        ({"mode": "function", "entry_point": "f", "tests": [{"args": [object()], "expected": 1}]}, "object"),
        ({"mode": "function", "entry_point": "f", "tests": [{"args": [], "expected": [float("nan")]}]}, "NaN"),
        ({"mode": "stdin", "tests": [{"input": "1"}]}, "output"),
        ({"mode": "stdin", "tests": [{"input": 1, "output": "1"}]}, "texts"),
        ({"mode": "assert", "entry_point": "f", "tests": "  "}, "meta.tests"),
        ({"mode": "assert", "entry_point": "f", "tests": CALLS}, "meta.tests"),
        ({"mode": "function", "language": "c", "entry_point": "f", "tests": CALLS}, "stdin"),
        ({"mode": "stdin", "language": "rust", "tests": []}, "python, c, cpp, javascript"),
        ({"mode": "function", "entry_point": "f", "tests": CALLS, "timeout_s": True}, "timeout_s"),
        ({"mode": "function", "entry_point": "f", "tests": CALLS, "comparison": {"tolerance": 1}}, "comparison"),
    ],
)
def test_tests_that_cannot_be_used_say_why(meta: dict[str, Any], needle: str):
    with pytest.raises(BadTaskError, match=needle):
        read_task(task(**meta), FENCE)
