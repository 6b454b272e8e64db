"""Baselines on prompts small enough for paper."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Lasso

from oncurve.icl.baselines import (
    TwoLayerSettings,
    averaging,
    averaging_weights,
    bayes,
    boosting,
    choose_lasso_penalty,
    lasso,
    least_squares,
    least_squares_weights,
    nearest_neighbours,
    quick_baselines_for,
    reference_of,
    ridge,
    ridge_weights,
    strong_baselines_for,
    strong_counts,
    tree,
    two_layer,
    zero,
)
from oncurve.icl.functions import FunctionSettings, normaliser, sample

# Two examples and a query in the plane: y = 2 x_1 - x_2, seen at (1, 0) and at (1, 1).
INPUTS = torch.tensor([[[1.0, 0.0], [1.0, 1.0], [3.0, 4.0]]])
TARGETS = torch.tensor([[2.0, 1.0, 2.0]])


def prompts(num_points: int = 9, **changes):
    generator = torch.Generator().manual_seed(3)
    return sample(FunctionSettings(dimension=3, **changes), 40, num_points, generator)


def test_averaging_by_hand():
    # n = 1: w = 2 (1, 0); at (1, 1) it says 2. n = 2: w = (2 (1, 0) + 1 (1, 1)) / 2 = (1.5, 0.5); 4.5 + 2 at (3, 4).
    assert averaging(INPUTS, TARGETS).tolist() == [[0.0, 2.0, 6.5]]


def test_least_squares_by_hand():
    # n = 1: the shortest w with w_1 = 2 is (2, 0). n = 2: exact, w = (2, -1), and 6 - 4 at (3, 4).
    assert least_squares_weights(INPUTS, TARGETS)[0].tolist() == [[0, 0], [2, 0], pytest.approx([2, -1])]
    assert least_squares(INPUTS, TARGETS)[0].tolist() == pytest.approx([0, 2, 2])


def test_ridge_by_hand():
    # Penalty 1. n = 1: S + I = diag(2, 1), X'y = (2, 0), w = (1, 0).
    # n = 2: S + I = [[3, 1], [1, 2]] with inverse [[2, -1], [-1, 3]] / 5, X'y = (3, 1), w = (1, 0).
    weights = ridge_weights(INPUTS, TARGETS, 1.0)[0]
    assert weights.flatten().tolist() == pytest.approx([0, 0, 1, 0, 1, 0], abs=1e-12)
    assert ridge(INPUTS, TARGETS, 1.0)[0].tolist() == pytest.approx([0, 1, 3])


def test_nearest_neighbours_by_hand():
    # Squared distances from the last point 9: 81, 64, 49, 4, 1 of the examples 0, 1, 2, 7, 8.
    inputs = torch.tensor([[[0.0], [1.0], [2.0], [7.0], [8.0], [9.0]]])
    targets = torch.tensor([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]])
    assert nearest_neighbours(inputs, targets, 1)[0].tolist() == [0, 1, 2, 4, 8, 16]
    # With three: all while there are fewer; then those of 8, 7, 2.
    assert nearest_neighbours(inputs, targets, 3)[0, [0, 2, 5]].tolist() == [0, 1.5, pytest.approx(28 / 3)]


def test_zero_errs_by_the_normaliser():
    for kind, scale in (("linear", 3), ("sparse", 2), ("tree", 1), ("relu", 3)):
        settings = FunctionSettings(kind=kind, dimension=3, sparsity=2, tree_depth=2, hidden_width=8)
        drawn = sample(settings, 20_000, 2, torch.Generator().manual_seed(0))
        error = (zero(drawn.inputs, drawn.targets) - drawn.clean).square().mean().item()
        assert normaliser(settings) == scale
        assert error / scale == pytest.approx(1, abs=0.05)


def test_a_prediction_sees_only_what_stands_before_it():
    drawn = prompts()
    later = drawn.targets.clone()
    later[:, 4:] = 99.0
    for predict in (averaging, least_squares, nearest_neighbours, lambda x, y: ridge(x, y, 0.3)):
        assert torch.equal(predict(drawn.inputs, drawn.targets)[:, :5], predict(drawn.inputs, later)[:, :5])
    places = (0, 2, 4)
    for fit in (tree, boosting, lambda x, y, c: lasso(x, y, 0.1, c)):
        before, after = fit(drawn.inputs[:4], drawn.targets[:4], places), fit(drawn.inputs[:4], later[:4], places)
        assert torch.equal(before[:, places], after[:, places])


@given(st.integers(0, 10_000))
@settings(max_examples=20)
def test_turning_the_inputs_changes_nothing(seed):
    drawn = prompts(noise_std=0.5)
    turn, _ = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    targets = drawn.targets.double()
    for predict in (averaging, least_squares, nearest_neighbours, lambda x, y: ridge(x, y, 0.3)):
        straight = predict(drawn.inputs.double(), targets)
        assert torch.allclose(straight, predict(drawn.inputs.double() @ turn, targets), atol=1e-6)


@given(st.permutations(range(8)))
@settings(max_examples=20)
def test_the_order_of_the_examples_does_not_matter(order):
    drawn = prompts(noise_std=0.5)
    places = [*order, 8]
    for predict in (averaging, least_squares, nearest_neighbours, lambda x, y: ridge(x, y, 0.3)):
        straight = predict(drawn.inputs, drawn.targets)[:, 8]
        assert torch.allclose(straight, predict(drawn.inputs[:, places], drawn.targets[:, places])[:, 8], atol=1e-4)


def test_ridge_without_a_penalty_becomes_least_squares():
    drawn = prompts(noise_std=0.5)
    exact = least_squares_weights(drawn.inputs, drawn.targets)[:, 5:]
    far, near = (ridge_weights(drawn.inputs, drawn.targets, penalty)[:, 5:] - exact for penalty in (1e-2, 1e-8))
    assert near.norm() < 1e-4 * far.norm()
    with pytest.raises(ValueError, match="At 0 it is least_squares"):
        ridge(drawn.inputs, drawn.targets, 0.0)


def test_least_squares_is_exact_from_d_examples_on():
    drawn = prompts()
    error = (least_squares(drawn.inputs, drawn.targets) - drawn.clean).abs().amax(0)
    assert error[3:].max() < 1e-3
    assert error[:3].min() > 0.1


def test_ridge_with_the_bayes_penalty_beats_every_other_penalty():
    settings = FunctionSettings(dimension=3, noise_std=0.5, weight_std=2.0)
    drawn = sample(settings, 4000, 7, torch.Generator().manual_seed(1))

    def error(predictions):
        return (predictions - drawn.clean)[:, 1:].square().mean().item()

    best = error(bayes(settings).predict(drawn.inputs, drawn.targets))
    assert best == error(ridge(drawn.inputs, drawn.targets, 0.0625))  # 0.25 / 4
    assert best < min(error(ridge(drawn.inputs, drawn.targets, penalty)) for penalty in (0.01, 0.25, 1.0))
    assert reference_of(FunctionSettings(), [1]).name == "least squares"


def test_lasso_by_hand():
    # One example (1, 1/2) -> 2 with penalty 0.5: minimise (2 - w_1 - w_2/2)^2 / 2 + (|w_1| + |w_2|) / 2.
    # w_2 stays 0 and w_1 = 2 - 0.5; at (2, 5) that is 3.
    inputs, targets = torch.tensor([[[1.0, 0.5], [2.0, 5.0]]]), torch.tensor([[2.0, 0.0]])
    assert lasso(inputs, targets, 0.5, [0, 1])[0].tolist() == pytest.approx([0, 3], abs=1e-3)


def test_the_penalty_of_the_lasso_is_the_best_on_its_prompts():
    drawn = prompts(kind="sparse", sparsity=1)
    places = [2, 3]
    chosen = choose_lasso_penalty(drawn.inputs, drawn.targets, drawn.clean, places)
    errors = {}
    for penalty in (1.0, 0.1, 0.01, 0.001, 0.0001):
        found = torch.zeros(len(drawn.inputs), 2)
        for row in range(len(drawn.inputs)):
            for column, n in enumerate(places):
                x, y = drawn.inputs[row].double().numpy(), drawn.targets[row].double().numpy()
                fit = Lasso(alpha=penalty, fit_intercept=False, max_iter=20_000).fit(x[:n], y[:n])
                found[row, column] = float(fit.predict(x[n : n + 1])[0])
        errors[penalty] = (found - drawn.clean[:, places]).square().mean().item()
    assert chosen == min(errors, key=errors.get)


def test_trees_by_hand():
    # One split at 0.5 between -1 -> 5 and 2 -> 7; on signs also 0.1 -> 7.
    inputs = torch.tensor([[[-1.0], [2.0], [0.1]]])
    targets = torch.tensor([[5.0, 7.0, 0.0]])
    assert tree(inputs, targets, [0, 1, 2])[0].tolist() == [0, 5, 5]
    assert tree(inputs, targets, [2], on_signs=True)[0, 2] == 7
    # Boosting with one tree and a learning rate of 1/2 goes half way from the mean 6.
    assert boosting(inputs, targets, [2], num_trees=1, learning_rate=0.5)[0, 2] == pytest.approx(5.5)


def test_a_deeper_tree_splits_more():
    inputs = torch.tensor([[[-3.0], [-1.0], [1.0], [3.0], [2.9]]])
    targets = torch.tensor([[0.0, 1.0, 5.0, 9.0, 0.0]])
    assert tree(inputs, targets, [4], max_depth=1)[0, 4] == 7
    assert tree(inputs, targets, [4], max_depth=2)[0, 4] == 9


def test_two_layer_networks_are_trained_each_on_its_own_examples():
    drawn = prompts(kind="relu", hidden_width=3, num_points=25)
    settings = TwoLayerSettings(width=20, num_steps=400)
    both = two_layer(drawn.inputs[:8], drawn.targets[:8], [0, 4, 24], settings)
    error = (both - drawn.clean[:8]).square().mean(0)
    assert both[:, 0].eq(0).all()
    assert both[:, 5].isnan().all()
    assert error[24] < 0.25 * min(error[4], error[0])
    later = drawn.targets[:8].clone()
    later[:, 4:] = 9.0
    assert torch.allclose(both[:, 4], two_layer(drawn.inputs[:8], later, [0, 4, 24], settings)[:, 4], atol=1e-5)


@pytest.mark.parametrize(
    "change", [{"width": 2}, {"num_steps": 60}, {"batch_size": 3}, {"lr": 0.05}, {"seed": 5}], ids=str
)
def test_every_setting_of_the_networks_changes_them(change):
    drawn = prompts(num_points=7)
    base = {"width": 6, "num_steps": 30, "batch_size": 2, "lr": 0.01}
    found = [
        two_layer(drawn.inputs, drawn.targets, [6], TwoLayerSettings(**one))[:, 6] for one in (base, base | change)
    ]
    assert not torch.allclose(*found)


def test_each_class_of_functions_has_its_own_strong_baselines():
    names = {
        kind: [one.name for one in strong_baselines_for(FunctionSettings(kind=kind, dimension=3, sparsity=1), [2, 4])]
        for kind in ("linear", "sparse", "tree", "relu")
    }
    assert names == {
        "linear": [],
        "sparse": ["Lasso"],
        "tree": ["greedy tree", "greedy tree on signs", "boosted trees", "boosted trees on signs"],
        "relu": ["two-layer network by Adam"],
    }


def test_all_classes_share_the_baselines_with_a_formula():
    common = ["least squares", "3 nearest neighbours", "averaging", "zero"]
    for kind in ("linear", "sparse", "tree", "relu"):
        assert [one.name for one in quick_baselines_for(FunctionSettings(kind=kind))] == common
    assert [one.name for one in quick_baselines_for(FunctionSettings(noise_std=0.1))] == ["ridge", *common]


def test_each_class_is_measured_against_the_best_that_is_known_for_it():
    kinds = ("linear", "sparse", "tree", "relu")
    found = [reference_of(FunctionSettings(kind=kind, dimension=3, sparsity=1), [2, 4]) for kind in kinds]
    assert [one.name for one in found] == [
        "least squares",
        "Lasso",
        "boosted trees on signs",
        "two-layer network by Adam",
    ]
    assert [one.counts for one in found] == [None, (2, 4), (2, 4), (2, 4)]


def test_where_the_slow_baselines_are_fitted():
    assert strong_counts(41, 4) == [10, 20, 30, 40]
    assert strong_counts(3, 9) == [1, 2]


def test_lasso_beats_least_squares_on_sparse_functions():
    settings = FunctionSettings(kind="sparse", dimension=8, sparsity=1)
    drawn = sample(settings, 60, 6, torch.Generator().manual_seed(2))
    error = {
        one.name: (one.predict(drawn.inputs, drawn.targets) - drawn.clean)[:, 5].square().mean().item()
        for one in [*quick_baselines_for(settings), *strong_baselines_for(settings, [5])]
    }
    assert error["Lasso"] < 0.7 * error["least squares"]


def test_averaging_weights_need_no_example():
    assert averaging_weights(INPUTS, TARGETS)[0, 0].tolist() == [0, 0]


@pytest.mark.parametrize("shape", [(1, 3), (2, 2)])
def test_shapes_that_do_not_belong_together_are_refused(shape):
    with pytest.raises(ValueError, match=r"inputs \[B, K, d\]"):
        least_squares(torch.ones(1, 2, 2), torch.ones(shape))


def test_a_place_outside_the_prompt_is_refused():
    with pytest.raises(ValueError, match=r"0\.\.2 for prompts of 3 points: \[3\]"):
        tree(INPUTS, TARGETS, [1, 3])
