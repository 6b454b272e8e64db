"""Statements in prose that offer more than one value."""

import pytest

from oncurve.verify.answers.sentence import candidates


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 41 or the answer is 42.",
        "The answer is 41 The answer is 42",
        "The answer is 41, or maybe the answer is 42",
        "答案是41或答案是42",
        "The answer is int('42')",
    ],
)
def test_statements_within_a_statement_that_offer_another_value_state_none(text):
    assert "42" not in candidates(text)
    assert "42" in candidates("Final Answer: The answer is 42")
