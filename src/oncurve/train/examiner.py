"""The same held-out tasks for several policies, with what each of them got right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from oncurve.config import RunConfig
from oncurve.evaluate import Evaluation, evaluate_policy
from oncurve.evaluate.estimators import Comparison, paired_comparison
from oncurve.model import Policy
from oncurve.rollout import local_engine
from oncurve.rollout.reward_model import NETWORK_VERIFIERS
from oncurve.tasks import load_tasks
from oncurve.types import Status, Verdict
from oncurve.verify import Item, Scorer


@dataclass(frozen=True)
class Answers:
    """The greedy answers of one policy."""

    evaluation: Evaluation
    is_right: tuple[bool, ...]
    """By task, in the order of the held-out tasks."""

    def against(self, other: "Answers") -> Comparison:
        """This policy against another on the same tasks."""
        return paired_comparison([float(right) for right in other.is_right], [float(right) for right in self.is_right])


class Examiner:
    """Asks a policy greedily as its weights are now; close it to end the processes of reward functions.

    Args:
        config: names the tasks, the reward, the sampling.
        policy: the live one.
        num_tasks: asked, the first of the held-out split.
    """

    def __init__(self, config: RunConfig, policy: Policy, *, num_tasks: int) -> None:
        self._config = config
        self._policy = policy
        self._tasks = load_tasks(config.tasks, seed=config.seed).held_out[:num_tasks]
        self._engine = local_engine(policy, config.rollout)
        self._scorer = _Remembering(config.reward, builders=NETWORK_VERIFIERS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._scorer.close()
        self._engine.close()

    def ask(self, step: int) -> Answers:
        """Answer every task once; ``step`` is written on the evaluation."""
        evaluation = evaluate_policy(
            self._engine,
            self._scorer,
            self._tasks,
            self._policy.encode_prompt,
            sampling=self._config.rollout.sampling,
            num_samples=0,
            k=1,
            seed=self._config.seed,
            step=step,
        )
        return Answers(evaluation, tuple(verdict.status is Status.CORRECT for verdict in self._scorer.last))


class _Remembering(Scorer):
    """Keeps the verdicts of the last call, which an evaluation only counts."""

    last: Sequence[Verdict] = ()

    def score(self, items: Sequence[Item]) -> list[Verdict]:
        found = super().score(items)
        self.last = found
        return found
