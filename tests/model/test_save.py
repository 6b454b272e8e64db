"""Saving: transformers loads what we wrote, and the live model does not notice."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from oncurve.model import (
    LoraSettings,
    ModelSettings,
    Policy,
    fresh_embedded_policy,
    load_policy,
    save_policy,
)
from oncurve.types import StorageError

IDS = torch.tensor([[5, 9, 2, 40, 11, 7]])


def lora_policy(directory: Path, seed: int = 0, **settings: Any) -> Policy:
    settings = {"lora": LoraSettings(rank=4, alpha=8.0), **settings}
    return load_policy(ModelSettings(path=str(directory), **settings), seed=seed)


def move(policy: Policy) -> None:
    """Change every trained weight, as training would; the change of B is what makes an adapter visible."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    result: torch.Tensor = model(IDS).logits
    return result


def snapshot(policy: Policy) -> dict[str, Any]:
    state: dict[str, Any] = {name: value.clone() for name, value in policy.model.state_dict().items()}
    state["modes"] = [module.training for module in policy.model.modules()]
    state["trained"] = [parameter.requires_grad for parameter in policy.model.parameters()]
    return state


def same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left.keys() == right.keys() and all(
        torch.equal(value, right[name]) if isinstance(value, torch.Tensor) else value == right[name]
        for name, value in left.items()
    )


def test_transformers_loads_it_with_equal_logits_ids_and_text(tmp_path: Path) -> None:
    policy = fresh_embedded_policy(3)
    move(policy)
    save_policy(policy, tmp_path)
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path).eval()), logits(policy.model))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "4,5,2:11=<think>4+5=9</think><answer>"
    assert tuple(tokenizer.encode(text)) == policy.encode_prompt(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_saving_does_not_touch_the_live_model(tmp_path: Path, llama_directory: Path, kind: str) -> None:
    settings = {} if kind == "lora" else {"lora": None}
    policy = lora_policy(llama_directory, **settings)
    move(policy)
    policy.model.train()
    before, dtype = snapshot(policy), policy.model.config.dtype
    save_policy(policy, tmp_path, dtype="bfloat16")
    assert same(snapshot(policy), before)
    assert policy.model.config.dtype == dtype


def test_every_terminator_is_in_the_generation_config_the_tokenizers_first(
    tmp_path: Path, llama_directory: Path
) -> None:
    policy = lora_policy(llama_directory, lora=None)
    policy.terminators = frozenset({9, 0, 3})
    policy.tokenizer.eos_token = policy.tokenizer.convert_ids_to_tokens(3)
    save_policy(policy, tmp_path)
    assert json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"] == [3, 0, 9]
    assert AutoModelForCausalLM.from_pretrained(tmp_path).generation_config.eos_token_id == [3, 0, 9]
    assert load_policy(ModelSettings(path=str(tmp_path)), seed=0).terminators >= {3, 0, 9}


@pytest.mark.parametrize(("do_sample", "kept"), [(True, 0.6), (False, None)])
def test_sampling_defaults_survive_unless_they_contradict_themselves(
    tmp_path: Path, do_sample: bool, kept: float | None
) -> None:
    policy = fresh_embedded_policy(0)
    policy.model.generation_config.do_sample = do_sample
    policy.model.generation_config.temperature = 0.6  # means nothing without sampling: transformers refuses to save it
    policy.model.generation_config._original_object_hash = hash(policy.model.generation_config)  # as after loading
    save_policy(policy, tmp_path)
    saved = AutoModelForCausalLM.from_pretrained(tmp_path).generation_config
    assert saved.temperature == kept
    assert saved.eos_token_id == [0]


def test_the_precision_on_disk_can_be_chosen(tmp_path: Path) -> None:
    policy = fresh_embedded_policy(0)
    save_policy(policy, tmp_path, dtype="bfloat16")
    saved = load_file(tmp_path / "model.safetensors")
    assert {value.dtype for value in saved.values()} == {torch.bfloat16}
    weight = policy.model.transformer.h[0].mlp.c_fc.weight
    assert torch.equal(saved["transformer.h.0.mlp.c_fc.weight"], weight.bfloat16())
    assert load_policy(ModelSettings(path=str(tmp_path)), seed=0).model.dtype is torch.float32


def test_the_embedded_model_fits_into_the_package(tmp_path: Path) -> None:
    save_policy(fresh_embedded_policy(0), tmp_path, dtype="bfloat16")
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 1_500_000


def test_a_saved_lora_is_merged_and_its_adapter_lies_beside_it(tmp_path: Path, llama_directory: Path) -> None:
    policy = lora_policy(llama_directory)
    move(policy)
    save_policy(policy, tmp_path)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.allclose(logits(merged), logits(policy.model), atol=1e-5)
    name = "model.layers.0.mlp.up_proj"
    adapter = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    a, b = (adapter[f"base_model.model.{name}.lora_{letter}.weight"] for letter in "AB")
    base = load_file(llama_directory / "model.safetensors")[f"{name}.weight"]
    assert torch.allclose(merged.get_parameter(f"{name}.weight"), base + 8.0 / 4 * b @ a, atol=1e-6)


def test_a_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=f"Cannot save the model to {tmp_path}/file/model"):
        save_policy(fresh_embedded_policy(0), tmp_path / "file" / "model")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json"])
def test_a_full_disk_is_one_clear_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(StorageError, match="Cannot save the model to"):
        save_policy(fresh_embedded_policy(0), tmp_path)
