"""Save a policy as a directory that transformers loads without oncurve."""

import copy
from pathlib import Path
from typing import Literal

import torch
from peft import PeftModel
from safetensors import SafetensorError
from transformers import GenerationConfig, PreTrainedModel

from oncurve.model.border import quiet
from oncurve.model.lora import ADAPTER_DIRECTORY
from oncurve.model.policy import Policy
from oncurve.types import StorageError


def save_policy(policy: Policy, directory: Path, *, dtype: Literal["float32", "bfloat16"] | None = None) -> None:
    """Write weights, config, tokenizer and every terminator; the live model stays as it is.

    ``AutoModelForCausalLM`` and ``AutoTokenizer`` load the result. With LoRA the matrices are merged into a copy of the
    weights, and the adapter itself lies beside them in ``adapter/``, as peft loads it.

    Args:
        policy: what to save.
        directory: made if it does not exist; files of the same names are replaced. Not atomic: a caller that needs
            that writes to a temporary directory and renames it.
        dtype: precision of the saved weights; by default that of the live ones.

    Raises:
        StorageError: the disk is full or does not permit the write.
    """
    try:
        with quiet():
            directory.mkdir(parents=True, exist_ok=True)
            _weights_to_save(policy, dtype).save_pretrained(directory)
            _generation_config(policy).save_pretrained(directory)
            policy.tokenizer.save_pretrained(directory)
            if policy.adapter is not None:
                policy.adapter.save_pretrained(str(directory / ADAPTER_DIRECTORY))
    except Exception as error:
        if not isinstance(error, (OSError, SafetensorError)) and type(error) is not Exception:
            raise  # tokenizers reports a full disk as a bare Exception; anything else is not about the disk
        raise StorageError(
            f"Cannot save the model to {directory}: {error}. Make room, or choose another place."
        ) from error


def _weights_to_save(policy: Policy, dtype: Literal["float32", "bfloat16"] | None) -> PreTrainedModel:
    target = policy.model.dtype if dtype is None else getattr(torch, dtype)
    if policy.adapter is not None:
        return _merged(policy.adapter, target)
    if target is policy.model.dtype:
        return policy.model
    return _cast(copy.deepcopy(policy.model), target)


def _merged(adapter: PeftModel, dtype: torch.dtype) -> PreTrainedModel:
    """W + (alpha / rank) · B A, computed in float32 and rounded once, on a copy."""
    merged: PreTrainedModel = copy.deepcopy(adapter).float().merge_and_unload()
    return _cast(merged, dtype)


def _cast(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    return torch.nn.Module.to(model, dtype)


def _generation_config(policy: Policy) -> GenerationConfig:
    """The model's own sampling defaults with all terminators; defaults that contradict themselves are left out."""
    tokenizer = policy.tokenizer
    ends = sorted(policy.terminators, key=lambda token: (token != tokenizer.eos_token_id, token))
    config = copy.deepcopy(policy.model.generation_config) or GenerationConfig()  # type: ignore[no-untyped-call]
    config.eos_token_id = ends
    config._from_model_config = False  # else a reader derives it from config.json again, with one terminator
    try:
        config.validate(strict=True)
    except ValueError:
        return GenerationConfig(  # type: ignore[no-untyped-call]
            eos_token_id=ends, bos_token_id=tokenizer.bos_token_id, pad_token_id=tokenizer.pad_token_id
        )
    return config
