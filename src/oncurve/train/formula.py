"""The formula of a run, by its method."""

from oncurve.algo import describe_critic, describe_objective, describe_preference, describe_supervised
from oncurve.algo.formula import wrapped
from oncurve.config import RunConfig


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
    return policy if config.objective.advantage.estimator != "gae" else f"{policy}\n\n{_critic_of(config)}"


def _critic_of(config: RunConfig) -> str:
    critic = config.critic
    lines = describe_critic(
        config.objective.advantage,
        value_clip=critic.value_clip,
        lr=critic.lr,
        warmup_rollouts=critic.warmup_rollouts,
    )
    return "\n".join(["the critic minimises", *map(wrapped, lines)])
