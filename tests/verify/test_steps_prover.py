"""A prover behind the step protocol: a real process that plays the prover, and Lean itself where it is installed."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from oncurve.sandbox import SandboxSettings, close_shared_pools
from oncurve.types import ConfigError, Status, Task, Verdict
from oncurve.verify import Item, check_golds
from oncurve.verify.registry import build_verifier
from oncurve.verify.steps import ProverChecker, ProverSettings, ProverVerifier, StepStatus, error_rates, labelled_rows
from oncurve.verify.steps.lean import FORBIDDEN_WORDS, axioms_of, forbidden_in
from oncurve.verify.steps.prover import find_proof, write_file

FAKE = r"""#!/bin/sh
# Plays a prover: reads the file, does what the proof says, reports on the theorem that the last line asks about.
name=$(sed -n 's/^#print axioms //p' "$1")
case "$(cat "$1")" in
  *PLAY_REFUSE*) echo "Proof.lean:3:4: warning: unused"; echo "Proof.lean:3:4: error: unsolved goals"; exit 1;;
  *PLAY_HANG*) sleep 60;;
  *PLAY_GAP*) echo "'$name' depends on axioms: [propext,"; echo " sorryAx]"; exit 0;;
  *PLAY_SILENT*) exit 0;;
  *PLAY_TWICE*) echo "'$name' does not depend on any axioms";;
  *PLAY_OTHER*) echo "'other' does not depend on any axioms"; exit 0;;
  *PLAY_CRASH*) kill -SEGV $$;;
  *PLAY_FLOOD*) yes;;
esac
echo "'$name' does not depend on any axioms"
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory(dir="/var/tmp") as name:  # a program has a /tmp of its own
        folder = Path(name)
        folder.chmod(0o755)  # programs run as another user
        (folder / "fake").write_text(FAKE)
        (folder / "fake").chmod(0o755)
        yield folder
        close_shared_pools()


def settings(folder: Path, **options: Any) -> ProverSettings:
    sandbox = SandboxSettings(read_only_paths=(folder,), num_workers=1, max_output_bytes=100_000)
    return ProverSettings(command=(str(folder / "fake"), "{file}"), sandbox=sandbox, **options)


def task(**meta: Any) -> Task:
    return Task(id="t", prompt="p", gold="rfl", kind="k", verifier="prover", meta=meta)


def judge(folder: Path, *proofs: str, **options: Any) -> list[Verdict]:
    items = [Item(task=task(statement=": 2 + 2 = 4"), text=f"```lean\n{proof}\n```") for proof in proofs]
    return ProverVerifier(settings(folder, **options)).judge(items)


def test_the_report_decides(folder: Path):
    proved, refused, gap = judge(folder, "rfl", "PLAY_REFUSE", "PLAY_GAP")
    assert (proved.status, proved.reward) == (Status.CORRECT, 1.0)
    assert proved.evidence == "fallible prover check: 1 of 1 steps right"
    assert (refused.status, refused.reward) == (Status.WRONG, 0.0)
    assert "the prover refuses it: Proof.lean:3:4: error: unsolved goals" in refused.evidence
    assert gap.status is Status.WRONG
    assert "it rests on sorryAx" in gap.evidence


def test_what_is_no_report_is_no_verdict(folder: Path):
    verdicts = judge(folder, "PLAY_SILENT", "PLAY_TWICE", "PLAY_OTHER", "PLAY_CRASH", "PLAY_FLOOD")
    assert [verdict.reward for verdict in verdicts] == [None] * 5
    assert [verdict.cause for verdict in verdicts] == ["bad_report", "bad_report", "bad_report", "crash", "limit"]


def test_a_prover_that_hangs_is_ended(folder: Path):
    hung, next_one = judge(folder, "PLAY_HANG", "rfl", timeout_s=1.0)
    assert (hung.reward, hung.cause) == (None, "timeout")
    assert next_one.status is Status.CORRECT


def test_what_is_refused_is_never_run(folder: Path):
    (sorry,) = judge(folder, "by\n  sorry -- PLAY_HANG", timeout_s=60.0)
    assert (sorry.status, sorry.reward) == (Status.WRONG, 0.0)
    assert sorry.evidence.endswith("it contains sorry")


def test_the_exit_status_alone_on_request(folder: Path):
    silent, refused = judge(folder, "PLAY_SILENT", "PLAY_REFUSE", report="exit_status")
    assert (silent.reward, refused.reward) == (1.0, 0.0)


def test_allowed_axioms_are_a_setting(folder: Path):
    (gap,) = judge(folder, "PLAY_GAP", allowed_axioms=("propext", "sorryAx"))
    assert gap.reward == 1.0


