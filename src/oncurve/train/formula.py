"""The formula of a run, by its method."""

from oncurve.algo import describe_critic, describe_objective, describe_preference, describe_supervised
from oncurve.algo.formula import wrapped
from oncurve.config import RunConfig
from oncurve.types import Sampling


def formula_of(config: RunConfig) -> str:
    """The formula that a run of this config optimises."""
    if config.method == "dpo":
        return str(describe_preference(config.dpo, batch_size=config.dpo.batch_size))
    if config.method == "sft":
        return str(describe_supervised(batch_size=config.sft.batch_size, steps=config.steps, lr=config.learner.lr))
    sampling = config.rollout.sampling
    policy = str(
        describe_objective(
            config.objective,
            group_size=config.rollout.group_size,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
        )
    )
    parts = [policy]
    if sampling.is_filtered:
        parts.append(_filter_of(sampling))
    if config.objective.advantage.estimator == "gae":
        parts.append(_critic_of(config))
    return "\n\n".join(parts)


def _filter_of(sampling: Sampling) -> str:
    """What is drawn is not what the formula has the log-probs of."""
    default = Sampling()
    filters = [name for name in ("top_p", "top_k", "min_p") if getattr(sampling, name) != getattr(default, name)]
    drawn = ", ".join(f"{name} = {getattr(sampling, name)}" for name in filters)
    text = (
        f"tokens are drawn with {drawn}, from the likeliest alone; l and old are log-probs of the whole distribution: "
        "the rollout is off-policy, and the gradient above is that of other samples."
    )
    return f"sampling\n{wrapped(text)}"


def _critic_of(config: RunConfig) -> str:
    critic = config.critic
    lines = describe_critic(
        config.objective.advantage,
        value_clip=critic.value_clip,
        lr=critic.lr,
        warmup_rollouts=critic.warmup_rollouts,
    )
    return "\n".join(["the critic minimises", *map(wrapped, lines)])
