"""Token credit: advantages and value targets from a critic's values."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from oncurve.algo import generalized_advantages, length_adaptive_lambda, rewards_to_go

NAN = float("nan")
NUMBERS = st.floats(-3, 3)


def real(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def everywhere(values: Tensor) -> Tensor:
    return torch.ones_like(values, dtype=torch.bool)


def test_two_sequences_on_paper() -> None:
    # Row 1, from the right: A3 = 1 - .8 = .2; A2 = (.8 - .6) + .95 * .2 = .39; A1 = (.6 - .5) + .95 * .39 = .4705.
    # Row 2: A2 = 0 - .1; A1 = (.1 - .4) - .95 * .1 = -.395. Returns are A + V.
    found = generalized_advantages(
        real([[0, 0, 1], [0, 0, NAN]]),
        real([[0.5, 0.6, 0.8], [0.4, 0.1, NAN]]),
        torch.tensor([[True, True, True], [True, True, False]]),
        gamma=1.0,
        lam=0.95,
    )
    assert found.advantages.flatten().tolist() == pytest.approx([0.4705, 0.39, 0.2, -0.395, -0.1, 0.0])
    assert found.returns.flatten().tolist() == pytest.approx([0.9705, 0.99, 1.0, 0.005, 0.0, 0.0])


def test_gamma_discounts_the_next_value_and_the_next_advantage() -> None:
    # delta 2 = 2 - 6 = -4; delta 1 = 1 + 6/2 - 5 = -1; A1 = -1 + 1/2 * 1/4 * -4 = -1.5.
    rewards, values = real([[1, 2]]), real([[5, 6]])
    found = generalized_advantages(rewards, values, everywhere(values), gamma=0.5, lam=0.25)
    assert found.advantages.tolist() == [[-1.5, -4.0]]
    assert found.returns.tolist() == [[3.5, 2.0]]


def test_length_adaptive_credit_on_paper() -> None:
    # alpha 1/2: lengths 4 and 2 give 1 - 1/2 and 1 - 1 = 0. Row 1: .1; -.1+.2 = .1 and +.1/2 = .15; .2 + .15/2 = .275;
    # .1 + .275/2 = .2375. Row 2 at lam 0: .1 - .4 and 0 - .1. Targets at lam 1 are the rewards still to come.
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    lam = length_adaptive_lambda(mask.sum(dim=1), alpha=0.5)
    assert lam.tolist() == [0.5, 0.0]
    found = generalized_advantages(
        real([[0, 0, 0, 1], [0, 0, NAN, NAN]]),
        real([[0.5, 0.6, 0.8, 0.9], [0.4, 0.1, NAN, NAN]]),
        mask,
        gamma=1.0,
        lam=lam,
        target_lam=1.0,
    )
    expected = [0.2375, 0.275, 0.15, 0.1, -0.3, -0.1, 0.0, 0.0]
    assert found.advantages.flatten().tolist() == pytest.approx(expected)
    assert found.returns.flatten().tolist() == pytest.approx([1, 1, 1, 1, 0, 0, 0, 0])


def test_the_adaptive_lambda_starts_at_zero() -> None:
    found = length_adaptive_lambda(torch.tensor([0, 1, 20, 40, 2000]), alpha=0.05)
    assert found.tolist() == pytest.approx([0.0, 0.0, 0.0, 0.5, 0.99])


TOKENS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6)


@given(TOKENS, st.floats(0, 1), st.floats(0, 1), st.data())
def test_skipped_positions_are_as_if_they_were_not_there(tokens, gamma, lam, data) -> None:
    garbage = st.lists(st.sampled_from([NAN, float("inf"), -7.0]), max_size=2)
    spread: list[tuple[float, float, bool]] = []
    for reward, value in tokens:
        spread += [(junk, junk, False) for junk in data.draw(garbage)]
        spread.append((reward, value, True))
    spread += [(junk, junk, False) for junk in data.draw(garbage)]
    rewards, values, flags = (list(column) for column in zip(*spread, strict=True))
    mask = torch.tensor([flags])
    found = generalized_advantages(real([rewards]), real([values]), mask, gamma=gamma, lam=lam)
    packed = real([[reward for reward, _ in tokens]]), real([[value for _, value in tokens]])
    expected = generalized_advantages(*packed, everywhere(packed[0]), gamma=gamma, lam=lam)
    assert torch.equal(found.advantages[mask], expected.advantages[0])
    assert torch.equal(found.returns[mask], expected.returns[0])
    assert not found.advantages[~mask].any()
    assert not found.returns[~mask].any()


@given(TOKENS)
def test_without_discount_the_returns_are_the_rewards_still_to_come(tokens) -> None:
    rewards, values = real([[reward for reward, _ in tokens]]), real([[value for _, value in tokens]])
    found = generalized_advantages(rewards, values, everywhere(values), gamma=1.0, lam=1.0)
    assert torch.allclose(found.returns, rewards_to_go(rewards), atol=1e-9)
    assert torch.allclose(found.advantages, rewards_to_go(rewards) - values, atol=1e-9)


@given(TOKENS, st.floats(0, 1))
def test_with_lambda_zero_the_next_value_is_trusted(tokens, gamma) -> None:
    rewards, values = real([[reward for reward, _ in tokens]]), real([[value for _, value in tokens]])
    found = generalized_advantages(rewards, values, everywhere(values), gamma=gamma, lam=0.0)
    later = torch.cat([values[:, 1:], torch.zeros(1, 1)], dim=1)
    assert torch.allclose(found.advantages, rewards + gamma * later - values, atol=1e-12)


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3))
def test_one_lambda_a_sequence_is_that_of_its_own_row(lams) -> None:
    rewards, values = real([[1, 2], [0, 1], [3, 0]]), real([[0.5, 1], [2, 0], [1, 1]])
    together = generalized_advantages(rewards, values, everywhere(values), gamma=0.9, lam=torch.tensor(lams).double())
    for row, lam in enumerate(torch.tensor(lams).double().tolist()):
        one = slice(row, row + 1)
        alone = generalized_advantages(rewards[one], values[one], everywhere(values[one]), gamma=0.9, lam=lam)
        assert torch.equal(together.advantages[one], alone.advantages)
        assert torch.equal(together.returns[one], alone.returns)


def test_a_perfect_critic_leaves_no_advantage() -> None:
    values = real([[0.25, 0.25, 0.25]])
    found = generalized_advantages(real([[0, 0, 0.25]]), values, everywhere(values), gamma=1.0, lam=0.7)
    assert found.advantages.tolist() == [[0.0, 0.0, 0.0]]
    assert torch.equal(found.returns, values)


def test_no_gradient_flows_and_half_precision_is_left() -> None:
    values = torch.ones(1, 2, dtype=torch.bfloat16, requires_grad=True)
    found = generalized_advantages(torch.ones(1, 2), values, everywhere(values), gamma=1.0, lam=torch.ones(1).double())
    assert not found.advantages.requires_grad
    assert not found.returns.requires_grad
    assert found.advantages.dtype == found.returns.dtype == torch.float32
    wide = generalized_advantages(torch.ones(1, 2), values.double(), everywhere(values), gamma=1.0, lam=1.0)
    assert wide.advantages.dtype == torch.float64


@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (2, 3)])
def test_nothing_valid_gives_zeros(shape) -> None:
    junk = torch.full(shape, NAN)
    found = generalized_advantages(junk, junk, torch.zeros(shape, dtype=torch.bool), gamma=1.0, lam=0.5)
    assert torch.equal(found.advantages, torch.zeros(shape))
    assert torch.equal(found.returns, torch.zeros(shape))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": torch.zeros(2, 3)}, "one common shape"),
        ({"token_rewards": torch.zeros(2), "values": torch.zeros(2), "mask": torch.ones(2) > 0}, r"must be \[B, T\]"),
        ({"gamma": 1.5}, r"gamma must be in \[0, 1\], got 1.5"),
        ({"gamma": -0.1}, "gamma must be"),
        ({"lam": 1.5}, r"lam must be one number in \[0, 1\]"),
        ({"lam": -0.5}, "lam must be"),
        ({"lam": NAN}, "lam must be"),
        ({"lam": torch.tensor([0.5, 2.0])}, "lam must be"),
        ({"lam": torch.ones(3)}, r"\[B\] = \[2\] of them"),
        ({"target_lam": 2.0}, "target_lam must be"),
        ({"token_rewards": torch.tensor([[0.0, 1.0], [0.0, NAN]])}, r"token_rewards\[1, 1\] is nan"),
        ({"values": torch.tensor([[0.0, float("inf")], [0.0, 0.0]])}, r"values\[0, 1\] is inf"),
    ],
)
def test_nonsense_is_refused(changes, message) -> None:
    arguments = {
        "token_rewards": torch.zeros(2, 2),
        "values": torch.zeros(2, 2),
        "mask": torch.ones(2, 2) > 0,
        "gamma": 1.0,
        "lam": 1.0,
    }
    with pytest.raises(ValueError, match=message):
        generalized_advantages(**{**arguments, **changes})


@pytest.mark.parametrize("alpha", [0.0, -1.0, NAN, float("inf")])
def test_alpha_must_be_positive(alpha) -> None:
    with pytest.raises(ValueError, match="alpha must be positive"):
        length_adaptive_lambda(torch.tensor([3]), alpha=alpha)
