"""Which token earned the reward: advantages and value targets from a critic's values.

Shapes: B sequences, T positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from oncurve.algo.checks import at_least_float32, require_same_shape


@dataclass(frozen=True)
class TokenCredit:
    """Credit of each token. Both are [B, T], 0 outside the mask, without gradient."""

    advantages: Tensor
    """How much better the token was than expected; not whitened."""
    returns: Tensor
    """What the critic should have said."""


def generalized_advantages(
    token_rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    gamma: float,
    lam: float | Tensor,
    target_lam: float | Tensor | None = None,
) -> TokenCredit:
    """Spread the rewards of a sequence over its tokens with the help of a critic (GAE).

    delta_t = r_t + gamma * V_(t+1) - V_t          V after the last valid token is 0
    A_t = delta_t + gamma * lam * A_(t+1)
    return_t = A_t + V_t                           with lam = target_lam

    t + 1 is the next *valid* token: positions outside the mask carry V and A through unchanged, and nothing that stands
    there is read. At gamma = lam = 1 a return is the sum of the rewards still to come; at lam = 0 an advantage is its
    delta.

    Args:
        token_rewards: [B, T] float rewards of the tokens.
        values: [B, T] float values; that of a token is what the critic said before it was sampled.
        mask: [B, T] bool, True where the policy chose the token.
        gamma: discount a token, in [0, 1].
        lam: in [0, 1]; 1 trusts the rewards, 0 the critic. One number, or [B] one a sequence.
        target_lam: the lam of the returns; None takes ``lam``. 1 gives the critic a target that it has no part in.

    Returns:
        Advantages and returns, float32 or better.

    Raises:
        ValueError: the shapes differ or are not [B, T], gamma or a lam lies outside [0, 1], or a valid entry is NaN or
            inf.

    Source:
        arXiv:1506.02438. A lam of its own for the returns: VC-PPO, arXiv:2503.01491.
    """
    require_same_shape(token_rewards=token_rewards, values=values, mask=mask)
    if mask.ndim != 2:
        raise ValueError(f"token_rewards, values and mask must be [B, T], got {list(mask.shape)}")
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be in [0, 1], got {gamma}. 1 does not discount: the usual choice for text.")
    known, rewards = _valid("values", values, mask), _valid("token_rewards", token_rewards, mask)
    dtype = torch.promote_types(known.dtype, rewards.dtype)
    known, rewards = known.to(dtype), rewards.to(dtype)
    advantages = _advantages(rewards, known, mask, gamma, _checked("lam", lam, len(mask)))
    if target_lam is None:
        return TokenCredit(advantages, advantages + known)
    targets = _advantages(rewards, known, mask, gamma, _checked("target_lam", target_lam, len(mask)))
    return TokenCredit(advantages, targets + known)


def length_adaptive_lambda(lengths: Tensor, *, alpha: float) -> Tensor:
    """Return lam = 1 - 1 / (alpha * length), at least 0: long sequences look further ahead.

    The weights lam^k of the deltas of a sequence then add up to about alpha * length. At alpha 0.05 a sequence of up to
    20 tokens has lam 0. Use it with ``target_lam=1``, as VAPO does.

    Args:
        lengths: [B] valid tokens of the sequences.
        alpha: positive; VAPO takes 0.05.

    Returns:
        [B] float64 in [0, 1); 0 for a length of 0.

    Raises:
        ValueError: alpha is not positive.

    Source:
        VAPO, arXiv:2504.05118.
    """
    if not 0 < alpha < float("inf"):
        raise ValueError(f"alpha must be positive and finite, got {alpha}. VAPO takes 0.05.")
    return (1 - 1 / (alpha * lengths.detach().double())).clamp(min=0.0)


def _advantages(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float | Tensor) -> Tensor:
    advantages = torch.zeros_like(rewards)
    next_value = next_advantage = rewards.new_zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        here = (delta + gamma * lam * next_advantage).to(rewards.dtype)
        advantages[:, t] = torch.where(mask[:, t], here, 0.0)
        next_value = torch.where(mask[:, t], values[:, t], next_value)
        next_advantage = torch.where(mask[:, t], here, next_advantage)
    return advantages


def _valid(name: str, tensor: Tensor, mask: Tensor) -> Tensor:
    """Return the entries inside the mask and 0 outside, in float32 or better, without gradient."""
    inside = torch.where(mask, at_least_float32(tensor.detach()), 0.0)
    if not bool(inside.isfinite().all()):
        row, column = torch.nonzero(~inside.isfinite())[0].tolist()
        raise ValueError(
            f"{name}[{row}, {column}] is {inside[row, column].item()}. Token rewards and values are finite; "
            "leave a sequence without a verdict out."
        )
    return inside


def _checked(name: str, lam: float | Tensor, num_sequences: int) -> float | Tensor:
    """Return lam when it is one number, or one a sequence, in [0, 1]."""
    given = torch.as_tensor(lam)
    if list(given.shape) not in ([], [num_sequences]) or not bool(((given >= 0) & (given <= 1)).all()):
        raise ValueError(
            f"{name} must be one number in [0, 1], or [B] = [{num_sequences}] of them, got {given.tolist()}. "
            "1 trusts the rewards, 0 the critic."
        )
    return lam
