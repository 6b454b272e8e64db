"""LoRA: low-rank matrices trained beside frozen weights.

    y = W x + (alpha / rank) · B A x      A: [rank, in], B: [out, rank], B = 0 at the start

so the adapted model starts equal to its base, and the base stays available as the reference: switch the adapter off.

Source: LoRA, arXiv:2106.09685; the implementation is peft's.
"""

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from oncurve.model.border import quiet
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
