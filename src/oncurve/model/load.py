"""Load a policy: resolve the source, check everything, attach LoRA."""

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from oncurve.model.border import quiet, reading
from oncurve.model.checks import check_causal, check_complete, check_finite, check_vocabulary, num_embeddings
from oncurve.model.lora import attach_adapter
from oncurve.model.policy import Policy
from oncurve.model.precision import choose_attention, choose_device, choose_dtype, has_fast_bfloat16
from oncurve.model.settings import ModelSettings
from oncurve.model.source import resolve_directory
from oncurve.model.terminators import find_context_length, find_terminators

LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""Nothing is fetched, and no code from a model directory is run (left open, transformers would ask on the terminal)."""


def load_policy(settings: ModelSettings, *, seed: int) -> Policy:
    """The starting policy of a run, in eval mode, with dropout off.

    Args:
        settings: source, precision, LoRA.
        seed: draws LoRA's A matrices. The global random state is left as it was.

    Raises:
        ModelError: the source is missing or incomplete, the tokenizer has no end-of-sequence token or does not fit
            the weights, a weight is missing, NaN or inf, the model looks ahead.
        StorageError: the cache for converted models cannot be written.
    """
    policy = _load_full(settings, resolve_directory(settings.path))
    if settings.freeze_embeddings:
        freeze_embeddings(policy.model)
    if settings.lora is not None:
        policy.adapter = attach_adapter(policy.model, settings.lora, seed=seed)
    return policy


def load_config(directory: Path) -> PreTrainedConfig:
    """The model's config.

    Raises:
        ModelError: it cannot be read, or describes an architecture that transformers does not know.
    """
    with reading(str(directory / "config.json")):
        config: PreTrainedConfig = AutoConfig.from_pretrained(directory, **LOCAL)
    return config


def skeleton(config: PreTrainedConfig, source: Path) -> PreTrainedModel:
    """The model with shapes and no memory behind them, to count and to plan with.

    Raises:
        ModelError: the config is not that of a causal language model.
    """
    with reading(f"{source / 'config.json'} as a causal language model"), torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    return model


def freeze_embeddings(model: PreTrainedModel) -> None:
    """Train everything but the embedding of tokens, and but an output head that is tied to it."""
    model.get_input_embeddings().weight.requires_grad_(False)


def resolve_dtype(settings: ModelSettings, model: torch.nn.Module) -> torch.dtype:
    """The precision that ``settings.dtype`` means for this model on this machine."""
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    has_bfloat16 = has_fast_bfloat16(choose_device(settings.device))
    return choose_dtype(settings.dtype, num_parameters=num_parameters, has_bfloat16=has_bfloat16)


def settled(settings: ModelSettings) -> ModelSettings:
    """The same settings with the precision that ``auto`` means here written out: it rests on a measurement, and whoever
    continues the run must not measure again.

    Raises:
        ModelError: as ``load_policy``.
    """
    directory = resolve_directory(settings.path)
    dtype = resolve_dtype(settings, skeleton(load_config(directory), directory))
    return settings.model_copy(update={"dtype": str(dtype).removeprefix("torch.")})


def _load_full(settings: ModelSettings, directory: Path) -> Policy:
    tokenizer = _load_tokenizer(directory)
    model = _load_model(settings, directory)
    check_vocabulary(model, tokenizer, directory)
    check_causal(model, directory)
    terminators = find_terminators(
        tokenizer,
        model.generation_config,
        num_embeddings=num_embeddings(model),
        source=directory,
    )
    context_length = find_context_length(model.config, tokenizer, source=directory)
    return Policy(model=model, tokenizer=tokenizer, terminators=terminators, context_length=context_length)


def _load_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    with reading(f"the tokenizer in {directory}"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(directory, **LOCAL)
    return tokenizer


def _load_model(settings: ModelSettings, directory: Path) -> PreTrainedModel:
    device = choose_device(settings.device)
    dtype = resolve_dtype(settings, skeleton(load_config(directory), directory))
    options: dict[str, Any] = {
        "dtype": dtype,  # not .to(dtype) afterwards, which would round the buffers of rotary embeddings as well
        "attn_implementation": choose_attention(settings.attention, dtype, device),
        **LOCAL,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # so that they are reported, and refused by name
    }
    with reading(f"the weights in {directory}"), torch.random.fork_rng(devices=[]):
        loaded: Any = _from_pretrained(directory, options, may_change_attention=settings.attention == "auto")
    model: PreTrainedModel = loaded[0]
    check_complete(loaded[1], directory)
    check_finite(model, directory)
    _turn_off_dropout(model)
    if settings.gradient_checkpointing:
        with quiet():  # newer versions have another name for it
            model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[no-untyped-call]
    torch.nn.Module.to(model, device)
    model.train(False)
    return model


def _from_pretrained(directory: Path, options: dict[str, Any], *, may_change_attention: bool) -> Any:
    """Load with the chosen attention, or with eager attention where the architecture has no other."""
    try:
        return AutoModelForCausalLM.from_pretrained(directory, **options)
    except ValueError as error:
        if not may_change_attention or "scaled_dot_product_attention" not in str(error):
            raise
    return AutoModelForCausalLM.from_pretrained(directory, **{**options, "attn_implementation": "eager"})


def _turn_off_dropout(model: torch.nn.Module) -> None:
    """A dropped unit would make the trainer's log-probs differ from the sampler's. config.json keeps its values."""
    module: Any
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0  # read at each call by the Llama family
