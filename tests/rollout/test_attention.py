"""Attention without copies is the attention it stands for."""

from types import SimpleNamespace

import pytest
import torch
from transformers import Gemma2Config, GPT2Config, LlamaConfig, Qwen3Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import eager_attention_forward

from oncurve.rollout.attention import grouped_eager_attention, has_llama_attention


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_queries", [1, 4])
@pytest.mark.parametrize("is_masked", [False, True])
def test_it_is_eager_attention_for_heads_that_share_keys(dtype, num_queries, is_masked):
    draws = torch.Generator().manual_seed(0)
    query = torch.randn(2, 6, num_queries, 8, generator=draws).to(dtype)
    storage = torch.randn(2, 2, 2, 12, 8, generator=draws).to(dtype)  # keys and values, with columns to spare
    key, value = storage[0, :, :, :9], storage[1, :, :, :9]
    mask = None
    if is_masked:
        mask = torch.zeros(2, 1, num_queries, 9, dtype=dtype)
        mask[1, :, :, :3] = torch.finfo(dtype).min
        mask[0, :, 0, 8] = torch.finfo(dtype).min
    module = SimpleNamespace(num_key_value_groups=3, training=False)
    expected, _ = eager_attention_forward(module, query, key, value, mask, scaling=0.3)
    mixed, weights = grouped_eager_attention(module, query, key, value, mask, scaling=0.3)
    assert weights is None
    assert mixed.dtype == dtype
    assert mixed.is_contiguous()
    # In bfloat16 both round at the same places, so they differ by the order of a sum at most: one unit in 2^-8.
    torch.testing.assert_close(mixed, expected, atol=1e-6 if dtype is torch.float32 else 2**-8, rtol=0)


def test_dropout_is_refused():
    states = torch.zeros(1, 1, 1, 2)
    with pytest.raises(ValueError, match=r"dropout is 0.1, but .* sampling only"):
        grouped_eager_attention(torch.nn.Identity(), states, states, states, None, scaling=1.0, dropout=0.1)


@pytest.mark.parametrize(
    ("config", "is_llama"),
    [(LlamaConfig, True), (Qwen3Config, True), (Gemma2Config, False), (GPT2Config, False)],
)
def test_a_family_with_attention_of_its_own_is_told_apart(config, is_llama):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config(num_hidden_layers=1, attn_implementation="eager"))
    assert has_llama_attention(model) is is_llama
