"""The formula of a run, by its method."""

from oncurve.algo import describe_objective, describe_preference, describe_supervised
from oncurve.config import RunConfig


def formula_of(config: RunConfig) -> str:
    """The formula that a run of this config optimises."""
    if config.method == "dpo":
        return str(describe_preference(config.dpo, batch_size=config.dpo.batch_size))
    if config.method == "sft":
        return str(describe_supervised(batch_size=config.sft.batch_size, steps=config.steps, lr=config.learner.lr))
    sampling = config.rollout.sampling
    return str(
        describe_objective(
            config.objective,
            group_size=config.rollout.group_size,
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
        )
    )
