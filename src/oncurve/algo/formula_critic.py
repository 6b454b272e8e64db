"""The printed objective of a critic."""

from oncurve.algo.advantage_settings import AdvantageSettings


def describe_critic(
    settings: AdvantageSettings, *, value_clip: float | None, lr: float, warmup_rollouts: int
) -> list[str]:
    """Write what the critic of ``gae`` minimises, beside the formula of the policy.

    Args:
        settings: gamma and lambda.
        value_clip: how far a value may move for one rollout; None does not clip.
        lr: learning rate of the critic.
        warmup_rollouts: rollouts on which only the critic learns.

    Returns:
        Lines without indentation; the first is what is minimised.
    """
    error = "(Vᵢₜ − Rᵢₜ)^2"
    if value_clip is not None:
        error = f"max({error}, (clip(Vᵢₜ, Wᵢₜ − {value_clip!r}, Wᵢₜ + {value_clip!r}) − Rᵢₜ)^2)"
    lam = "1" if settings.lam_alpha is not None else repr(settings.lam)
    lines = [
        f"0.5 · mean over the tokens of {error}, with its own weights and AdamW at lr {lr!r}",
        f"Rᵢₜ = Wᵢₜ + δᵢₜ + {settings.gamma!r}·{lam}·next(Rᵢₜ − Wᵢₜ), with δ as above",
        "Vᵢₜ: the critic as it is trained, read where token t is predicted; Wᵢₜ: before the first step on the rollout",
    ]
    if warmup_rollouts:
        lines.append(f"in the first {warmup_rollouts} rollouts only the critic is trained; the policy stays as it is")
    return lines
