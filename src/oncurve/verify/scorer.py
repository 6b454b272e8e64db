"""Score completions: every component, their weighted sum, and the status that the primary component gives."""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from oncurve.types import DataError, Episode, Status, Verdict, did_you_mean
from oncurve.verify.compose import compose_rewards, gate_reward
from oncurve.verify.items import Item, Verifier, one_line
from oncurve.verify.length_rewards import stop_properly_reward
from oncurve.verify.length_shaping import LENGTH, length_values
from oncurve.verify.registry import NO_BUILDERS, Builders, build_verifier, verifier_names
from oncurve.verify.reward_function import RewardFunction, RewardFunctionSettings, is_function_name
from oncurve.verify.rewards import TASK, ComponentSettings, RewardSettings


class TaskVerifier:
    """Hands each item to the verifier that its task names. Safe to use from several threads."""

    name = TASK

    def __init__(self, options: dict[str, dict[str, Any]], builders: Builders = NO_BUILDERS) -> None:
        self._options = options
        self._builders = builders
        self._verifiers: dict[str, Verifier] = {}
        self._lock = threading.Lock()

    def verifier_of(self, name: str) -> Verifier:
        """The verifier of that name, with its options.

        Raises:
            DataError: no verifier has that name.
        """
        with self._lock:
            if name not in self._verifiers:
                if name not in verifier_names():
                    hint = did_you_mean(name, verifier_names())
                    raise DataError(
                        f"a task names the verifier {name!r}, which does not exist.{hint} "
                        f"Known: {', '.join(verifier_names())}."
                    )
                self._verifiers[name] = build_verifier(name, self._options.get(name, {}), self._builders)
            return self._verifiers[name]

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        positions: dict[str, list[int]] = {}
        for position, item in enumerate(items):
            positions.setdefault(item.task.verifier, []).append(position)
        verdicts: dict[int, Verdict] = {}
        for name, places in positions.items():
            judged = self.verifier_of(name).judge([items[place] for place in places])
            verdicts.update(zip(places, judged, strict=True))
        return [verdicts[position] for position in range(len(items))]


