"""Networks: load, save and describe Hugging Face causal language models and their tokenizers."""

from oncurve.model.embedded import embedded_directory, fresh_embedded_policy
from oncurve.model.load import load_policy, settled
from oncurve.model.memory import MemoryEstimate, Workload, estimate_memory
from oncurve.model.policy import Policy
from oncurve.model.reference import Reference, reference_of, weights_fingerprint
from oncurve.model.save import save_policy
from oncurve.model.settings import LoraSettings, ModelSettings
from oncurve.model.value import value_model_of

__all__ = [
    "LoraSettings",
    "MemoryEstimate",
    "ModelSettings",
    "Policy",
    "Reference",
    "Workload",
    "embedded_directory",
    "estimate_memory",
    "fresh_embedded_policy",
    "load_policy",
    "reference_of",
    "save_policy",
    "settled",
    "value_model_of",
    "weights_fingerprint",
]
