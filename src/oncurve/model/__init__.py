"""Networks: load, save and describe Hugging Face causal language models and their tokenizers."""

from oncurve.model.embedded import fresh_embedded_policy
from oncurve.model.policy import Policy

__all__ = ["Policy", "fresh_embedded_policy"]
