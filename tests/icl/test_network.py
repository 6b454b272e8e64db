"""Layouts, and that a prediction sees what stands before it and nothing else."""

import pytest
import torch
from pydantic import ValidationError

from oncurve.icl.layout import encode, token_width
from oncurve.icl.network import NetworkSettings, Regressor, settle_precision

LAYOUTS = ("paired", "alternating")
SMALL = {"width": 32, "layers": 2, "heads": 2}


def regressor(dimension: int = 3, max_points: int = 7, **settings) -> Regressor:
    torch.manual_seed(0)
    return Regressor(NetworkSettings(**(SMALL | settings)), dimension, max_points).eval().requires_grad_(False)


def prompts(num_prompts: int = 4, points: int = 7, dimension: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(1)
    return torch.randn(num_prompts, points, dimension, generator=source), torch.randn(
        num_prompts, points, generator=source
    )


def test_paired_tokens_hold_the_input_twice_and_the_target_once():
    inputs, targets = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[5.0, 6.0]])
    assert encode("paired", inputs, targets).tolist() == [
        [[1.0, 2.0, 0.0, 1.0], [1.0, 2.0, 5.0, 0.0], [3.0, 4.0, 0.0, 1.0], [3.0, 4.0, 6.0, 0.0]]
    ]


def test_alternating_tokens_take_turns():
    inputs, targets = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[5.0, 6.0]])
    assert encode("alternating", inputs, targets).tolist() == [[[1.0, 2.0], [5.0, 0.0], [3.0, 4.0], [6.0, 0.0]]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_target_stands_in_one_token_after_the_position_of_its_prediction(layout):
    inputs, targets = prompts(1)
    tokens = encode(layout, inputs, targets)
    assert tokens.shape == (1, 14, token_width(layout, 3))
    for point, position in enumerate(range(0, 14, 2)):
        changed = targets.clone()
        changed[0, point] += 1
        moved = (encode(layout, inputs, changed) != tokens).any(dim=-1).nonzero()
        assert moved.tolist() == [[0, position + 1]]


@pytest.mark.parametrize(
    "settings",
    [
        {"layout": "paired"},
        {"layout": "alternating"},
        {"architecture": "llama"},
        {"positions": False},
        {"attention": "eager"},
        {"precision": "bfloat16"},
    ],
    ids=str,
)
def test_no_prediction_sees_its_own_target_or_anything_later(settings):
    network = regressor(**settings)
    inputs, targets = prompts()
    before = network.predict(inputs, targets)
    assert before.shape == (4, 7)
    assert before.dtype == torch.float32
    for point in range(7):
        later_targets, later_inputs = targets.clone(), inputs.clone()
        later_targets[:, point:] = 100.0
        later_inputs[:, point + 1 :] = -100.0
        after = network.predict(later_inputs, later_targets)
        assert torch.equal(after[:, : point + 1], before[:, : point + 1])
        if point < 6:  # and it does see what stands before it
            assert (after[:, point + 1] != before[:, point + 1]).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_prediction_sees_its_own_input(layout):
    network = regressor(layout=layout)
    inputs, targets = prompts()
    moved = inputs.clone()
    moved[:, 3] += 1.0
    changed = network.predict(moved, targets) != network.predict(inputs, targets)
    assert changed.any(dim=0).tolist() == [False] * 3 + [True] * 4


def test_prompts_of_a_batch_do_not_influence_each_other():
    network = regressor()
    inputs, targets = prompts()
    whole = network.predict(inputs, targets)
    torch.testing.assert_close(network.predict(inputs[2:3], targets[2:3]), whole[2:3])


def test_a_short_prompt_is_the_beginning_of_a_long_one():
    network = regressor()
    inputs, targets = prompts()
    torch.testing.assert_close(network.predict(inputs[:, :4], targets[:, :4]), network.predict(inputs, targets)[:, :4])


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_the_last_hidden_state_is_what_is_read_out(architecture):
    network = regressor(architecture=architecture)
    inputs, targets = prompts()
    states = network.hidden_states(inputs, targets)
    assert [state.shape for state in states] == [(4, 7, 32)] * 3
    torch.testing.assert_close(network.read_out(states[-1]).squeeze(-1), network.predict(inputs, targets))


def test_the_first_hidden_state_is_what_was_read_in():
    network = regressor(positions=False)
    inputs, targets = prompts()
    read_in = network.read_in(encode("paired", inputs, targets)[:, ::2])
    torch.testing.assert_close(network.hidden_states(inputs, targets)[0], read_in)


def test_positions_are_learned_unless_they_are_switched_off():
    for positions in (True, False):
        wpe = regressor(positions=positions).backbone.wpe.weight
        assert (wpe.abs().sum() > 0) == positions
    torch.manual_seed(0)
    learned = Regressor(NetworkSettings(**SMALL), 3, 7)
    without = Regressor(NetworkSettings(**SMALL, positions=False), 3, 7)
    assert learned.backbone.wpe.weight.requires_grad
    assert not without.backbone.wpe.weight.requires_grad


def test_every_trainable_weight_gets_a_gradient():
    for architecture in ("gpt2", "llama"):
        network = Regressor(NetworkSettings(**SMALL, architecture=architecture), 3, 7)
        network.predict(*prompts()).square().mean().backward()
        without = [name for name, weight in network.named_parameters() if weight.requires_grad and weight.grad is None]
        assert without == []


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "gelu_pytorch_tanh"),
        ({"activation": "relu"}, "relu"),
        ({"architecture": "llama"}, "silu"),
        ({"architecture": "llama", "activation": "gelu"}, "gelu_pytorch_tanh"),
    ],
    ids=str,
)
def test_the_activation_is_the_one_asked_for(settings, name):
    config = regressor(**settings).backbone.config
    assert getattr(config, "activation_function", None) == name or getattr(config, "hidden_act", None) == name


