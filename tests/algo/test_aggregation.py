"""Weights of sequences: whole-step denominators."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oncurve.algo import sequence_weights, token_weights

LENGTHS = torch.tensor([1, 3, 4])
GROUPS = torch.tensor([7, 2, 7])
AGGREGATIONS = ("seq-mean-token-mean", "token-mean", "seq-mean-token-sum", "constant", "prompt-mean")


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("seq-mean-token-mean", [1 / 3, 1 / 9, 1 / 12]),
        ("token-mean", [1 / 8, 1 / 8, 1 / 8]),
        ("seq-mean-token-sum", [1 / 3, 1 / 3, 1 / 3]),
        ("constant", [1 / 30, 1 / 30, 1 / 30]),
        ("prompt-mean", [1 / 10, 1 / 6, 1 / 10]),  # two prompts with 5 and 3 tokens
    ],
)
def test_weights_on_paper(aggregation: str, expected: list[float]) -> None:
    found = sequence_weights(LENGTHS, GROUPS, aggregation, max_tokens=10)  # type: ignore[arg-type]
    assert found.dtype is torch.float64
    assert found.tolist() == pytest.approx(expected, rel=1e-12)


def test_a_run_of_one_token_completions_is_fine() -> None:
    assert sequence_weights(torch.tensor([1, 1]), torch.tensor([0, 0]), "constant", max_tokens=1).tolist() == [0.5, 0.5]


def test_the_aggregation_decides_the_sign() -> None:
    # |y| = 1 and 3, loss +1 and -1 a token: (1/1 - 3/3) / 2 or (1 - 3) / 4.
    losses = torch.tensor([[1.0, 0.0, 0.0], [-1.0, -1.0, -1.0]])
    mask = torch.tensor([[True, False, False], [True, True, True]])

    def loss(aggregation: str) -> float:
        weights = sequence_weights(mask.sum(dim=1), torch.arange(2), aggregation, max_tokens=3)  # type: ignore[arg-type]
        return (token_weights(weights, mask) * losses).sum().item()

    assert loss("seq-mean-token-mean") == pytest.approx(0.0, abs=1e-7)
    assert loss("token-mean") == -0.5


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=8), data=st.data())
def test_a_loss_of_one_a_token_has_the_mean_one(lengths: list[int], data: st.DataObject) -> None:
    groups = data.draw(st.lists(st.integers(0, 3), min_size=len(lengths), max_size=len(lengths)))
    sizes = torch.tensor(lengths)
    for aggregation in ("seq-mean-token-mean", "token-mean", "prompt-mean"):
        weights = sequence_weights(sizes, torch.tensor(groups), aggregation, max_tokens=50)  # type: ignore[arg-type]
        assert (weights * sizes).sum().item() == pytest.approx(1.0)
    total = sequence_weights(sizes, torch.tensor(groups), "seq-mean-token-sum", max_tokens=50)
    constant = sequence_weights(sizes, torch.tensor(groups), "constant", max_tokens=50)
    assert total.sum().item() == pytest.approx(1.0)
    assert torch.allclose(constant * 50, total)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("seq-mean-token-mean", [1 / 2, 1 / 8]),  # B stays 2
        ("token-mean", [1 / 4, 1 / 4]),
        ("seq-mean-token-sum", [1 / 2, 1 / 2]),
        ("constant", [1 / 20, 1 / 20]),
        ("prompt-mean", [1 / 2, 1 / 8]),  # N stays 2
    ],
)
def test_a_sequence_without_trained_tokens_keeps_its_seat(aggregation: str, expected: list[float]) -> None:
    found = sequence_weights(torch.tensor([0, 4]), torch.tensor([0, 1]), aggregation, max_tokens=10)  # type: ignore[arg-type]
    assert found.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_trained_at_all_stays_finite(aggregation: str) -> None:
    found = sequence_weights(torch.tensor([0, 0]), torch.tensor([0, 0]), aggregation, max_tokens=10)  # type: ignore[arg-type]
    assert bool(torch.isfinite(found).all())


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_order_and_the_names_of_groups_do_not_matter(aggregation: str) -> None:
    found = sequence_weights(LENGTHS, GROUPS, aggregation, max_tokens=10)  # type: ignore[arg-type]
    turned = sequence_weights(LENGTHS.flip(0), torch.tensor([0, 5, 0]), aggregation, max_tokens=10)  # type: ignore[arg-type]
    assert torch.allclose(found.flip(0), turned)


def test_token_weights_are_zero_outside_the_mask() -> None:
    mask = torch.tensor([[True, False, True], [False, True, False]])
    found = token_weights(torch.tensor([2.0, 3.0]), mask)
    assert found.tolist() == [[2.0, 0.0, 2.0], [0.0, 3.0, 0.0]]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="non-empty"):
        sequence_weights(torch.tensor([]), torch.tensor([]), "token-mean", max_tokens=1)
    with pytest.raises(ValueError, match="one non-empty"):
        sequence_weights(LENGTHS, torch.tensor([1]), "token-mean", max_tokens=1)
    with pytest.raises(ValueError, match="non-empty"):
        sequence_weights(torch.ones(2, 2), torch.ones(2, 2), "token-mean", max_tokens=1)
    with pytest.raises(ValueError, match="max_tokens must be at least 1, got 0"):
        sequence_weights(LENGTHS, GROUPS, "constant", max_tokens=0)
    with pytest.raises(ValueError, match="weights must be"):
        token_weights(torch.ones(3), torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="weights must be"):
        token_weights(torch.ones(3), torch.ones(3, dtype=torch.bool))
