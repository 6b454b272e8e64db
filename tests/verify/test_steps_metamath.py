"""A real prover behind the prover verifier: Metamath, where it is installed (``apt install metamath``)."""

import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncurve.sandbox import close_shared_pools
from oncurve.types import Status, Task, Verdict
from oncurve.verify import Item
from oncurve.verify.registry import build_verifier

EXAMPLE = Path(__file__).parents[2] / "examples" / "metamath.toml"
FOUND = shutil.which("metamath")
pytestmark = pytest.mark.skipif(FOUND is None, reason="needs metamath on PATH, which is optional")

AXIOMS = """
$c ( ) -> wff |- $.
$v ph ps ch $.
wph $f wff ph $. wps $f wff ps $. wch $f wff ch $.
wi $a wff ( ph -> ps ) $.
${ mp.1 $e |- ph $. mp.2 $e |- ( ph -> ps ) $. ax-mp $a |- ps $. $}
ax-1 $a |- ( ph -> ( ps -> ph ) ) $.
ax-2 $a |- ( ( ph -> ( ps -> ch ) ) -> ( ( ph -> ps ) -> ( ph -> ch ) ) ) $.
"""
IDENTITY = """
wph wph wph wi wi wph wph wi wph wph ax-1 wph wph wph wi wph wi wi wph wph wph wi wi wph wph wi wi
wph wph wph wi ax-1 wph wph wph wi wph ax-2 ax-mp ax-mp
"""
ACCEPTED = "All proofs in the database were verified in 0.00 s."


@pytest.fixture(scope="module", autouse=True)
def pools() -> Iterator[None]:
    yield
    close_shared_pools()


def judge(*proofs: str, statement: str = "|- ( ph -> ph )") -> list[Verdict]:
    options = tomllib.loads(EXAMPLE.read_text())["reward"]["components"]["correct"]["options"]["prover"]
    options["command"][0] = str(FOUND)
    options["sandbox"] = {"read_only_paths": [str(Path(str(FOUND)).parent)], "num_workers": 1}
    verifier = build_verifier("prover", options)
    meta = {"statement": statement, "preamble": AXIOMS}
    task = Task(id="identity", prompt="Prove it.", gold=IDENTITY, kind="proof", verifier="prover", meta=meta)
    return verifier.judge([Item(task=task, text=f"So:\n```\n{proof}\n```") for proof in proofs])


def test_a_proof_is_right_and_a_changed_one_is_not():
    whole, shorter, other = judge(IDENTITY, IDENTITY.replace("ax-mp ax-mp", "ax-mp"), IDENTITY.replace("ax-2", "ax-1"))
    assert (whole.status, whole.reward) == (Status.CORRECT, 1.0)
    assert [verdict.status for verdict in (shorter, other)] == [Status.WRONG] * 2
    assert "the prover says ?Error" in shorter.evidence


def test_the_proof_of_something_else_is_wrong():
    (verdict,) = judge(IDENTITY, statement="|- ( ph -> ps )")
    assert verdict.status is Status.WRONG


@pytest.mark.parametrize(
    "attack",
    [
        "?",  # a gap, which the prover itself only warns of
        "",
        "ax-false",
        f"{IDENTITY} $. ax-false $a |- ph $. other $p |- ph $= wph ax-false",  # an axiom of one's own
        "$[ /etc/passwd $]",
        f"$( {ACCEPTED} $) ?",
        f"\n{ACCEPTED}\n",  # repeated in the error message
        f"ax-mp\n{ACCEPTED}\nax-mp",
    ],
)
def test_nothing_but_a_proof_is_paid(attack: str):
    (verdict,) = judge(attack)
    assert verdict.status is Status.WRONG
