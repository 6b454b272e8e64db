"""What shifted inputs look like."""

import pytest
import torch

from oncurve.icl.transforms import (
    in_random_orthant,
    in_subspace,
    query_is_an_example,
    query_orthogonal,
    scale_inputs,
    scale_query,
    skew,
)


def drawn(num_prompts=64, num_points=4, dimension=6):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(num_prompts, num_points, dimension, generator=generator), generator


def test_scalings():
    inputs, dice = drawn()
    assert torch.equal(scale_inputs(3.0)(inputs, dice), 3 * inputs)
    scaled = scale_query(0.5)(inputs, dice)
    assert torch.equal(scaled[:, :-1], inputs[:, :-1])
    assert torch.equal(scaled[:, -1], inputs[:, -1] / 2)


def test_the_skewed_covariance_has_its_eigenvalues_and_its_trace():
    inputs, dice = drawn(num_prompts=2, num_points=40_000, dimension=3)
    shifted = skew(inputs, dice)
    wanted = torch.tensor([1, 1 / 4, 1 / 9]) * 3 / (1 + 1 / 4 + 1 / 9)
    covariances = shifted.mT @ shifted / 40_000
    for covariance in covariances:
        found = torch.linalg.eigvalsh(covariance).flip(0)
        assert torch.allclose(found, wanted, rtol=0.05)
    assert not torch.allclose(covariances[0], covariances[1], atol=0.1)  # a basis for each prompt


def test_a_subspace_of_half_the_dimensions():
    inputs, dice = drawn(num_prompts=2000, num_points=5, dimension=5)
    shifted = in_subspace(inputs, dice)
    assert set(torch.linalg.matrix_rank(shifted, rtol=1e-4).tolist()) == {3}
    assert shifted.square().sum(-1).mean().item() == pytest.approx(5, rel=0.05)


def test_examples_in_one_orthant():
    inputs, dice = drawn()
    shifted = in_random_orthant(inputs, dice)
    examples = shifted[:, :-1]
    assert torch.equal(examples.abs(), inputs[:, :-1].abs())
    assert ((examples > 0).all(1) | (examples < 0).all(1)).all()
    assert torch.equal(shifted[:, -1], inputs[:, -1])
    assert len(examples[:, 0].sign().unique(dim=0)) > 20


def test_the_query_is_one_of_the_examples():
    inputs, dice = drawn()
    shifted = query_is_an_example(inputs, dice)
    which = (shifted[:, -1:] == inputs[:, :-1]).all(-1)
    assert which.any(1).all()
    assert (which.sum(0) > 5).all()


def test_the_query_is_orthogonal_to_all_examples():
    inputs, dice = drawn()
    shifted = query_orthogonal(inputs, dice)
    assert (shifted[:, :-1] @ shifted[:, -1:].mT).abs().max() < 1e-5
    assert torch.allclose(shifted[:, -1].norm(dim=-1), inputs[:, -1].norm(dim=-1), rtol=1e-5)
    with pytest.raises(ValueError, match="6 examples in 6 dimensions"):
        query_orthogonal(*drawn(num_points=7))
