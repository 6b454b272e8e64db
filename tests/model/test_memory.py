"""The memory estimate: exact where shapes decide, near where activations do."""

from pathlib import Path
from typing import Any

import pytest

from oncurve.model import (
    LoraSettings,
    ModelSettings,
    Workload,
    estimate_memory,
    load_policy,
)
from oncurve.types import ModelError

TOKENS = 2 * 48


def workload(**changes: Any) -> Workload:
    options = {
        "rows": 5,
        "row_tokens": 48,
        "max_cache_tokens": 1_000_000,
        "micro_batch_tokens": TOKENS,
        "head_tokens": 40,
        "logits_chunk_bytes": 4_000,
    }
    options["has_reference"] = True
    return Workload.model_validate({**options, **changes})


def settings(directory: Path, **changes: Any) -> ModelSettings:
    return ModelSettings.model_validate({"path": str(directory), **changes})


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
    # 40 tokens of 61 logits are more than the chunk: 4,000 bytes of them, and their gradient
    assert estimate.logits == 2 * 4_000


def test_full_training_in_bfloat16_adds_float32_masters_and_gradient_sums(llama_directory: Path) -> None:
    n = num_parameters(llama_directory)
    estimate = estimate_memory(settings(llama_directory, dtype="bfloat16"), workload())
    assert estimate.weights == estimate.reference == 2 * n
    assert estimate.gradients == 6 * n
    assert estimate.optimizer == 12 * n


def test_the_cache_is_float32_on_a_processor_and_bounded_but_for_one_row(llama_directory: Path) -> None:
    a_token = 2 * 2 * 2 * 8 * 4  # as above

    def cache(**changes: Any) -> int:
        return estimate_memory(settings(llama_directory, dtype="bfloat16", device="cpu"), workload(**changes)).kv_cache

    assert cache() == a_token * 5 * 48
    assert cache(max_cache_tokens=100) == a_token * 100
    assert cache(max_cache_tokens=10) == a_token * 48


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


def test_few_completion_tokens_need_less_than_a_chunk(llama_directory: Path) -> None:
    vocabulary = load_policy(settings(llama_directory), seed=0).model.get_output_embeddings().weight.shape[0]
    few = workload(head_tokens=2, logits_chunk_bytes=10**9)
    assert estimate_memory(settings(llama_directory), few).logits == 2 * 2 * vocabulary * 4
    assert estimate_memory(settings(llama_directory, dtype="bfloat16"), few).logits == 2 * 2 * vocabulary * 2


def test_frozen_embeddings_need_no_gradient_moment_master_or_copy(llama_directory: Path) -> None:
    model = load_policy(settings(llama_directory), seed=0).model
    frozen = model.get_input_embeddings().weight.numel()
    estimate = estimate_memory(settings(llama_directory, dtype="bfloat16", freeze_embeddings=True), workload())
    n = num_parameters(llama_directory)
    assert estimate.weights == 2 * n
    assert estimate.reference == 2 * (n - frozen)
    assert estimate.gradients == 6 * (n - frozen)
    assert estimate.optimizer == 12 * (n - frozen)


def test_activations_are_what_goes_in_and_out_of_linear_layers_and_the_probabilities(llama_directory: Path) -> None:
    # Two layers of 464 (the widths in test_lora) and 4 heads of 48 probabilities, and one layer being worked on.
    values = 3 * (464 + 4 * 48)
    found = estimate_memory(settings(llama_directory), workload())
    assert found.activations == values * 4 * TOKENS


def test_many_probabilities_are_not_kept(llama_directory: Path) -> None:
    # 4 heads of 97 are more than 4 times a token's 32 queries and 2 * 2 * 8 keys and values.
    long = estimate_memory(settings(llama_directory), workload(row_tokens=97))
    assert long.activations == 3 * 464 * 4 * TOKENS


def test_checkpointing_keeps_one_input_a_layer_and_one_layer(llama_directory: Path) -> None:
    estimate = estimate_memory(settings(llama_directory, gradient_checkpointing=True), workload())
    # 2 layers of 32, and the layer that is computed again
    assert estimate.activations == (2 * 32 + 464 + 4 * 48) * 4 * TOKENS


def test_no_weight_is_read(tmp_path: Path, llama_directory: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((llama_directory / name).read_bytes())
    (tmp_path / "model.safetensors").touch()
    assert estimate_memory(settings(tmp_path), workload()) == estimate_memory(settings(llama_directory), workload())


def test_a_missing_directory_is_the_same_error_as_when_loading() -> None:
    with pytest.raises(ModelError, match="is not a directory"):
        estimate_memory(settings(Path("nowhere")), workload())
