"""A model whose log-probs depend on later tokens samples otherwise than it is trained: it is refused, and only it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertLMHeadModel,
    MambaConfig,
    MambaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    RobertaConfig,
    RobertaForCausalLM,
)

from oncurve.model import ModelSettings, load_policy
from oncurve.model.embedded import character_tokenizer
from oncurve.types import ModelError

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "eos_token_id": 0,
}


def build(name: str, vocab_size: int) -> PreTrainedModel:
    shape = {"vocab_size": vocab_size, **SHAPE}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        match name:
            case "bert":
                return BertLMHeadModel(BertConfig(**shape))
            case "roberta":
                return RobertaForCausalLM(RobertaConfig(**shape, pad_token_id=1))
            case "bert, a decoder":
                return BertLMHeadModel(BertConfig(**shape, is_decoder=True))
            case "mixtral":  # later tokens share experts with earlier ones
                return MixtralForCausalLM(MixtralConfig(**shape, num_key_value_heads=2, num_local_experts=2))
            case _:
                return MambaForCausalLM(MambaConfig(**shape, state_size=4))


def later_token_matters(model: PreTrainedModel) -> bool:
    """Asked by changing it, not by a derivative."""
    ids = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 9]])
    with torch.no_grad():
        first, second = model.train(False)(ids).logits[:, :3]
    return not torch.allclose(first, second, atol=1e-6)


def save(model: PreTrainedModel, directory: Path) -> None:
    model.save_pretrained(directory)
    character_tokenizer().save_pretrained(directory)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_an_encoder_is_refused_with_what_is_wrong(name: str, dtype: str, tmp_path: Path) -> None:
    model = build(name, len(character_tokenizer()))
    assert later_token_matters(model)
    save(model, tmp_path)
    with pytest.raises(ModelError, match=rf"{type(model).__name__}, looks ahead: .*\"is_decoder\": true"):
        load_policy(ModelSettings(path=str(tmp_path), dtype=dtype), seed=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["bert, a decoder", "mixtral", "mamba"])
def test_a_model_that_looks_back_only_is_loaded(
    name: str, dtype: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = build(name, len(character_tokenizer()))
    assert not later_token_matters(model)
    save(model, tmp_path)
    capfd.readouterr()
    policy = load_policy(ModelSettings(path=str(tmp_path), dtype=dtype), seed=0)
    assert all(weight.grad is None for weight in policy.model.parameters())
    assert capfd.readouterr().err == ""