def test_bfloat16_rounds_the_blocks_and_goes_with_eager_attention():
    exact, rounded = regressor(), regressor(precision="bfloat16")
    assert exact.backbone.config._attn_implementation == "sdpa"
    assert rounded.backbone.config._attn_implementation == "eager"
    inputs, targets = prompts()
    difference = (exact.predict(inputs, targets) - rounded.predict(inputs, targets)).abs().max()
    assert 0 < difference < 0.1
    assert rounded.read_in.weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("width", "speedup", "cpuinfo", "expected"),
    [
        (128, 1.6, "flags : amx_bf16", "bfloat16"),
        (64, 1.6, "flags : amx_bf16", "float32"),  # too narrow
        (128, 1.4, "flags : amx_bf16", "float32"),  # measured to gain too little
        (128, 1.6, "flags : avx2", "float32"),  # no such instructions
    ],
)
def test_auto_is_what_the_device_is_measured_to_gain(width, speedup, cpuinfo, expected, monkeypatch):
    monkeypatch.setattr("oncurve.model.precision.read_cpuinfo", lambda: cpuinfo)
    monkeypatch.setattr("oncurve.model.precision.bfloat16_speedup", lambda: speedup)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)  # a GPU that is not used decides nothing
    assert regressor(width=width).settings.precision == expected


def test_auto_on_a_gpu_is_what_the_gpu_has(monkeypatch):
    monkeypatch.setattr("oncurve.model.precision.read_cpuinfo", lambda: "flags : avx2")
    for has_bfloat16, expected in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda answer=has_bfloat16: answer)
        wide = NetworkSettings(width=128)
        assert settle_precision(wide, torch.device("cuda")).precision == expected
        assert settle_precision(wide, torch.device("cpu")).precision == "float32"


def test_attention_code_does_not_change_the_predictions():
    inputs, targets = prompts()
    torch.testing.assert_close(
        regressor(attention="eager").predict(inputs, targets), regressor(attention="sdpa").predict(inputs, targets)
    )


def test_prompts_that_do_not_fit_are_refused():
    network = regressor(max_points=7)
    with pytest.raises(ValueError, match=r"a prompt of 8 points is longer than .* 7, the points of its training"):
        network.predict(*prompts(points=8))
    with pytest.raises(ValueError, match=r"inputs must be \[B, K, 3\] with targets \[B, K\], got \[4, 7, 2\]"):
        network.predict(*prompts(dimension=2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 30, "heads": 4}, "width 30 does not split into 4 heads"),
        ({"width": 12, "heads": 4, "architecture": "llama"}, "4 heads of even size"),
        ({"architecture": "llama", "positions": False}, "belongs to architecture gpt2"),
    ],
)
def test_shapes_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        NetworkSettings(**settings)
