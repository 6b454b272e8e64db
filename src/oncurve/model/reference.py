"""The reference: the policy as the run started, frozen. The KL term measures how far training has moved from it."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b

import torch
from peft import PeftModel
from transformers import PreTrainedModel

from oncurve.model.policy import Policy


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """The starting weights: a frozen copy, or the live model with its LoRA adapter switched off."""

    model: PreTrainedModel
    adapter: PeftModel | None = None

    @contextmanager
    def weights(self) -> Iterator[PreTrainedModel]:
        """The model with the reference weights, in eval mode and without gradients; afterwards all is as before.

        With LoRA this *is* the live model, so the policy must not be used inside the block.
        """
        was_training = self.model.training
        self.model.train(False)
        try:
            with torch.no_grad():
                if self.adapter is None:
                    yield self.model
                else:
                    with self.adapter.disable_adapter():
                        yield self.model
        finally:
            self.model.train(was_training)


def reference_of(policy: Policy) -> Reference:
    """The reference of a policy that has not been trained yet.

    With LoRA nothing is copied: the frozen weights are the reference. Without, the copy costs the model's memory again,
    but for weights that are not trained, which both share.
    """
    if policy.adapter is not None:
        return Reference(model=policy.model, adapter=policy.adapter)
    shared: dict[int, object] = {id(weight): weight for weight in policy.model.parameters() if not weight.requires_grad}
    model = copy.deepcopy(policy.model, shared).train(False).requires_grad_(False)
    for parameter in model.parameters():
        parameter.grad = None
    return Reference(model=model)


def weights_fingerprint(start: Policy | Reference) -> str:
    """A hash of the starting weights: equal exactly when names, precision and every bit are equal.

    A checkpoint does not hold the reference, so a resumed run takes it from the starting directory again; this tells
    whether that still is what it was. The matrices of a LoRA adapter are left out.

    Args:
        start: the policy before its first update, or its reference at any time.
    """
    digest = blake2b(digest_size=16)
    for name, parameter in start.model.named_parameters():
        if start.adapter is not None and parameter.requires_grad:
            continue
        digest.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}".encode())
        digest.update(parameter.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
