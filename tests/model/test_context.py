"""The context length where the config is silent."""

from pathlib import Path

import pytest
from transformers import BloomConfig

from oncurve.model.embedded import character_tokenizer
from oncurve.model.terminators import find_context_length
from oncurve.types import ModelError


def test_a_silent_config_falls_back_to_the_tokenizer_and_then_fails() -> None:
    config = BloomConfig()  # relative positions: no limit of its own
    tokenizer = character_tokenizer()
    tokenizer.model_max_length = 77
    assert find_context_length(config, tokenizer, source=Path("model")) == 77
    tokenizer.model_max_length = int(1e30)
    with pytest.raises(ModelError, match="states no context length"):
        find_context_length(config, tokenizer, source=Path("model"))
