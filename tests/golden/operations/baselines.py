"""Section 6: critic, preference learning, imitation."""

import torch

from oncurve import algo
from tests.golden.operations.shared import Inputs, Operation, Outputs, flags, real, value_and_gradient


def ppo_value_loss(inputs: Inputs) -> Outputs:
    old, returns, clip = real(inputs["old_values"]), real(inputs["returns"]), inputs["clip"]
    mask = torch.ones_like(old, dtype=torch.bool)
    value, gradient = value_and_gradient(
        lambda values: algo.clipped_value_loss(values, old, returns, clip=clip).mean(), inputs["values"]
    )
    fraction = algo.value_clip_fraction(real(inputs["values"]), old, returns, mask, clip=clip)
    return {"loss": value.item(), "clip_frac": fraction, "grad_values": gradient}


def ppo_explained_variance(inputs: Inputs) -> Outputs:
    values = real(inputs["values"])
    found = algo.explained_variance(values, real(inputs["returns"]), torch.ones_like(values, dtype=torch.bool))
    return {"explained_variance": found}


def dpo_loss(inputs: Inputs) -> Outputs:
    variant = "sigmoid" if inputs["variant"] in ("cdpo", "dpo") else inputs["variant"]
    used = {"beta": True, "gamma": variant == "simpo", "label_smoothing": variant not in ("ipo", "hinge")}
    numbers = {name: inputs[name] for name, is_used in used.items() if is_used and name in inputs}
    settings = algo.PreferenceSettings(variant=variant, **numbers)
    chosen, rejected = (real([inputs[name]]).requires_grad_() for name in ("chosen", "rejected"))
    found = algo.preference_loss(
        settings,
        chosen=chosen,
        rejected=rejected,
        ref_chosen=real([inputs.get("ref_chosen") or 0.0]),
        ref_rejected=real([inputs.get("ref_rejected") or 0.0]),
        len_chosen=torch.tensor([inputs.get("len_chosen", 1)]),
        len_rejected=torch.tensor([inputs.get("len_rejected", 1)]),
    )
    gradients = torch.autograd.grad(found.loss.sum(), [chosen, rejected])
    return {
        "loss": found.loss.item(),
        "grad_chosen": gradients[0].item(),
        "grad_rejected": gradients[1].item(),
        "reward_margin": found.margin.item(),
    }


def rm_bradley_terry(inputs: Inputs) -> Outputs:
    rejected, accuracy = real(inputs["rejected"]), []
    margin = real(inputs["margin"]) if inputs.get("margin") is not None else None

    def loss(chosen: torch.Tensor) -> torch.Tensor:
        found = algo.reward_model_loss(chosen, rejected, margin=margin, center=inputs.get("center", 0.0))
        accuracy.append(found.accuracy)
        return found.loss

    value, gradient = value_and_gradient(loss, inputs["chosen"])
    return {"loss": value.item(), "accuracy": accuracy[0], "grad_chosen": gradient}


def sft_raft(inputs: Inputs) -> Outputs:
    logprobs, mask = real(inputs["logp"]), flags(inputs["mask"])
    selected = algo.raft_selection(real(inputs["rewards"])[:, None], threshold=inputs["threshold"]).flatten()
    return {
        "selected": selected.nonzero().flatten().tolist(),
        "raft_loss": algo.mean_nll(logprobs, mask, selected).item(),
        "sft_loss": algo.mean_nll(logprobs, mask).item(),
    }


OPERATIONS: dict[str, Operation] = {
    "dpo.loss": dpo_loss,
    "ppo.explained_variance": ppo_explained_variance,
    "ppo.value_loss": ppo_value_loss,
    "rm.bradley_terry": rm_bradley_terry,
    "sft.raft": sft_raft,
}
