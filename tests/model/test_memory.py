"""The memory estimate: exact where shapes decide, near where activations do."""

from pathlib import Path
from typing import Any

import pytest
import torch

from oncurve.model import (
    LoraSettings,
    ModelSettings,
    Workload,
    estimate_memory,
    fresh_embedded_policy,
    load_policy,
    save_policy,
)
from oncurve.types import ModelError

TOKENS = 2 * 48


def workload(**changes: Any) -> Workload:
    options = {"rows": 5, "row_tokens": 48, "micro_batch_tokens": TOKENS, "logits_bytes": 7_000, "has_reference": True}
    return Workload.model_validate({**options, **changes})


def settings(directory: Path, **changes: Any) -> ModelSettings:
    return ModelSettings.model_validate({"path": str(directory), **changes})


@pytest.fixture(scope="module")
def gpt2_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("gpt2")
    save_policy(fresh_embedded_policy(0), directory)
    return directory


def num_parameters(directory: Path) -> int:
    model = load_policy(settings(directory), seed=0).model
    return sum(parameter.numel() for parameter in model.parameters())


def test_full_training_in_float32(llama_directory: Path) -> None:
    n = num_parameters(llama_directory)
    estimate = estimate_memory(settings(llama_directory), workload())
    assert estimate.weights == estimate.reference == estimate.gradients == 4 * n
    assert estimate.optimizer == 8 * n
    # keys and values: 2 layers * 2 kv heads * width 8, 4 bytes, 5 rows of 48 tokens
    assert estimate.kv_cache == 2 * 2 * 2 * 8 * 4 * 5 * 48
    assert estimate.logits == 7_000


def test_full_training_in_bfloat16_adds_float32_masters_and_gradient_sums(llama_directory: Path) -> None:
    n = num_parameters(llama_directory)
    estimate = estimate_memory(settings(llama_directory, dtype="bfloat16"), workload())
    assert estimate.weights == estimate.reference == 2 * n
    assert estimate.gradients == 6 * n
    assert estimate.optimizer == 12 * n


def test_lora_needs_no_reference_and_little_optimizer(llama_directory: Path) -> None:
    n = num_parameters(llama_directory)
    lora = settings(llama_directory, dtype="bfloat16", lora=LoraSettings(rank=3).model_dump())
    estimate = estimate_memory(lora, workload())
    trained = 2 * 464 * 3  # see test_lora
    assert estimate.weights == 2 * n + 4 * trained
    assert estimate.reference == 0
    assert estimate.gradients == 4 * trained
    assert estimate.optimizer == 8 * trained


def test_without_a_kl_term_there_is_no_reference(llama_directory: Path) -> None:
    assert estimate_memory(settings(llama_directory), workload(has_reference=False)).reference == 0


def test_the_peak_is_the_lasting_parts_and_the_larger_of_sampling_and_updating(llama_directory: Path) -> None:
    for changes in ({"rows": 10_000}, {"micro_batch_tokens": 1_000_000}):
        estimate = estimate_memory(settings(llama_directory), workload(**changes))
        parts = estimate.parts()
        sampling, updating = parts.pop("kv_cache"), parts.pop("activations") + parts.pop("logits")
        assert estimate.peak == sum(parts.values()) + max(sampling, updating)
        assert (sampling > updating) is ("rows" in changes)


@pytest.mark.parametrize("family", ["llama_directory", "gpt2_directory"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_activations_are_near_what_the_backward_pass_keeps(
    family: str, attention: str, request: pytest.FixtureRequest
) -> None:
    chosen = settings(request.getfixturevalue(family), attention=attention)
    model = load_policy(chosen, seed=0).model
    ours = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.base_model(torch.ones(2, 48, dtype=torch.long), use_cache=False)
    measured = sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in ours)
    assert 1 / 1.6 < estimate_memory(chosen, workload()).activations / measured < 1.6


def test_checkpointing_keeps_one_input_a_layer_and_one_layer(llama_directory: Path) -> None:
    estimate = estimate_memory(settings(llama_directory, gradient_checkpointing=True), workload())
    # 2 layers of 32, and 1.6 * 464 (the widths in test_lora) for the layer that is computed again
    assert estimate.activations == round(2 * 32 + 1.6 * 464) * 4 * TOKENS


def test_no_weight_is_read(tmp_path: Path, llama_directory: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((llama_directory / name).read_bytes())
    (tmp_path / "model.safetensors").touch()
    assert estimate_memory(settings(tmp_path), workload()) == estimate_memory(settings(llama_directory), workload())


def test_a_missing_directory_is_the_same_error_as_when_loading() -> None:
    with pytest.raises(ModelError, match="is not a directory"):
        estimate_memory(settings(Path("nowhere")), workload())
