"""The process behind the comparison: it can hang, die or be flooded, and the next verdict is right again."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncurve.sandbox import Limits, Outcome
from oncurve.types import Status, Task
from oncurve.verify import AnswerSettings, AnswerVerifier, Item
from oncurve.verify.answers import Allowance, Cas, Comparer, ComparisonSettings, NoDecisionError, parse
from oncurve.verify.answers.cas import VERDICT_S
from oncurve.verify.answers.nodes import Node, number


@pytest.fixture
def cas() -> Iterator[Cas]:
    owned = Cas()
    yield owned
    owned.close()


def tree(source: str) -> Node:
    answer = parse(source)
    assert answer is not None
    return answer.node


def processes_of(folder: str) -> list[int]:
    """Living processes whose command line names the folder, among the descendants of this process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if folder in line and (parent == os.getpid() or parent in found):
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize(
    ("mode", "sources", "decision"),
    [
        ("equal", ("(x+1)^2", "x^2+2x+1"), True),
        ("equal", ("x^2+1", "x^2-1"), False),
        ("equal", (r"\sqrt{x^2}", "x"), False),
        ("equal", (r"\ln x^2", r"2\ln x"), True),
        ("equal", ("(-1)^n", r"\cos(n\pi)"), True),
        ("equal", ("f(2x)", "f(x+x)"), True),
        ("equal", ("f(x)", "g(x)"), False),
        ("equal", (r"\sum_{k=1}^n k", "n(n+1)/2"), True),
        ("equal", (r"\sum_{k=1}^{10^{12}} k^k", "6"), None),
        ("equal", (r"9^{9^{9^{9^{9}}}}", "6"), None),
        ("proportional", ("2x-4", "x-2"), True),
        ("proportional", ("2-x", "x-2"), False),  # the factor has to be positive
        ("equation", ("y", "2x+1", "4x+2", "2y"), True),
        ("equation", ("xy", "1", "y", r"\frac1x"), True),
        ("equation", ("x^2", "9", "x", "3"), False),
        ("equation", ("x^2+y^2", "1", "y", r"\sqrt{1-x^2}"), False),
        ("equation", ("y", "y", "y", "x"), False),
    ],
)
def test_decisions(cas: Cas, mode: Any, sources: tuple[str, ...], decision: bool | None):
    assert cas.decide(mode, [tree(source) for source in sources]) is decision


def test_a_request_never_holds_text_to_be_read(cas: Cas):
    assert cas.decide("equal", [("sym", "__import__('os').abort()"), number(5)]) is False
    assert cas.decide("equal", [("text", "5"), number(5)]) is None


def test_a_time_out_is_no_verdict_and_the_next_one_is_right():
    with_no_time = Cas(Limits(timeout_s=0.001, start_timeout_s=60))
    settings = ComparisonSettings()
    answer, gold = parse(r"\prod_{k=1}^{4000}\sin(k^9)"), parse(r"\sqrt2")
    assert answer is not None
    assert gold is not None
    with pytest.raises(NoDecisionError) as failure:
        Comparer(settings, with_no_time).is_equal(answer, gold)
    assert failure.value.cause == "timeout"
    with_no_time.close()
    fresh = Cas()
    assert Comparer(settings, fresh).is_equal(parse(r"\sqrt8"), parse(r"2\sqrt2"))  # type: ignore[arg-type]
    fresh.close()


def test_the_verifier_reports_the_cause(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Cas, "ask", lambda *_, **__: Outcome(cause="timeout", detail="no result after 1 s"))
    task = Task(id="t", prompt="p", gold=r"\sqrt2", kind="k", verifier="answer")
    (verdict,) = AnswerVerifier(AnswerSettings()).judge([Item(task=task, text=r"<answer>\frac{2}{\sqrt2}</answer>")])
    assert (verdict.status, verdict.reward, verdict.cause) == (Status.NO_VERDICT, None, "timeout")


