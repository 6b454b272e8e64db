"""Log-probs and entropy from logits."""

from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oncurve.algo import entropy_from_logits, token_logprobs_from_logits

logit_rows = st.lists(st.floats(-20, 20), min_size=2, max_size=6)


def test_log_probs_on_paper() -> None:
    # Odds 1 : 3 at temperature 1, 1 : 9 at temperature 1/2.
    logits = torch.tensor([[0.0, log(3)], [0.0, log(3)]], dtype=torch.float64)
    ids = torch.tensor([0, 1])
    assert token_logprobs_from_logits(logits, ids, 1.0).tolist() == pytest.approx([log(1 / 4), log(3 / 4)])
    assert token_logprobs_from_logits(logits, ids, 0.5).tolist() == pytest.approx([log(1 / 10), log(9 / 10)])


@given(logits=logit_rows, temperature=st.floats(0.1, 5))
def test_probabilities_sum_to_one(logits: list[float], temperature: float) -> None:
    row = torch.tensor([logits] * len(logits), dtype=torch.float64)
    found = token_logprobs_from_logits(row, torch.arange(len(logits)), temperature)
    assert found.exp().sum().item() == pytest.approx(1.0)


@given(logits=logit_rows, temperature=st.floats(0.1, 5), shift=st.floats(-50, 50))
def test_entropy_lies_between_none_and_uniform_and_ignores_a_shift(
    logits: list[float], temperature: float, shift: float
) -> None:
    row = torch.tensor(logits, dtype=torch.float64)
    found = entropy_from_logits(row, temperature).item()
    assert -1e-9 <= found <= log(len(logits)) + 1e-9
    assert entropy_from_logits(row + shift, temperature).item() == pytest.approx(found, abs=1e-6)


def test_entropy_on_paper() -> None:
    fair = torch.zeros(4, dtype=torch.float64)
    odds = torch.tensor([0.0, log(3)], dtype=torch.float64)
    assert entropy_from_logits(fair, 1.0).item() == pytest.approx(log(4))
    assert entropy_from_logits(odds, 1.0).item() == pytest.approx(log(4) / 4 + 0.75 * log(4 / 3))
    assert entropy_from_logits(odds * 2, 2.0).item() == pytest.approx(log(4) / 4 + 0.75 * log(4 / 3))


def test_an_impossible_token_adds_nothing_and_breaks_no_gradient() -> None:
    logits = torch.tensor([0.0, 0.0, -torch.inf], dtype=torch.float64, requires_grad=True)
    entropy = entropy_from_logits(logits, 1.0)
    assert entropy.item() == pytest.approx(log(2))
    gradient = torch.autograd.grad(entropy, logits)[0]
    assert gradient.tolist() == pytest.approx([0.0, 0.0, 0.0])


def test_the_mean_of_minus_logprob_is_no_entropy_bonus() -> None:
    logits = torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)
    logprobs = logits.log_softmax(0)
    sampled = (logprobs.exp().detach() * -logprobs).sum()
    assert torch.autograd.grad(sampled, logits)[0].tolist() == pytest.approx([0.0, 0.0, 0.0])
    exact = torch.autograd.grad(entropy_from_logits(logits, 1.0), logits)[0]
    assert exact.abs().max().item() > 0.1


def test_half_precision_is_computed_in_float32() -> None:
    logits = torch.zeros(2, 3, dtype=torch.bfloat16)
    assert token_logprobs_from_logits(logits, torch.tensor([0, 1]), 1.0).dtype is torch.float32
    assert entropy_from_logits(logits, 1.0).dtype is torch.float32


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_that_cannot_divide_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be positive"):
        token_logprobs_from_logits(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64), temperature)
    with pytest.raises(ValueError, match="temperature must be positive"):
        entropy_from_logits(torch.zeros(1, 2), temperature)


def test_ids_must_fit_the_logits() -> None:
    with pytest.raises(ValueError, match=r"\[2, 3\] and \[3\]"):
        token_logprobs_from_logits(torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64), 1.0)
