"""The ``environment`` verifier: is the environment in the state that the task asks for?"""

import json
import weakref
from collections.abc import Sequence

from oncurve.types import Episode, Settings, Status, Task, Verdict
from oncurve.verify.environments.calls import Call
from oncurve.verify.environments.stage import Stage, check_task
from oncurve.verify.items import Item, correct, no_verdict, wrong


class EnvironmentSettings(Settings):
    """No options: what counts is the task's own ``meta.environment``."""


class EnvironmentVerifier:
    """Reward 1 when the episode left its environment exactly in the goal state, else 0.

    The text of the completion is not looked at: a call that was written and not carried out changes nothing and is
    worth nothing. No verdict: the environment failed (``timeout``, ``crash``, ``error``), or there was no episode
    (``no_episode``), as for a completion out of a file.
    """

    name = "environment"

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.settings = settings
        self._stage = Stage()
        weakref.finalize(self, self._stage.close)  # it has a process only where golds were checked

    def judge(self, items: Sequence[Item]) -> list[Verdict]:
        return [_verdict(item.episode) for item in items]

    def gold_fault(self, task: Task) -> str:
        """What is wrong with a task and its gold, a list of calls as JSON that solves it; empty when nothing is."""
        try:
            calls = gold_calls(task)
        except (ValueError, TypeError, KeyError) as error:
            return f"the gold is no list of calls ({type(error).__name__}: {error})"
        return check_task(task, calls, self._stage)


def gold_calls(task: Task) -> list[Call]:
    """The calls that solve a task, as its gold lists them: ``[{"name": ..., "arguments": {...}}, ...]``."""
    return [Call(str(call["name"]), dict(call["arguments"])) for call in json.loads(task.gold)]


def _verdict(episode: Episode | None) -> Verdict:
    if episode is None:
        return no_verdict("no_episode", "nothing was carried out: an environment is judged, not the text of calls")
    if episode.status is Status.NO_VERDICT:
        return no_verdict(episode.cause or "error", episode.evidence)
    evidence = f"{episode.evidence} ({episode.num_calls} calls, {episode.num_errors} refused)"
    return correct(evidence) if episode.status is Status.CORRECT else wrong(evidence)
