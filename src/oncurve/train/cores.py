"""How the cores of the machine are divided between the engine, the learner and the verifiers.

    engine and learner    take turns, each with all threads of tensor work: ``threads``, or one a core
    verifiers             a pool of processes, as many as ``num_workers`` says, or one a core, and no more at a time
                          than calls are waiting; the thread that hands them out mostly sleeps

While sampling goes on, a pool and the engine share the cores; the system divides the time. Taking threads away from the
engine would slow every rollout for the sake of those whose verifier computes much. Tensor threads wait without
spinning, so that a waiting engine costs a verifier nothing.
"""

from dataclasses import asdict, dataclass
from typing import Any

from oncurve.config import RunConfig
from oncurve.model.threads import available_cores
from oncurve.rollout import unit_of
from oncurve.rollout.judging import Unit
from oncurve.verify import TASK
from oncurve.verify.reward_function import RewardFunctionSettings, is_function_name
from oncurve.verify.rewards import ComponentSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class CorePlan:
    """Who may use how much at the same time."""

    cores: int
    """That this process may use."""
    tensor_threads: int
    """Of the engine while it samples, and of the learner while it updates."""
    verifier_processes: int
    """Most processes of one verifier or reward function."""
    judged_while_sampling: Unit
    """What goes to the verifiers before sampling has ended; ``rollout``: nothing."""

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)

    def sentence(self) -> str:
        """For people."""
        when = (
            "after sampling"
            if self.judged_while_sampling == "rollout"
            else f"by whole {self.judged_while_sampling}s while others are sampled"
        )
        return (
            f"{self.cores} cores: {self.tensor_threads} threads for the engine, then for the learner; at most "
            f"{self.verifier_processes} processes of a verifier, which judges {when}"
        )


def plan_cores(config: RunConfig) -> CorePlan:
    """Divide the cores that this process may use, as a run of this config would."""
    cores = available_cores()
    return CorePlan(
        cores=cores,
        tensor_threads=config.threads or cores,
        verifier_processes=max(_num_processes(one, cores) for one in config.reward.components.values()),
        judged_while_sampling=unit_of(config.rollout.overlap, config.reward),
    )


def _num_processes(component: ComponentSettings, cores: int) -> int:
    if is_function_name(component.verifier):
        return RewardFunctionSettings.model_validate(component.options).num_workers or cores
    tables = component.options.values() if component.verifier == TASK else [component.options]
    wanted = [table.get("num_workers") or table.get("sandbox", {}).get("num_workers", 0) for table in tables]
    return max((number or cores for number in wanted), default=cores)
