"""The terminal view of a run: a progress bar on a terminal, one plain line a step elsewhere."""

import time
from collections.abc import Mapping, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from oncurve.evaluate import Evaluation
from oncurve.train import Evaluated, Event, Noted, Saved

_SHOWN = (
    ("reward", "reward/mean", ".3f"),
    ("loss", "loss/supervised", ".4f"),
    ("right order", "dpo/accuracy", ".2f"),
    ("margin", "dpo/margin", ".3f"),
    ("chosen", "dpo/chosen_logprob", ".2f"),
    ("drift", "drift/kl", ".4f"),
    ("mixed", "groups/mixed", ".2f"),
    ("tokens", "length/mean", ".1f"),
    ("kl", "kl/reference", ".4f"),
    ("entropy", "entropy/mean", ".3f"),
    ("clip", "clip/high", ".3f"),
    ("grad", "grad/norm", ".2f"),
    ("critic explains", "critic/explained_variance", ".2f"),
    ("gap", "gap/mean_abs", ".1e"),
)

_GIVEN = "drift: from the start, per token of the given completions; grad: norm"

_LEGENDS = {
    "dpo": "right order: share of the pairs of a step that the policy orders as they are; margin: of the implicit "
    f"rewards; chosen: log-prob of the chosen completions, which may fall while the margin grows; {_GIVEN}",
    "sft": f"loss: nats a token of the examples; {_GIVEN}",
}
_LEGEND = (
    "reward: mean of the rollout, all components; mixed: share of groups with right and wrong answers; tokens: per "
    "completion; kl: to the starting policy; entropy: nats a token; clip: share of tokens; grad: norm, 0 while a "
    "critic warms up; gap: mean difference of sampler and learner log-probs, about 1e-6 in float32 and 1e-2 in "
    "bfloat16"
)


def legend(method: str) -> str:
    """What the figures of a step line are."""
    return _LEGENDS.get(method, _LEGEND)


class RunView:
    """Shows events as they come. Everything goes to stderr, so that stdout stays free for ``--json``."""

    def __init__(self, num_steps: int, done: int = 0) -> None:
        self._console = Console(stderr=True)
        self._num_steps = num_steps
        self._last = time.perf_counter()
        self._noted: set[str] = set()
        self._progress: Progress | None = None
        self._bar: TaskID | None = None
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("step"),
                MofNCompleteColumn(),
                BarColumn(bar_width=24),
                TimeRemainingColumn(),
                TextColumn("{task.fields[figures]}"),
                console=self._console,
            )
            self._bar = self._progress.add_task("", total=num_steps, completed=done, figures="")

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def line(self, text: str) -> None:
        """Print one line of plain text."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, Evaluated):
            self.line(
                f"held out after {event.evaluation.step} steps: {describe(event.evaluation)} ({event.seconds:.1f} s)"
            )
        elif isinstance(event, Saved):
            self.line(f"checkpoint {event.path}")
        elif isinstance(event, Noted):
            self._note(event)
        else:
            self.step(event.step, figures(event.metrics, _SHOWN))

    def _note(self, event: Noted) -> None:
        if event.kind not in self._noted:  # the first of a kind; events.jsonl has all of them
            self._noted.add(event.kind)
            self.line(f"note, step {event.step}: {event.message}")

    def step(self, done: int, figures: str) -> None:
        """Show how many steps are done, and the figures of the last one."""
        if self._progress is not None and self._bar is not None:
            self._progress.update(self._bar, completed=done, figures=figures)
            return
        now = time.perf_counter()
        self.line(f"step {done}/{self._num_steps}  {figures}  {now - self._last:.2f} s")
        self._last = now


def describe(evaluation: Evaluation) -> str:
    """One line: greedy accuracy with interval, pass@1, pass@k, tokens per right answer."""
    low, high = evaluation.interval
    parts = [f"greedy {evaluation.greedy:.1%} [{low:.1%}, {high:.1%}] of {evaluation.num_tasks}"]
    if evaluation.pass_at_1 is not None and evaluation.pass_at_k is not None:
        parts.append(f"pass@1 {evaluation.pass_at_1:.1%}")
        if evaluation.k != 1:
            parts.append(f"pass@{evaluation.k} {evaluation.pass_at_k:.1%}")
    if evaluation.tokens_per_correct is not None:
        parts.append(f"{evaluation.tokens_per_correct:.0f} tokens per right answer")
    if len(evaluation.components) > 1:
        parts.append("components " + ", ".join(f"{name} {mean:.3f}" for name, mean in evaluation.components.items()))
    if (hostile := evaluation.adversarial) is not None:
        parts.append(_hostile(hostile["num_paid"], hostile["num_hostile"]))
    if evaluation.no_verdict_frac > 0:
        parts.append(f"{evaluation.no_verdict_frac:.1%} WITHOUT A VERDICT, counted as not right")
    return ", ".join(parts)


def _hostile(num_paid: int, num_asked: int) -> str:
    if num_paid:
        return f"{num_paid} of {num_asked} HOSTILE COMPLETIONS ARE PAID, see `oncurve audit`"
    return f"0 of {num_asked} hostile completions are paid"


def figures(metrics: Mapping[str, float | None], shown: Sequence[tuple[str, str, str]]) -> str:
    """The metrics of a step line that are known, of those ``shown``: (label, name of the metric, format) each."""
    known = ((label, metrics.get(name), form) for label, name, form in shown)
    return "  ".join(f"{label} {value:{form}}" for label, value, form in known if value is not None)
