"""Classes of functions: values by hand, moments, noise, what a curriculum and a shift change."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from oncurve.icl.functions import FunctionSettings, Prompts, normaliser, sample
from oncurve.icl.functions.families import decision_tree, linear, sparse_weights, two_layers

KINDS = ("linear", "sparse", "tree", "relu")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_linear_functions_are_dot_products():
    inputs = torch.tensor([[[1.0, 2.0], [3.0, -1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    weights = torch.tensor([[2.0, 3.0], [5.0, -7.0]])
    assert linear(inputs, weights).tolist() == [[8.0, 3.0], [5.0, -7.0]]  # 2+6, 6-3; 5, -7


def test_a_tree_is_followed_to_the_right_where_a_coordinate_is_positive():
    # root asks x_2; its left child asks x_0, its right child x_1; leaves from left to right 10 20 30 40
    coordinates, leaves = torch.tensor([[2, 0, 1]]), torch.tensor([[10.0, 20.0, 30.0, 40.0]])
    inputs = torch.tensor([[[-1.0, 9.0, -1.0], [1.0, -9.0, -1.0], [9.0, -1.0, 1.0], [-9.0, 1.0, 1.0], [0.0, 0.0, 0.0]]])
    assert decision_tree(inputs, coordinates, leaves).tolist() == [[10.0, 20.0, 30.0, 40.0, 10.0]]


def test_each_prompt_has_a_tree_of_its_own():
    coordinates = torch.tensor([[0], [1]])
    leaves = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    inputs = torch.tensor([[[1.0, -1.0]], [[1.0, -1.0]]])
    assert decision_tree(inputs, coordinates, leaves).tolist() == [[2.0], [3.0]]


def test_two_layers_add_up_what_is_positive():
    # v_1 = (1, 0), v_2 = (-1, 2), v_3 = (0, -1); a = (2, 1, -4)
    first = torch.tensor([[[1.0, 0.0], [-1.0, 2.0], [0.0, -1.0]]])
    second = torch.tensor([[2.0, 1.0, -4.0]])
    inputs = torch.tensor([[[3.0, 1.0], [1.0, 2.0], [-1.0, -1.0]]])
    # (3,1): 2*3 + 0 + 0;  (1,2): 2*1 + 1*3 + 0;  (-1,-1): 0 + 0 - 4*1
    assert two_layers(inputs, first, second).tolist() == [[6.0, 5.0, -4.0]]


@given(dimension=st.integers(1, 12), data=st.data())
def test_sparse_weights_have_as_many_as_asked(dimension, data):
    sparsity = data.draw(st.integers(1, dimension))
    weights = sparse_weights(seeded(dimension), 16, dimension, sparsity)
    assert weights.count_nonzero(dim=1).tolist() == [sparsity] * 16


def test_every_coordinate_takes_its_turn_in_a_sparse_function():
    used = sparse_weights(seeded(), 4000, 5, 2).count_nonzero(dim=0) / 4000
    assert (used - 2 / 5).abs().max() < 0.03  # 4 standard errors of a share of 0.4


@pytest.mark.parametrize("kind", KINDS)
def test_answering_zero_costs_one(kind):
    settings = FunctionSettings(kind=kind, dimension=6, sparsity=2, tree_depth=3, hidden_width=30)
    prompts = sample(settings, 20_000, 3, seeded())
    assert prompts.clean.square().mean().item() / normaliser(settings) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_the_scale_of_weights_multiplies_the_targets(kind):
    plain = FunctionSettings(kind=kind, dimension=4)
    once = sample(plain, 5, 7, seeded())
    by_shift = sample(plain, 5, 7, seeded(), weight_scale=3.0)
    by_setting = sample(FunctionSettings(kind=kind, dimension=4, weight_std=3.0), 5, 7, seeded())
    assert torch.equal(once.inputs, by_shift.inputs)
    torch.testing.assert_close(by_shift.targets, 3 * once.targets)
    assert torch.equal(by_setting.targets, by_shift.targets)


def test_noise_is_on_the_targets_alone():
    settings = FunctionSettings(dimension=3, noise_std=0.5)
    noisy, quiet = sample(settings, 4000, 5, seeded()), sample(FunctionSettings(dimension=3), 4000, 5, seeded())
    assert torch.equal(noisy.clean, quiet.targets)
    assert (noisy.targets - noisy.clean).std().item() == pytest.approx(0.5, rel=0.03)
    assert torch.equal(quiet.targets, quiet.clean)


@pytest.mark.parametrize("kind", KINDS)
def test_coordinates_beyond_the_active_ones_are_zero_and_do_not_count(kind):
    settings = FunctionSettings(kind=kind, dimension=6)
    prompts = sample(settings, 50, 9, seeded(), active_dimension=2)
    assert torch.equal(prompts.inputs[..., 2:], torch.zeros(50, 9, 4))
    assert prompts.inputs[..., :2].count_nonzero() == 50 * 9 * 2
    assert sample(settings, 50, 9, seeded()).inputs[..., 2:].count_nonzero() == 50 * 9 * 4


@pytest.mark.parametrize("kind", KINDS)
def test_targets_belong_to_the_transformed_inputs(kind):
    settings = FunctionSettings(kind=kind, dimension=4)
    changed = sample(settings, 5, 7, seeded(), input_transform=lambda inputs, _: -inputs)
    plain = sample(settings, 5, 7, seeded())
    assert torch.equal(changed.inputs, -plain.inputs)
    if kind in ("linear", "sparse"):
        assert torch.equal(changed.targets, -plain.targets)
        assert torch.equal(changed.targets, linear(changed.inputs, changed.weights))
    else:
        assert not torch.equal(changed.targets, plain.targets)


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_draws_one_set_of_prompts(kind):
    settings = FunctionSettings(kind=kind, dimension=4, noise_std=0.1)
    here, there, other = (sample(settings, 5, 7, seeded(seed)) for seed in (3, 3, 4))
    assert torch.equal(here.targets, there.targets)
    assert not torch.equal(here.targets, other.targets)


def test_prompts_refuse_shapes_that_do_not_belong_together():
    with pytest.raises(ValueError, match=r"inputs must be \[B, K, d\]"):
        Prompts(inputs=torch.zeros(2, 3, 4), targets=torch.zeros(2, 4), clean=torch.zeros(2, 3))


@pytest.mark.parametrize(("prompts", "points", "active"), [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 6)])
def test_senseless_counts_are_refused(prompts, points, active):
    with pytest.raises(ValueError, match="need at least one prompt and point, and 1 to 5 active dimensions"):
        sample(FunctionSettings(dimension=5), prompts, points, seeded(), active_dimension=active)


def test_more_non_zero_weights_than_coordinates_are_refused():
    with pytest.raises(ValidationError, match=r"lower functions\.sparsity or raise functions\.dimension"):
        FunctionSettings(kind="sparse", dimension=2, sparsity=3)
