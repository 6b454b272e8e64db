"""The corpus of reward-doctor: cases of another project, none of which was chosen by us."""

import pytest

from oncurve.types import Status, Task
from oncurve.verify import AnswerSettings, AnswerVerifier, Item

corpus = pytest.importorskip("reward_doctor.corpus", reason="reward-doctor is not installed: pip install reward-doctor")


def test_no_case_is_wrongly_accepted_and_none_wrongly_refused():
    """One configuration: the answer in prose, in a box or behind ####. Contested cases are judged, too."""
    verifier = AnswerVerifier(AnswerSettings(carrier="text"))
    wrong: list[tuple[str, str]] = []
    cases = corpus.load(include_contested=True)
    for case in cases:
        task = Task(id=case.id, prompt=case.prompt or "?", gold=case.reference, kind="case", verifier="answer")
        (verdict,) = verifier.judge([Item(task=task, text=case.completion)])
        if verdict.status is not (Status.CORRECT if case.expect else Status.WRONG):
            wrong.append((case.id, verdict.evidence))
    assert wrong == []
    assert len(cases) >= 87