class Scorer:
    """Scores completions by ``RewardSettings``; owns the processes of the reward functions.

    A verdict's status, evidence and cause are the primary component's; its reward is the weighted sum of the
    components that gave a value (``compose_rewards``), or ``gated_reward`` where a gate is not passed; ``components``
    holds every raw value. Where the primary or, with all others passed, a gate has no verdict there is none. Equal
    completions of one task are judged once.

    Safe to use from several threads at the same time, with parts of a batch or with different batches: nothing is kept
    between calls but the verifiers, which are safe themselves. A verdict does not depend on what else is in its batch,
    except for ``length`` shapes that compare a group (hand those a whole group) and functions of yours that do.

    Args:
        settings: the components.
        base_dir: where relative paths of reward functions start.
        builders: what makes verifiers that run a network, by name (``oncurve.rollout.NETWORK_VERIFIERS``).

    Raises:
        ConfigError: a reward function cannot be loaded.
    """

    def __init__(self, settings: RewardSettings, *, base_dir: Path = Path(), builders: Builders = NO_BUILDERS) -> None:
        self.settings = settings
        self._builders = builders
        with ExitStack() as stack:
            self.verifiers: dict[str, Verifier] = {
                name: self._build(component, base_dir, stack) for name, component in settings.components.items()
            }
            self._stack = stack.pop_all()

    @property
    def primary(self) -> Verifier:
        """The verifier that decides right or wrong."""
        return self.verifiers[self.settings.primary_name]

    def score(self, items: Sequence[Item]) -> list[Verdict]:
        """Return one verdict an item, in the same order.

        Raises:
            DataError: a task names an unknown verifier, or holds data that a reward function cannot be sent.
        """
        keys = [_key(item) for item in items]
        distinct = dict(zip(keys, items, strict=True))
        judged = dict(zip(distinct, self._score_distinct(list(distinct.values())), strict=True))
        return self._shaped(items, [judged[key] for key in keys])

    def close(self) -> None:
        """End every process that belongs to a component. Closing twice is fine."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _build(self, component: ComponentSettings, base_dir: Path, stack: ExitStack) -> Verifier:
        if component.verifier == TASK:
            return TaskVerifier(component.options, self._builders)
        if not is_function_name(component.verifier):
            return build_verifier(component.verifier, component.options, self._builders)
        settings = RewardFunctionSettings.model_validate(component.options)
        function = RewardFunction(component.verifier, settings, timeout_s=self.settings.timeout_s, base_dir=base_dir)
        return stack.enter_context(function)

    def _score_distinct(self, items: Sequence[Item]) -> list["_Judged"]:
        if not items:
            return []
        started = time.perf_counter()
        judged = {name: verifier.judge(items) for name, verifier in self.verifiers.items()}
        seconds = (time.perf_counter() - started) / len(items)
        summed = [name for name in judged if name not in self.settings.gates]
        rows = [[judged[name][place].reward for name in summed] for place in range(len(items))]
        rewards = compose_rewards(rows, [self.settings.weights[name] for name in summed])
        return [
            self._combine({name: judged[name][place] for name in judged}, rewards[place], seconds)
            for place in range(len(items))
        ]

    def _shaped(self, items: Sequence[Item], judged: list["_Judged"]) -> list[Verdict]:
        """Add the length component, which compares the completions of a task; then what truncation costs."""
        verdicts = [one.verdict for one in judged]
        settings = self.settings.length
        if settings is not None:
            values = length_values(settings, items, verdicts)
            verdicts = [_with_length(one, value, settings.weight) for one, value in zip(judged, values, strict=True)]
        factor = self.settings.truncated_factor
        if factor == 1.0:
            return verdicts
        return [
            verdict
            if verdict.reward is None or not item.is_truncated or one.is_shut_out
            else replace(verdict, reward=stop_properly_reward(verdict.reward, is_truncated=True, factor=factor))
            for item, one, verdict in zip(items, judged, verdicts, strict=True)
        ]

    def _combine(self, parts: dict[str, Verdict], reward: float | None, seconds: float) -> "_Judged":
        """Status of the primary, reward of the sum behind the gates; what leaves no reward leaves no verdict."""
        primary = parts[self.settings.primary_name]
        gates = {name: _passed(parts[name]) for name in self.settings.gates}
        reward = gate_reward(reward, list(gates.values()), gated_reward=self.settings.gated_reward)
        shut = [f"{name} shuts it out: {parts[name].evidence}" for name, passed in gates.items() if passed is False]
        missing = [
            f"{name}: {part.cause}, {part.evidence}"
            for name, part in parts.items()
            if part is not primary and part.status is Status.NO_VERDICT
        ]
        judge = primary if reward is not None else _in_doubt(primary, parts)
        verdict = replace(
            judge,
            reward=None if judge.status is Status.NO_VERDICT else reward,
            components={name: part.reward for name, part in parts.items()},
            evidence=one_line("; ".join([primary.evidence, *shut, *missing])),
            seconds=seconds,
        )
        return _Judged(verdict, is_shut_out=bool(shut))


@dataclass(frozen=True, slots=True)
class _Judged:
    verdict: Verdict
    is_shut_out: bool
    """A gate is not passed: the reward is settled."""


def _passed(verdict: Verdict) -> bool | None:
    return None if verdict.status is Status.NO_VERDICT else verdict.status is Status.CORRECT


def _in_doubt(primary: Verdict, parts: Mapping[str, Verdict]) -> Verdict:
    """The part without a verdict that leaves no reward: the primary if it is one."""
    return next(part for part in (primary, *parts.values()) if part.status is Status.NO_VERDICT)


def _with_length(judged: _Judged, value: float | None, weight: float) -> Verdict:
    verdict = judged.verdict
    components = {**verdict.components, LENGTH: value}
    if verdict.reward is None or value is None or judged.is_shut_out:
        return replace(verdict, components=components)
    return replace(verdict, components=components, reward=verdict.reward + weight * value)


def _key(item: Item) -> tuple[str, str, str, str, tuple[int, ...], bool, Episode | None]:
    # Not the id alone: two rows of a user's file may share one.
    # Ids too: a verifier may count tokens, and one text has several tokenizations.
    task = item.task
    return task.id, task.gold, task.verifier, item.text, item.token_ids, item.is_truncated, item.episode


def num_duplicates(items: Sequence[Item]) -> int:
    """How many completions repeat the text of an earlier completion of the same task."""
    return len(items) - len({(item.task.id, item.text) for item in items})
