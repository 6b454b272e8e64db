"""The value model: the policy's body under a head of one unit, and nothing shared with the policy."""

from pathlib import Path

import pytest
import torch

from oncurve.learner.forward import ends_with_its_head
from oncurve.model import LoraSettings, ModelSettings, Policy, load_policy, value_model_of
from oncurve.model.value import ValueHead
from tests.learner.build import FAMILIES, tiny_policy
from tests.model.test_save import logits, lora_policy, move

IDS = torch.tensor([[5, 9, 2, 40, 11, 7]])


def head_of(model: torch.nn.Module) -> ValueHead:
    head = model.get_output_embeddings()
    assert isinstance(head, ValueHead)
    return head


@torch.no_grad()
def hidden(model: torch.nn.Module) -> torch.Tensor:
    return model.base_model(input_ids=IDS).last_hidden_state


@pytest.mark.parametrize("family", FAMILIES)
def test_a_value_is_one_unit_over_the_hidden_state_of_the_policy(family: str) -> None:
    policy = tiny_policy(family)
    model = value_model_of(policy, seed=0)
    head = head_of(model)
    with torch.no_grad():
        head.bias.fill_(5.0)  # Gemma 2 here caps its logits at 2
    found = logits(model)
    expected = hidden(policy.model) @ head.weight.detach().T + 5.0
    assert found.shape == (1, 6, 1)
    assert torch.allclose(found, expected, rtol=0, atol=1e-5)
    assert ends_with_its_head(model)  # what the learner's faster path needs


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_shared_with_the_policy_nor_tied(family: str) -> None:
    policy = tiny_policy(family)
    before, config = logits(policy.model), policy.model.config.to_dict()
    model = value_model_of(policy, seed=0)
    storages = {parameter.data_ptr() for parameter in policy.model.parameters()}
    assert not storages & {parameter.data_ptr() for parameter in model.parameters()}
    assert head_of(model).weight is not model.get_input_embeddings().weight
    assert not model.config.tie_word_embeddings
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert torch.equal(logits(policy.model), before)
    assert policy.model.config.to_dict() == config


def test_everything_is_trained_and_no_gradient_is_inherited() -> None:
    policy = tiny_policy("llama")
    policy.model.get_input_embeddings().weight.requires_grad_(False)
    policy.model(input_ids=IDS).logits.sum().backward()
    policy.model.train()
    model = value_model_of(policy, seed=0)
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert not model.training
    assert policy.model.training
    assert not policy.model.get_input_embeddings().weight.requires_grad


def test_the_head_is_drawn_from_its_seed_alone_and_starts_near_zero() -> None:
    policy = tiny_policy("gpt2")
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first, again, other = (head_of(value_model_of(policy, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, other.weight)
    assert first.bias.tolist() == [0.0]
    # GPT-2's last hidden state has mean square 1, so that values have a standard deviation of 0.01.
    assert 0 < logits(value_model_of(policy, seed=1)).abs().max() < 0.05


def test_the_scale_of_the_head_falls_with_the_width(llama_directory: Path) -> None:
    weights = [
        head_of(value_model_of(load_policy(ModelSettings(path=str(llama_directory)), seed=0), seed=seed)).weight
        for seed in range(40)
    ]
    # 40 draws of 32 numbers of standard deviation 0.01 / sqrt(32), known to 2 %
    assert torch.cat(weights).std().item() == pytest.approx(0.01 / 32**0.5, rel=0.1)


def test_with_lora_it_is_the_base_model_however_far_the_adapter_has_come(llama_directory: Path) -> None:
    policy = lora_policy(llama_directory, lora=LoraSettings(rank=4, dropout=0.5))
    start = value_model_of(policy, seed=0)
    move(policy)
    moved = logits(policy.model)
    model = value_model_of(policy, seed=0)
    plain = value_model_of(load_policy(ModelSettings(path=str(llama_directory)), seed=0), seed=0)
    weights = dict(plain.named_parameters())
    for found in (start, model):
        assert dict(found.named_parameters()).keys() == weights.keys()
        assert all(torch.equal(parameter, weights[name]) for name, parameter in found.named_parameters())
        assert all(parameter.requires_grad for parameter in found.parameters())
    assert torch.equal(logits(policy.model), moved)
    assert policy.adapter is not None
    with policy.adapter.disable_adapter():
        assert not torch.equal(logits(policy.model), moved)


def bfloat16_policy() -> Policy:
    return tiny_policy("llama", dtype=torch.bfloat16)


def test_behind_bfloat16_the_head_does_not_round() -> None:
    model = value_model_of(bfloat16_policy(), seed=0)
    assert model.dtype == torch.bfloat16
    with torch.no_grad():
        head_of(model).weight.zero_()
        head_of(model).bias.fill_(0.7)  # 0.69921875 in bfloat16
    assert torch.equal(logits(model), torch.full((1, 6, 1), 0.7))


def test_bfloat16_arithmetic_leaves_the_head_alone() -> None:
    model = value_model_of(tiny_policy("llama"), seed=0)
    with torch.no_grad():
        head_of(model).weight.zero_()
        head_of(model).bias.fill_(0.7)
        with torch.autocast("cpu", torch.bfloat16):
            found = model(input_ids=IDS).logits
    assert torch.equal(found, torch.full((1, 6, 1), 0.7))


def test_a_float64_policy_gets_a_float64_head() -> None:
    assert head_of(value_model_of(tiny_policy("gpt2", dtype=torch.float64), seed=0)).weight.dtype == torch.float64
