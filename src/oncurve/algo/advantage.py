"""Rewards of a group to advantages.

Shapes: P prompts (groups), G completions a group.
"""

from torch import Tensor

from oncurve.algo import groups
from oncurve.algo.advantage_settings import AdvantageSettings
from oncurve.algo.checks import require_same_shape


def group_advantages(rewards: Tensor, settings: AdvantageSettings, *, scored: Tensor | None = None) -> Tensor:
    """Score each completion against the other completions of its prompt, by one of the three basic estimators.

    c[p, i] = r[p, i] - mean(r[p])

    - ``group_zscore``: c / (std(r[p]) + std_eps)
    - ``group_mean``: c
    - ``rloo``: r[p, i] minus the mean of the *other* members, which is c * G / (G - 1)

    The statistics run over scored members only. An unscored member gets exactly 0, and so does every member of a group
    that is all-equal (max - min <= tolerance) or has fewer than two scored members. All-equal is decided by the span:
    in float32 the std of equal rewards is rarely 0, and dividing by it makes signal out of rounding.

    Args:
        rewards: [P, G] float rewards, one row a prompt; finite wherever scored.
        settings: estimator (one of these three; ``estimate_advantages`` knows them all), ddof, std_eps, tolerance.
        scored: [P, G] bool, False where there is no verdict; None means all are scored.

    Returns:
        [P, G] advantages in the dtype of ``rewards``; each row sums to 0 up to rounding. No gradient.

    Raises:
        ValueError: rewards is not a float [P, G] with G >= 2, ``scored`` has another shape, or a scored reward is NaN
            or inf.

    Source:
        z-score: DeepSeekMath, arXiv:2402.03300, section 4.1.2. Mean only: Dr. GRPO, arXiv:2503.20783.
        Leave-one-out: arXiv:2402.14740.
    """
    values, valid = groups.checked_rewards(rewards, scored)
    centred = groups.centred(values, valid)
    if settings.estimator == "group_zscore":
        advantages = centred / (groups.std(values, valid, ddof=settings.ddof) + settings.std_eps)
    elif settings.estimator == "rloo":
        count = valid.sum(dim=1, keepdim=True)
        advantages = centred * count / (count - 1)
    else:
        advantages = centred
    silent = groups.span(values, valid) <= settings.tolerance  # also where fewer than two are scored and this is 0/0
    return groups.silenced(advantages, valid, silent).to(rewards.dtype)


def is_zero_variance(rewards: Tensor, *, tolerance: float, scored: Tensor | None = None) -> Tensor:
    """Say which groups carry no signal: max - min <= tolerance over their scored members, or fewer than two of them.

    Call it on the task reward. A reward with a length or KL term is never constant, so a filter on it keeps everything.

    Args:
        rewards: [P, G] float rewards.
        tolerance: largest span that still counts as equal, in units of reward.
        scored: [P, G] bool, False where there is no verdict; None means all are scored.

    Returns:
        [P] bool.

    Raises:
        ValueError: as ``group_advantages``.

    Source:
        Dynamic sampling of DAPO, arXiv:2503.14476, section 3.2.
    """
    return groups.span(*groups.checked_rewards(rewards, scored)) <= tolerance


def informative_scale(zero_variance: Tensor, group_sizes: Tensor) -> float:
    """Return B / (B - M), with M the completions in groups without signal.

    Multiplied into the loss it undoes the weaker step of silent groups that stay in the denominator. 1 when no group
    has signal: there is nothing to scale.

    Args:
        zero_variance: [P] bool, True where the group carries no signal.
        group_sizes: [P] completions of each group.

    Raises:
        ValueError: the shapes differ.

    Source:
        GPG, arXiv:2504.02546.
    """
    require_same_shape(zero_variance=zero_variance, group_sizes=group_sizes)
    total = int(group_sizes.sum())
    informative = int(group_sizes[~zero_variance].sum())
    return total / informative if informative else 1.0