def test_a_fault_of_the_verifier_is_recorded_and_not_the_models(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> bool:
        raise IndexError("oops")

    monkeypatch.setattr(Comparer, "is_equal", fail)
    task = Task(id="t", prompt="p", gold="5", kind="k", verifier="answer")
    (verdict,) = AnswerVerifier(AnswerSettings()).judge([Item(task=task, text="<answer>5</answer>")])
    assert (verdict.status, verdict.reward, verdict.cause) == (Status.NO_VERDICT, None, "error")
    assert "IndexError: oops" in verdict.evidence


def test_a_killed_process_costs_no_decision(cas: Cas):
    trees = [tree(r"\sqrt8"), tree(r"2\sqrt2")]
    assert cas.decide("equal", trees) is True
    for pid in processes_of("answers/cas/child.py"):
        os.kill(pid, signal.SIGKILL)
    assert cas.decide("equal", trees) is True


def test_closing_leaves_no_process(cas: Cas):
    before = set(processes_of("answers/cas/child.py"))
    other = Cas()
    other.decide("equal", [tree("x"), tree("x")])
    assert set(processes_of("answers/cas/child.py")) > before
    other.close()
    assert set(processes_of("answers/cas/child.py")) == before


def test_threads_decide_at_the_same_time(cas: Cas):
    results: list[bool | None] = []

    def work(k: int) -> None:
        results.append(cas.decide("equal", [tree(f"\\sqrt{{{k * k * 2}}}"), tree(f"{k}\\sqrt2")]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3, 23)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 20


HOSTILE = {
    "tower": "9^{9^{9^{9}}}",
    "tower of variables": "x^{x^{x^{x^{x}}}}",
    "python tower": "9**9**9",
    "factorial": "(10^{9})!",
    "double factorial": "(10^5)!!",
    "many factorials": "3" + "!" * 200,
    "binomial": r"\binom{10^{9}}{5\cdot 10^{8}}",
    "sum": r"\sum_{k=1}^{10^{12}} k^{k}",
    "nested sums": r"\sum_{a=1}^{4000}\sum_{b=1}^{4000} ab",
    "product": r"\prod_{k=1}^{4999} \sin(k^{9})",
    "divergent sum": r"\sum_{n=1}^\infty \frac{1}{n}",
    "integral": r"\int_0^{\infty} e^{-x^{x^{x}}}\sin(x^{7})\,dx",
    "nested integrals": r"\int_0^1 " * 12 + "x" + " dx" * 12,
    "limit of a sum": r"\lim_{x\to 0}\sum_{k=1}^{4000}\sin(kx)",
    "limits": r"\lim_{n\to\infty}(1+\frac1n)^n" * 16,
    "angle": r"\sin(e^{e^{e^{3}}})",
    "logarithms": r"\log_{2^5}(\log_{2^4}(\log_{2^3}(\log_{2^2}(\log_{2^1} x))))",
    "expansion": "(x+y+z+w+1)^{200}",
    "big power": "(x+1)^{10^{30}}",
    "long root": r"\sqrt{" + "9" * 4000 + "}",
    "long sine": r"\sin(" + "8" * 1900 + r")\sqrt{x+" + "9" * 1900 + "}",
    "many roots": "+".join(rf"\sqrt{{{n}}}" for n in range(2, 300)),
    "deep roots": r"\sqrt{" * 38 + "2" + "}" * 38,
    "functions": r"\sin" * 700 + "x",
    "minus": "-" * 4000 + "x",
    "letters": "x" * 4000,
    "bars": "|" * 1000 + "x",
    "many members": ",".join(rf"\sqrt{{{n}}}" for n in range(2, 70)),
    "list": r"\sqrt2," * 500 + "1",
    "matrices": r"\begin{pmatrix}1&1\\1&0\end{pmatrix}" * 60,
    "wide row": r"\begin{pmatrix}" + "&".join(["x"] * 900) + r"\end{pmatrix}",
    "import": "__import__('os').abort()",
}


@pytest.mark.parametrize("gold", ["7", r"\pi+x", "1,2,3"])
def test_hostile_mathematics_is_bounded(gold: str):
    task = Task(id="t", prompt="p", gold=gold, kind="k", verifier="answer")
    verifier = AnswerVerifier(AnswerSettings(carrier="box"))
    for name, answer in HOSTILE.items():
        for _attempt in range(3):  # another process may hold one of them up, hardly all
            started = time.monotonic()
            (verdict,) = verifier.judge([Item(task=task, text=f"\\boxed{{{answer}}}")])
            if (seconds := time.monotonic() - started) < 2.0:
                break
        assert seconds < 2.0, name
        assert verdict.status is not Status.CORRECT, name
    good = Task(id="t", prompt="p", gold=r"2\sqrt2", kind="k", verifier="answer")
    assert verifier.judge([Item(task=good, text=r"\boxed{\sqrt8}")])[0].status is Status.CORRECT


def test_memory_of_every_process_is_limited(cas: Cas):
    cas.decide("equal", [tree("x"), tree("x")])
    workers = [pid for pid in processes_of("answers/cas/child.py") if is_limited(pid)]
    assert workers
    assert 64 * 1024**2 <= (Cas.limits.memory_bytes or 0) <= 512 * 1024**2


def is_limited(pid: int) -> bool:
    """The kernel ends what asks for more address space than the limit; a supervisor, which runs nothing, has none."""
    (line,) = [line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "address space" in line]
    return line.split()[3:5] == [str(Cas.limits.memory_bytes)] * 2


def test_all_decisions_of_a_verdict_share_their_time():
    # The longest one alone, and then the rest of the allowance: below the two seconds that a verdict may take.
    assert Cas.limits.timeout_s <= VERDICT_S < 2.0


def test_an_allowance_that_is_spent_is_no_decision(cas: Cas):
    allowance = Allowance(cas, seconds=0.05)
    trees = [tree(r"\sum_{k=1}^{300}\sin(kx)"), tree(r"\sum_{k=1}^{300}\sin(kx)+10^{-30}")]
    with pytest.raises(NoDecisionError) as failure:
        all(allowance.decide("equal", trees) is not ... for _ in range(1000))
    assert failure.value.cause == "timeout"
    assert Allowance(cas).decide("equal", [tree(r"\sqrt8"), tree(r"2\sqrt2")]) is True
