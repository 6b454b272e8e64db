"""The probe, on a network whose layers are known to be Newton iterations or steps of gradient descent."""

import pytest
import torch
from torch import Tensor

from oncurve.icl.baselines.closed import predict_linear
from oncurve.icl.functions import FunctionSettings, sample
from oncurve.icl.iterates import descent_weights, newton_weights, spectrum
from oncurve.icl.probe import ProbeResult, ProbeSettings, error_curve, fit_read_outs, layer_predictions, probe

FUNCTIONS = FunctionSettings(dimension=3)
SMALL = ProbeSettings(
    fit_prompts=300, held_out_prompts=200, weight_prompts=24, newton_iterations=16, descent_doublings=8
)


class Iterating:
    """Layer l holds what an algorithm predicts after ``schedule[l]`` iterations, beside numbers of no use."""

    def __init__(self, weights, schedule) -> None:
        self.weights, self.schedule = weights, schedule

    def predict(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return self._iterates(inputs, targets)[-1]

    def hidden_states(self, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        return [self._state(one) for one in self._iterates(inputs, targets)]

    def _iterates(self, inputs: Tensor, targets: Tensor) -> list[Tensor]:
        problem = spectrum(inputs, targets)
        return [predict_linear(self.weights(problem, done), inputs, targets) for done in self.schedule]

    def _state(self, prediction: Tensor) -> Tensor:
        # Two large opposite numbers: the LayerNorm then divides everything by nearly the same.
        large = torch.full_like(prediction, 500.0)
        return torch.stack([prediction, -prediction, large, -large], -1)


def test_layers_that_iterate_as_newton_does_are_recognised():
    found = probe(Iterating(newton_weights, [0, 2, 5, 8, 11]), FUNCTIONS, 7, SMALL)
    assert found.newton.by_errors.matched == (0, 2, 5, 8, 11)
    assert found.newton.by_weights.matched == (0, 2, 5, 8, 11)
    assert min(max(row) for row in found.newton.by_weights.similarities) > 0.999  # their length does not count
    assert found.weight_counts == (1, 2, 3, 4, 5, 6)
    # The read-out also rescales an iterate that is still too short, so early layers are not quite their iterate.
    assert min(max(row) for row in found.newton.by_errors.similarities) > 0.95
    assert max(found.newton.by_errors.similarities[-1]) > 0.99
    assert found.newton.by_errors.trend.linear.slope == pytest.approx(3)
    assert found.newton.by_errors.trend.is_linear is True
    errors = found.mean_layer_errors
    assert errors == sorted(errors, reverse=True)
    assert found.layer_errors[-1] == pytest.approx(found.newton.errors[11], abs=0.01)
    assert found.model_errors == pytest.approx(found.newton.errors[11])
    assert found.reference_similarities[-1] == max(found.reference_similarities)


def test_layers_that_descend_are_recognised():
    found = probe(Iterating(descent_weights, [1, 2, 4, 8, 16]), FUNCTIONS, 7, SMALL)
    for match in (found.descent.by_errors, found.descent.by_weights):
        assert list(match.matched) == sorted(match.matched)
        assert match.trend.geometric.slope == pytest.approx(1, abs=0.2)
        assert match.trend.geometric.r_squared > 0.98
        assert match.trend.is_linear is False


def test_the_read_out_is_the_least_squares_fit():
    class OneNumber:
        def predict(self, inputs, targets):
            return targets

        def hidden_states(self, inputs, targets):
            return [torch.stack([inputs[..., 0], torch.zeros_like(targets), -inputs[..., 0]], -1)]

    prompts = sample(FunctionSettings(dimension=1), 600, 2, torch.Generator().manual_seed(0))
    (weights,) = fit_read_outs(OneNumber(), prompts)
    # After the norm only the sign of x is left: (s, 0, -s) sqrt(3/2). The fit says mean(y s) s: shortest weights.
    sign = prompts.inputs[..., 0].sign()
    centred = sign - sign.mean()
    slope = ((centred * prompts.targets).mean() / centred.square().mean()).item()
    assert weights.tolist()[:3] == pytest.approx([slope / 2 / 1.5**0.5, 0, -slope / 2 / 1.5**0.5], abs=1e-3)
    predictions = layer_predictions(OneNumber(), [weights], prompts)
    assert predictions.shape == (1, 600, 2)
    assert (predictions[0] - prompts.targets).mean().abs() < 1e-5  # the intercept


def test_the_error_is_against_targets_without_noise():
    prompts = sample(FunctionSettings(dimension=2, noise_std=3.0), 50, 3, torch.Generator().manual_seed(0))
    assert error_curve(prompts.clean, prompts, 2.0) == (0, 0, 0)
    assert error_curve(prompts.clean + 2.0, prompts, 2.0) == pytest.approx((2, 2, 2))


def test_ridge_is_the_reference_of_a_noisy_run():
    found = probe(Iterating(newton_weights, [0, 2]), FunctionSettings(dimension=3, noise_std=0.5), 7, SMALL)
    assert found.reference_name == "ridge"
    assert found.reference_errors[3] < found.newton.errors[-1][3]


def test_functions_without_weights_are_refused():
    with pytest.raises(ValueError, match="this run learnt 'relu'"):
        probe(Iterating(newton_weights, [0]), FunctionSettings(kind="relu"), 7, SMALL)


def test_settings_do_something():
    base = {
        "fit_prompts": 20,
        "held_out_prompts": 16,
        "weight_prompts": 4,
        "newton_iterations": 4,
        "descent_doublings": 3,
        "seed": 0,
    }

    def run(**change):
        return probe(Iterating(newton_weights, [0, 2]), FUNCTIONS, 5, ProbeSettings(**(base | change)))

    first = run()
    assert run(fit_prompts=30).layer_errors != first.layer_errors
    assert run(held_out_prompts=20).model_errors != first.model_errors
    assert run(seed=1).model_errors != first.model_errors
    fewer = run(weight_prompts=8)
    assert fewer.newton.by_weights.similarities != first.newton.by_weights.similarities
    assert fewer.newton.by_errors == first.newton.by_errors
    assert len(run(newton_iterations=6).newton.iterations) == 7
    assert run(descent_doublings=4).descent.iterations == (0, 1, 2, 3, 4, 6, 8, 11, 16)


def test_a_result_survives_its_file(tmp_path):
    found = probe(Iterating(newton_weights, [0, 2]), FUNCTIONS, 5, SMALL)
    found.write(tmp_path / "probe.json")
    assert ProbeResult.read(tmp_path / "probe.json") == found
