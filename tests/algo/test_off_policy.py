"""Corrections for another sampler."""

from math import exp, log, nan

import pytest
import torch

from oncurve.algo import importance_weights, off_policy_keep

MASK = torch.tensor([[True, True], [True, False], [False, False]])
# w = 4, 1 | 1/4: products 4 and 1/4, geometric means 2 and 1/4.
SAMPLER = torch.tensor([[-3.0, -3.0], [-3.0, nan], [nan, nan]], dtype=torch.float64)
TRAINER = SAMPLER + torch.tensor([[4.0, 1.0], [0.25, 1.0], [1.0, 1.0]], dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("mode", "low", "high", "expected"),
    [
        ("token_truncate", 0.5, 3.0, [3.0, 1.0, 0.5]),
        ("token_mask", 0.5, 3.0, [0.0, 1.0, 0.0]),
        ("token_mask", 1.0, 1.0, [0.0, 1.0, 0.0]),  # the bounds are inside
        ("seq_truncate", 0.5, 3.0, [3.0, 3.0, 0.5]),
        ("seq_mask", 0.2, 3.0, [0.0, 0.0, 0.25]),
        ("seq_mask", 0.3, 5.0, [4.0, 4.0, 0.0]),
        ("seq_geo_mask", 0.3, 2.5, [4.0, 1.0, 0.0]),
        ("seq_geo_mask", 0.2, 1.5, [0.0, 0.0, 0.25]),
    ],
)
def test_weights_on_paper(mode: str, low: float, high: float, expected: list[float]) -> None:
    found = importance_weights(TRAINER, SAMPLER, MASK, mode, low=low, high=high)  # type: ignore[arg-type]
    assert found[MASK].tolist() == pytest.approx(expected)
    assert found[~MASK].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "seq_truncate", "seq_mask", "seq_geo_mask"])
def test_an_exact_sampler_needs_no_correction(mode: str) -> None:
    found = importance_weights(SAMPLER.clone().requires_grad_(), SAMPLER, MASK, mode, low=0.5, high=2.0)  # type: ignore[arg-type]
    assert found.tolist() == MASK.double().tolist()
    assert not found.requires_grad


@pytest.mark.parametrize(("mode", "value"), [("token_truncate", exp(20)), ("seq_truncate", exp(20))])
def test_extreme_weights_stay_finite(mode: str, value: float) -> None:
    found = importance_weights(
        torch.zeros(1, 2).double(),
        torch.full((1, 2), -50.0).double(),
        torch.ones(1, 2) > 0,
        mode,
        low=0.0,
        high=1e30,  # type: ignore[arg-type]
    )
    assert found[0].tolist() == pytest.approx([value, value])


def test_only_bad_completions_that_the_policy_left_are_dropped() -> None:
    # Mean of sampler - policy: -log 2 | log 4 | nothing trained.
    advantages = torch.tensor([-1.0, -1.0, -1.0])
    assert off_policy_keep(TRAINER, SAMPLER, advantages, MASK, max_divergence=1.0).tolist() == [True, False, True]
    assert off_policy_keep(TRAINER, SAMPLER, -advantages, MASK, max_divergence=1.0).tolist() == [True, True, True]
    assert off_policy_keep(TRAINER, SAMPLER, 0 * advantages, MASK, max_divergence=1.0).tolist() == [True, True, True]
    assert off_policy_keep(TRAINER, SAMPLER, advantages, MASK, max_divergence=log(4) + 1e-9).tolist() == [True] * 3
    assert off_policy_keep(TRAINER, SAMPLER, advantages, MASK, max_divergence=-0.7).tolist() == [False] * 3
    whole = torch.ones(1, 2) > 0
    exact = off_policy_keep(
        torch.tensor([[-2.0, -2.0]]), torch.tensor([[-1.0, -1.0]]), advantages[:1], whole, max_divergence=1.0
    )
    assert exact.tolist() == [True]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"low <= high, got 2\.0 and 1\.0"):
        importance_weights(TRAINER, SAMPLER, MASK, "token_mask", low=2.0, high=1.0)
    with pytest.raises(ValueError, match="common shape"):
        importance_weights(TRAINER, SAMPLER[:, :1], MASK, "token_mask", low=0.0, high=1.0)
    with pytest.raises(ValueError, match="common shape"):
        off_policy_keep(TRAINER, SAMPLER, torch.zeros(3), MASK[:, :1], max_divergence=1.0)
    with pytest.raises(ValueError, match="common shape"):
        off_policy_keep(TRAINER, SAMPLER, torch.zeros(2), MASK, max_divergence=1.0)
