"""``oncurve review``: look at well paid completions that may be wrong, and keep what is found."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from oncurve.config import RunConfig, load_config
from oncurve.report import read_rollouts
from oncurve.report.review import ReviewSettings, Seen, Suspect, find_suspects, seen_rollouts
from oncurve.report.sample import prompt_text
from oncurve.rollout.reward_model import NETWORK_VERIFIERS
from oncurve.tasks import load_tasks
from oncurve.types import ConfigError, RunError, Status, Task
from oncurve.verify import TASK, RewardSettings, Scorer
from oncurve.verify.attacks import attack_item
from oncurve.verify.regressions import Mark, RegressionCase, case_id, read_cases, write_case

MOST_TASKS_SEARCHED = 50_000
KEYS = "e = exploit   f = fine   s = skip   q = quit"


class Review:
    """The queue of a run, and where decisions go.

    Args:
        run: the run folder.
        second: a component of the run's reward, a verifier or ``file.py:function`` for the second opinion; empty: the
            verifier that each task names, where the run's primary component is another one.
        exploits: folder of the cases.
        settings: thresholds.

    Raises:
        RunError: the folder is no run.
        ConfigError: the second verifier cannot be loaded.
    """

    def __init__(self, run: Path, *, second: str = "", exploits: Path, settings: ReviewSettings | None = None) -> None:
        seen = list(seen_rollouts(read_rollouts(run)))
        self._run, self._exploits = run, exploits
        self._config = load_config(run / "config.toml")
        self._tasks = _tasks_of(self._config, {one.task_id for one in seen})
        decided = {case.id for case in read_cases(exploits)}
        self.suspects = find_suspects(
            seen,
            settings,
            disagrees=self._second_opinion(second),
            witnesses=_witnesses(self._config.reward),
            is_decided=lambda one: case_id(one.prompt, one.gold, one.text) in decided,
        )

    def mark(self, suspect: Suspect, mark: Mark, why: str = "") -> Path:
        """Write a case for every later audit, and return its file."""
        seen = suspect.seen
        task = self._tasks.get(seen.task_id)
        reasons = "; ".join(reason.text for reason in suspect.reasons)
        case = RegressionCase(
            mark=mark,
            prompt=seen.prompt,
            gold=seen.gold,
            kind=seen.kind,
            verifier=task.verifier if task else "answer",
            meta=dict(task.meta) if task else {},
            completion=seen.text,
            is_truncated=seen.is_truncated,
            why=why or reasons,
            origin=f"{self._run.resolve().name}, step {seen.step}, group {seen.group}, completion {seen.index}",
        )
        return write_case(case, self._exploits)

    def find(self, identity: str) -> Suspect:
        """The entry of that id. Raises RunError when the queue has none."""
        for suspect in self.suspects:
            if suspect.seen.id == identity:
                return suspect
        known = ", ".join(suspect.seen.id for suspect in self.suspects[:8]) or "none"
        raise RunError(
            f"the queue of {self._run} has no {identity}: it was decided, or is not suspicious. It has {known}"
        )

    def _second_opinion(self, second: str) -> Callable[[Sequence[Seen]], list[str]] | None:
        primary = self._config.reward.components[self._config.reward.primary_name]
        if not second and primary.verifier == TASK:
            return None
        settings = _second_settings(self._config.reward, second or TASK)

        def ask(seen: Sequence[Seen]) -> list[str]:
            asked = [one for one in seen if one.task_id in self._tasks]
            with Scorer(settings, builders=NETWORK_VERIFIERS) as scorer:
                verdicts = scorer.score([attack_item(self._tasks[one.task_id], one.text) for one in asked])
            against = {
                one.id: verdict.evidence
                for one, verdict in zip(asked, verdicts, strict=True)
                if verdict.status is Status.WRONG
            }
            return [against.get(one.id, "") for one in seen]

        return ask


def _second_settings(reward: RewardSettings, name: str) -> RewardSettings:
    """One component alone, with its options where the run has it. Raises ConfigError."""
    own = reward.components.get(name)
    component = {"verifier": name} if own is None else {"verifier": own.verifier, "options": own.options}
    try:
        return RewardSettings.model_validate({"components": {"second": component}})
    except ValueError as error:
        raise ConfigError(f"--second {name}: {error}") from None


def _witnesses(reward: RewardSettings) -> list[str]:
    """Components that are recorded only."""
    return [name for name, weight in reward.weights.items() if weight == 0 and name not in reward.gates]


def _tasks_of(config: RunConfig, wanted: set[str]) -> dict[str, Task]:
    """The training tasks of these ids, as far as they are found again: a record holds neither columns nor verifier."""
    found: dict[str, Task] = {}
    for task in islice(load_tasks(config.tasks, seed=config.seed).train, MOST_TASKS_SEARCHED):
        if task.id in wanted:
            found[task.id] = task
            if len(found) == len(wanted):
                break
    return found


def as_row(suspect: Suspect) -> dict[str, Any]:
    """An entry of the queue as plain data."""
    seen = suspect.seen
    return {
        "id": seen.id,
        "step": seen.step,
        "task": seen.task_id,
        "prompt": prompt_text(seen.prompt),
        "gold": seen.gold,
        "completion": seen.text,
        "reward": seen.reward,
        "components": dict(seen.components),
        "reasons": [asdict(reason) for reason in suspect.reasons],
    }


def show_suspect(console: Console, suspect: Suspect, number: int, total: int) -> None:
    """Print one entry; text of models is shown as it is, without terminal control characters."""
    seen = suspect.seen
    parts = ", ".join(f"{name} {'-' if value is None else f'{value:g}'}" for name, value in seen.components.items())
    reasons = "\n".join(f"- {reason.name}: {_visible(reason.text)}" for reason in suspect.reasons)
    body = (
        f"{_visible(prompt_text(seen.prompt))}\n\n[gold] {_visible(seen.gold)}\n\n{_visible(seen.text)}\n\n"
        f"[reward] {seen.reward:g} ({parts})   {_visible(seen.evidence)}\n{reasons}"
    )
    console.print(Panel(escape(body), title=escape(f"{number}/{total}  {seen.id}  {_visible(seen.task_id)}")))


def list_suspects(review: Review) -> None:
    """Print the queue, a few lines an entry."""
    console = Console()
    console.print(f"{len(review.suspects)} well paid completions to look at")
    for suspect in review.suspects:
        seen = suspect.seen
        console.print(f"{seen.id}  reward {seen.reward:g}  gold {_visible(seen.gold)!r}", markup=False, highlight=False)
        console.print(f"  {seen.text!r}", markup=False, highlight=False, soft_wrap=True)
        for reason in suspect.reasons:
            console.print(f"  {reason.name}: {_visible(reason.text)}", markup=False, highlight=False, soft_wrap=True)


def review_in_terminal(review: Review, read_key: Callable[[], str]) -> dict[str, int]:
    """Show the queue one by one and keep each decision at once.

    Args:
        review: the queue.
        read_key: gives the next key, or an empty text at the end of input.

    Returns:
        How many were marked ``exploit``, ``fine`` and ``skip``.
    """
    console = Console(stderr=True)
    counts = {"exploit": 0, "fine": 0, "skip": 0}
    marks: dict[str, Mark] = {"e": "exploit", "f": "fine"}
    for number, suspect in enumerate(review.suspects, 1):
        show_suspect(console, suspect, number, len(review.suspects))
        console.print(KEYS, highlight=False)
        while (key := read_key().strip().lower()[:1]) not in ("e", "f", "s", "q", ""):
            console.print(KEYS, highlight=False)
        if key in ("q", ""):
            break
        if key == "s":
            counts["skip"] += 1
            continue
        path = review.mark(suspect, marks[key])
        counts[marks[key]] += 1
        console.print(f"{marks[key]}: written to {path}", highlight=False)
    return counts


def key_reader() -> Callable[[], str]:
    """One key without Enter on a terminal; a line of standard input elsewhere."""
    if not sys.stdin.isatty():
        return sys.stdin.readline
    import termios  # only terminals have it
    import tty

    def read() -> str:
        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
        try:
            tty.setcbreak(number)
            return sys.stdin.read(1)
        finally:
            termios.tcsetattr(number, termios.TCSADRAIN, before)

    return read


def _visible(text: str) -> str:
    """The text without what moves the cursor or colours a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text)