def test_no_proof_and_no_statement(folder: Path):
    verifier = ProverVerifier(settings(folder))
    item = Item(task=task(), text="```\nrfl\n```")
    assert verifier.judge([item])[0].cause == "bad_gold"
    verdicts = verifier.judge(
        [Item(task=task(statement=": True"), text=text) for text in ("trivial", "<think>```\nx\n```")]
    )
    assert [verdict.reward for verdict in verdicts] == [0.0, 0.0]


def test_golds_are_checked_by_the_prover(folder: Path):
    verifier = ProverVerifier(settings(folder))
    (verdict,) = verifier.judge([Item(task=task(statement=": True"), text=verifier.state_gold(task()))])
    assert verdict.status is Status.CORRECT


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("no-such-prover", "{file}"), "there is no prover 'no-such-prover' on PATH. Install it"),
        (("{folder}/fake", "{file}"), "is not to be seen in the sandbox"),
    ],
)
def test_an_absent_prover_is_a_clear_error(folder: Path, command: tuple[str, ...], message: str):
    words = tuple(word.replace("{folder}", str(folder)) for word in command)
    with pytest.raises(ConfigError, match=message):
        ProverVerifier(ProverSettings(command=words))


def test_the_last_block_outside_the_thinking_is_the_proof():
    text = "<think>```lean\nno\n```</think>```lean\nfirst\n```\nthen\n```\nby\n  simp\n```\n"
    assert find_proof(text, ProverSettings()) == "by\n  simp"
    assert find_proof(text, ProverSettings(carrier="text")) == text.rpartition("</think>")[2].strip()
    assert find_proof("```lean\n\n```", ProverSettings()) is None


def test_fields_are_filled_once():
    made = write_file(
        task(statement=": {proof}", preamble="{name}"),
        "{name} {statement}",
        "{preamble}|{name}|{statement}|{proof}",
        "n",
    )
    assert made == "{name}|n|: {proof}|{name} {statement}"
    with pytest.raises(ValueError, match=r"the template lacks \{name\}, \{statement\}"):
        ProverSettings(template="{proof}")


@pytest.mark.parametrize(
    ("proof", "found"),
    [
        ("by simp [Nat.add_comm]", []),
        ("Nat.sorry_free h", []),  # whole words
        ("by exact Lean.foo", ["Lean"]),
        ("by sorry -- sorry", ["sorry"]),
        ("rfl\n#reduce 1", ["#"]),
        ("@[simp] rfl", ["@["]),
        ("«x»", ["«", "»"]),
        ("by decide +native", ["native"]),
    ],
)
def test_forbidden_words(proof: str, found: list[str]):
    assert forbidden_in(proof, FORBIDDEN_WORDS) == found


@pytest.mark.parametrize(
    ("output", "axioms"),
    [
        ("'n' does not depend on any axioms", []),
        ("A.lean:1:0: info: 'n' depends on axioms: [propext,\n Classical.choice]\n", ["propext", "Classical.choice"]),
        ("'nn' does not depend on any axioms", None),
        ("", None),
        ("'n' does not depend on any axioms\n'n' depends on axioms: [sorryAx]", None),
    ],
)
def test_the_report_of_lean_is_read_strictly(output: str, axioms: list[str] | None):
    assert axioms_of(output, "n") == axioms


def test_no_trick_of_the_labelled_proofs_reaches_the_prover():
    rows = labelled_rows("prover")
    refused = {
        row.id for row in rows if forbidden_in(find_proof(row.item.text, ProverSettings()) or "", FORBIDDEN_WORDS)
    }
    assert not any(row.label is StepStatus.RIGHT for row in rows if row.id in refused)
    assert len(refused) == 14
    assert sum(row.label is StepStatus.RIGHT for row in rows) == 14


@pytest.mark.skipif(shutil.which("lean") is None, reason="needs Lean 4 on PATH, which is optional")
def test_lean_keeps_its_error_rates():
    toolchain = Path(str(shutil.which("lean"))).resolve().parents[1]
    options = SandboxSettings(read_only_paths=(toolchain,), memory_bytes=8 * 1024**3)
    rates = error_rates(ProverChecker(ProverSettings(sandbox=options)))
    assert (rates.false_accepts, rates.false_refusals, rates.undecided, rates.failed) == ((), (), (), ())


def test_it_is_in_the_registry(folder: Path):
    given = settings(folder).model_dump()
    assert build_verifier("prover", given).name == "prover"
    assert check_golds([]) == []
