"""LoRA: low-rank matrices trained beside frozen weights.

    y = W x + (alpha / rank) · B A x      A: [rank, in], B: [out, rank], B = 0 at the start

so the adapted model starts equal to its base, and the base stays available as the reference: switch the adapter off.

Source: LoRA, arXiv:2106.09685; the implementation is peft's.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from oncurve.model.border import quiet, reading
from oncurve.model.settings import LoraSettings
from oncurve.types import ModelError, derive_seed, did_you_mean

ADAPTER_DIRECTORY = "adapter"
LINEAR = (torch.nn.Linear, Conv1D)
"""What counts as a linear layer: GPT-2 has its own class."""


def attach_adapter(model: PreTrainedModel, settings: LoraSettings, *, seed: int) -> PeftModel:
    """Put LoRA matrices into ``model`` and freeze the rest. A is drawn from ``seed``; B is 0.

    ``model`` itself is changed; the returned handle switches, saves and merges the adapter.

    Raises:
        ModelError: a name in ``target_modules`` fits no layer.
    """
    _check_targets(model, settings)
    config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]  # peft divides by the rank, so a float is fine
        lora_dropout=settings.dropout,
        target_modules=settings.target_modules
        if isinstance(settings.target_modules, str)
        else [*settings.target_modules],
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
    )
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("lora", seed))
        adapter = get_peft_model(model, config)
    adapter.eval()
    return adapter


def _check_targets(model: PreTrainedModel, settings: LoraSettings) -> None:
    if isinstance(settings.target_modules, str):
        return
    known = linear_names(model)
    for name in settings.target_modules:
        if name not in known:
            raise ModelError(
                f"model.lora.target_modules names {name!r}, which is no linear layer of this model."
                f"{did_you_mean(name, known)} It has: {', '.join(known)}."
            )


def linear_names(model: PreTrainedModel) -> list[str]:
    """Last parts of the names of the model's linear layers, each once, in their order."""
    layers = (name for name, module in model.named_modules() if isinstance(module, LINEAR))
    return list(dict.fromkeys(name.rpartition(".")[2] for name in layers))


def restore_adapter(adapter: PeftModel, directory: Path) -> None:
    """Read the matrices of a saved adapter into ``adapter``.

    Args:
        directory: what ``PeftModel.save_pretrained`` wrote.

    Raises:
        ModelError: the file is missing or broken, or belongs to other LoRA settings.
    """
    file = directory / "adapter_model.safetensors"
    with reading(f"the LoRA adapter {file}"):
        saved = load_file(file)
    _check_same(file, _shapes(get_peft_model_state_dict(adapter)), _shapes(saved))
    set_peft_model_state_dict(adapter, saved)


def _shapes(state: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in state.items()}


def _check_same(file: Path, wanted: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]]) -> None:
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            raise ModelError(
                f"{file} does not fit model.lora: {name} has shape {found.get(name)}, {wanted.get(name)} is needed. "
                "Resume with the rank and target_modules the run was started with."
            )
