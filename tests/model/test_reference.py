"""The reference stays where the run started, also when the run is resumed."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from oncurve.model import (
    LoraSettings,
    ModelSettings,
    Policy,
    load_policy,
    reference_of,
    weights_fingerprint,
)
from tests.model.directories import save_llama
from tests.model.test_save import logits, move, snapshot

KINDS = pytest.mark.parametrize("lora", [None, LoraSettings(rank=4, dropout=0.5)])


def started(directory: Path, lora: LoraSettings | None) -> tuple[ModelSettings, Policy]:
    settings = ModelSettings(path=str(directory), lora=lora)
    return settings, load_policy(settings, seed=0)


@KINDS
def test_training_moves_the_policy_and_not_the_reference(llama_directory: Path, lora: LoraSettings | None) -> None:
    _, policy = started(llama_directory, lora)
    before = logits(policy.model)
    reference = reference_of(policy)
    move(policy)
    with reference.weights() as model:
        assert torch.equal(logits(model), before)
    assert not torch.equal(logits(policy.model), before)


@KINDS
def test_after_the_block_everything_is_as_before(llama_directory: Path, lora: LoraSettings | None) -> None:
    _, policy = started(llama_directory, lora)
    reference = reference_of(policy)
    policy.model.train()
    before = snapshot(policy)
    with reference.weights() as model:
        assert not model.training
        assert not model(torch.tensor([[1, 2]])).logits.requires_grad
    with pytest.raises(IndexError), reference.weights() as model:
        model(torch.tensor([[10_000]]))  # no such token
    after = snapshot(policy)
    assert after["modes"] == before["modes"]
    assert after["trained"] == before["trained"]
    assert torch.is_grad_enabled()


def test_with_lora_nothing_is_copied_and_without_everything_is_frozen(llama_directory: Path) -> None:
    _, policy = started(llama_directory, LoraSettings())
    assert reference_of(policy).model is policy.model
    _, policy = started(llama_directory, None)
    policy.model(torch.tensor([[1, 2]])).logits.sum().backward()
    reference = reference_of(policy)
    assert reference.model is not policy.model
    assert not any(parameter.requires_grad for parameter in reference.model.parameters())
    assert all(parameter.grad is None for parameter in reference.model.parameters())


@KINDS
def test_the_starting_directory_gives_the_same_reference_again(
    llama_directory: Path, lora: LoraSettings | None
) -> None:
    settings, policy = started(llama_directory, lora)
    reference = reference_of(policy)
    move(policy)
    again = load_policy(settings, seed=0)
    assert weights_fingerprint(again) == weights_fingerprint(reference)
    with reference.weights() as model:
        assert torch.equal(logits(model), logits(again.model))


@KINDS
def test_a_starting_directory_that_changed_is_noticed(tmp_path: Path, lora: LoraSettings | None) -> None:
    save_llama(tmp_path)
    settings, policy = started(tmp_path, lora)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    weights["model.norm.weight"][0] += 1e-3
    save_file(weights, file, metadata={"format": "pt"})
    assert weights_fingerprint(load_policy(settings, seed=0)) != weights_fingerprint(policy)


def test_the_fingerprint_sees_one_bit_and_not_the_adapter(llama_directory: Path) -> None:
    _, policy = started(llama_directory, LoraSettings())
    reference = reference_of(policy)
    first = weights_fingerprint(reference)
    move(policy)
    assert weights_fingerprint(reference) == first
    with torch.no_grad():
        policy.model.model.norm.weight[0] = torch.nextafter(policy.model.model.norm.weight[0], torch.tensor(9.0))
    assert weights_fingerprint(reference) != first


def test_weights_that_are_not_trained_are_shared_and_not_copied(llama_directory: Path) -> None:
    policy = load_policy(ModelSettings(path=str(llama_directory), freeze_embeddings=True), seed=0)
    theirs = dict(reference_of(policy).model.named_parameters())
    for name, weight in policy.model.named_parameters():
        assert (theirs[name] is weight) is not weight.requires_grad
        assert not theirs[name].requires_grad
        assert torch.equal(theirs[name], weight)
    assert sum(weight.requires_grad for weight in policy.model.parameters()) == len(theirs) - 1
