"""AdamW with masters: numbers from paper."""

import math

import pytest
import torch
from torch.nn import Parameter

from oncurve.learner.optimizer import MasterAdamW
from oncurve.learner.settings import LearnerSettings
from oncurve.types import NumericsError, RunError


def optimizer_of(weights: dict[str, Parameter], **settings: object) -> MasterAdamW:
    return MasterAdamW(weights.items(), LearnerSettings(**settings))


def test_the_first_step_moves_every_weight_by_the_learning_rate():
    # Adam's first step is g / |g|, whatever the size of the gradient.
    weight = Parameter(torch.tensor([[1.0, 2.0]]))
    optimizer = optimizer_of({"w": weight})
    weight.grad = torch.tensor([[0.3, -0.004]])
    assert optimizer.grad_norm() == pytest.approx(math.hypot(0.3, 0.004), rel=1e-6)
    optimizer.step(0.1, optimizer.grad_norm())
    assert weight.tolist() == [[pytest.approx(0.9, abs=1e-5), pytest.approx(2.1, abs=1e-5)]]
    assert weight.grad is None


def test_a_long_gradient_is_scaled_down_to_the_limit():
    # |(3, 4)| = 5, limit 1: the first moment becomes 0.1 * (0.6, 0.8).
    weight = Parameter(torch.zeros(1, 2))
    optimizer = optimizer_of({"w": weight}, max_grad_norm=1.0, beta1=0.9)
    weight.grad = torch.tensor([[3.0, 4.0]])
    optimizer.step(0.1, optimizer.grad_norm())
    moment = optimizer.state_dict()["adamw"]["state"][0]["exp_avg"]
    assert moment.tolist() == [[pytest.approx(0.06, abs=1e-6), pytest.approx(0.08, abs=1e-6)]]


def test_only_matrices_decay():
    matrix, bias = Parameter(torch.ones(1, 1)), Parameter(torch.ones(1))
    optimizer = optimizer_of({"matrix": matrix, "bias": bias}, weight_decay=0.5)
    matrix.grad, bias.grad = torch.zeros(1, 1), torch.zeros(1)
    optimizer.step(0.1, optimizer.grad_norm())
    assert matrix.item() == pytest.approx(0.95)  # 1 - 0.1 * 0.5
    assert bias.item() == 1.0


def test_steps_too_small_for_bfloat16_add_up_in_the_master():
    # Next to 1 bfloat16 moves in steps of 2**-7 = 0.0078 (upwards); 20 steps of 0.001 reach it only through a master.
    weight = Parameter(torch.ones(1, 1, dtype=torch.bfloat16))
    optimizer = optimizer_of({"w": weight})
    for step in range(20):
        weight.grad = torch.full((1, 1), -1.0, dtype=torch.bfloat16)
        optimizer.collect()
        assert weight.grad is None
        optimizer.step(0.001, optimizer.grad_norm())
        if step == 0:
            assert weight.item() == 1.0
    assert weight.dtype == torch.bfloat16
    assert weight.item() == pytest.approx(1.0234375)  # 1.02 rounds to 1 + 3 * 2**-7
    assert optimizer.masters["w"].item() == pytest.approx(1.02, abs=1e-5)


def test_gradients_of_many_passes_add_up_in_float32():
    # 256 + 1 is 256 in bfloat16.
    weight = Parameter(torch.zeros(1, 1, dtype=torch.bfloat16))
    optimizer = optimizer_of({"w": weight})
    for value in (256.0, 1.0, 1.0):
        weight.grad = torch.full((1, 1), value, dtype=torch.bfloat16)
        optimizer.collect()
    assert optimizer.grad_norm() == 258.0


def test_a_nan_gradient_names_its_weight():
    good, bad = Parameter(torch.zeros(2)), Parameter(torch.zeros(2))
    optimizer = optimizer_of({"good": good, "bad": bad})
    good.grad, bad.grad = torch.ones(2), torch.tensor([1.0, float("nan")])
    with pytest.raises(NumericsError, match=r"not finite .* in bad\."):
        optimizer.grad_norm()


def test_a_state_of_other_weights_is_refused():
    state = optimizer_of({"w": Parameter(torch.zeros(2, 2))}).state_dict()
    with pytest.raises(RunError, match=r"at w: saved torch\.float32 \[2, 2\], here torch\.float32 \[3, 2\]"):
        optimizer_of({"w": Parameter(torch.zeros(3, 2))}).load_state_dict(state)
    with pytest.raises(RunError, match="at v: saved nothing"):
        optimizer_of({"w": Parameter(torch.zeros(2, 2)), "v": Parameter(torch.zeros(1))}).load_state_dict(state)


def test_nothing_to_train_is_refused():
    with pytest.raises(ValueError, match="nothing to train"):
        optimizer_of({})


def test_the_learning_rate_warms_up_and_decays():
    constant = LearnerSettings(lr=0.4)
    assert [constant.lr_at(step) for step in (0, 9)] == [0.4, 0.4]
    warm = LearnerSettings(lr=0.4, warmup_steps=4)
    assert [warm.lr_at(step) for step in (0, 1, 3, 9)] == pytest.approx([0.1, 0.2, 0.4, 0.4])
    both = LearnerSettings(lr=0.4, warmup_steps=4, decay_steps=8)
    assert [both.lr_at(step) for step in (0, 3, 4, 5, 7, 8, 20)] == pytest.approx([0.1, 0.4, 0.4, 0.3, 0.1, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"raise learner\.decay_steps"):
        LearnerSettings(warmup_steps=8, decay_steps=8)
