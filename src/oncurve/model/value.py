"""The value model: a copy of the policy whose head gives one number a position instead of a vocabulary of logits.

Shapes: d hidden width.
"""

import copy
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from oncurve.model.policy import Policy
from oncurve.types import derive_seed

HEAD_SCALE = 0.01
"""The first values are about this times the root mean square of the last hidden state: near 0, where rewards are 1."""


class ValueHead(torch.nn.Linear):
    """One linear unit, in float32 or better also behind a bfloat16 body, which would round a value of 0.5 by 0.002."""

    def forward(self, hidden: Tensor) -> Tensor:
        """From hidden states [..., d] to values [..., 1]."""
        with torch.autocast(hidden.device.type, enabled=False):
            return super().forward(hidden.to(self.weight.dtype))


def value_model_of(policy: Policy, *, seed: int) -> PreTrainedModel:
    """A critic's network: the policy's body, copied, under a new head [1, d]. The policy stays as it is.

    Its "logits" are [..., 1]: the one at the position that predicts a token is the value of that token, what is to be
    expected before it is sampled. Every weight is trained, nothing is shared with the policy or tied, and soft-capping
    of the logits (Gemma) is off.

    With LoRA the copy is the *base* model, trained in full: an adapter starts with no effect, so a critic made at the
    start of a run begins as the policy does, and the base is still the same when the run is resumed.

    Args:
        policy: gives architecture, weights, precision and device.
        seed: draws the head's weights, N(0, (0.01)^2 / d); its bias starts at 0. The global random state is left as it
            was.
    """
    source: Any = policy.model if policy.adapter is None else policy.adapter
    model: Any = copy.deepcopy(source)
    if policy.adapter is not None:
        model = model.unload()
    model.set_output_embeddings(_new_head(model, seed))
    config = model.config.get_text_config(decoder=True)
    config.tie_word_embeddings = model.config.tie_word_embeddings = False
    if getattr(config, "final_logit_softcapping", None) is not None:
        config.final_logit_softcapping = None
    value_model: PreTrainedModel = model.train(False).requires_grad_(True)  # a copied parameter has no .grad
    return value_model


def _new_head(model: Any, seed: int) -> ValueHead:
    old = model.get_output_embeddings().weight
    dtype = torch.promote_types(old.dtype, torch.float32)
    head: ValueHead = torch.nn.utils.skip_init(  # type: ignore[no-untyped-call]
        ValueHead, old.shape[1], 1, dtype=dtype
    )
    generator = torch.Generator().manual_seed(derive_seed("value-head", seed))
    with torch.no_grad():
        head.weight.normal_(std=HEAD_SCALE / old.shape[1] ** 0.5, generator=generator)
        head.bias.zero_()
    return head.to(old.device)
