"""Several objectives on the same stored rollout, each from the weights that sampled it.

read and refuse ──► weights before the step ──► for each objective: gradient, its zeros, one step, held-out accuracy
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from oncurve.algo import PRESETS, Formula
from oncurve.learner import Learner
from oncurve.learner.learner import Probe
from oncurve.learner.metrics import gap_metrics
from oncurve.learner.minibatch import GradedRollout
from oncurve.learner.zero_gradient import count_by_reason
from oncurve.model import Policy, Reference, reference_of
from oncurve.report.comparison import Before, Change, FrozenComparison, ObjectiveReading, StepEffect
from oncurve.train.candidates import Candidate, formula_in, grade_for, read_candidates
from oncurve.train.examiner import Answers, Examiner
from oncurve.train.gradients import Gradients
from oncurve.train.stored import StoredRun, Weights
from oncurve.types import ConfigError, Group, derive_seed

GRADIENT_MEMORY_BYTES = 1024**3
"""Gradients that would take more than this together are kept in files."""


def compare_frozen(
    run: Path, step: int, objectives: str, *, num_tasks: int | None = None, note: Callable[[str], None]
) -> FrozenComparison:
    """Evaluate several objectives on the rollout of one step, each from the weights that sampled it.

    Everything that can be refused is refused before a model is loaded. Nothing is written into the run folder.

    Args:
        run: folder of a run that sampled, finished or still going on.
        step: of the rollout, counted from 0.
        objectives: a comma-separated list; see ``read_candidates``.
        num_tasks: held-out tasks asked after one optimiser step of each objective, at most as many as the run has;
            0 leaves that out, None takes as many as the run's evaluations.
        note: told what takes time.

    Raises:
        ConfigError: an objective does not exist, contradicts itself or cannot be had from the records.
        RunError: the folder, the step or the weights before it cannot be used.
        ModelError, DataError: the starting model or the tasks are gone or changed.
        NumericsError: the recorded log-probs are not those of the weights, or something is NaN or inf.
    """
    stored = StoredRun(run)
    asked = stored.config.evaluation.num_tasks if num_tasks is None else num_tasks
    if asked < 0 or asked == 1:
        raise ConfigError(f"a paired test needs 2 held-out tasks or more, and 0 leaves it out; got {asked}")
    groups, aside = stored.groups(step)
    prepared = [_prepare(one, stored, groups) for one in read_candidates(objectives, stored.config.objective)]
    stored.replay_from(step)
    with ExitStack() as stack:
        policy = stored.policy()
        reference = _reference(policy, stored, prepared)
        weights = stored.weights_before(step, policy, reference, note=note)
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="oncurve-gradients-")))
        examiner = stack.enter_context(Examiner(stored.config, policy, num_tasks=asked)) if asked else None
        bench = _Bench(stored, policy, reference, weights, groups, examiner, note)
        return bench.compare(step, prepared, num_set_aside=len(aside), folder=folder)


@dataclass(frozen=True)
class _Prepared:
    """A candidate that fits the records."""

    candidate: Candidate
    formula: Formula
    graded: GradedRollout
    has_step: bool
    """False where nothing of the rollout can be learned from."""


@dataclass(frozen=True)
class _Seen:
    """What one candidate did from the common weights."""

    prepared: _Prepared
    probe: Probe | None
    answers: Answers | None
    """After one step."""
    counts: Mapping[str, int]


@dataclass
class _Bench:
    """The common weights, and what is done from them."""

    stored: StoredRun
    policy: Policy
    reference: Reference | None
    weights: Weights
    groups: Sequence[Group]
    examiner: Examiner | None
    note: Callable[[str], None]
    gap: float | None = field(default=None, init=False)

    def compare(
        self, step: int, prepared: Sequence[_Prepared], *, num_set_aside: int, folder: Path
    ) -> FrozenComparison:
        """Go through the candidates; ``folder`` is for gradients that do not fit into memory."""
        gradients = self._room_for(len(prepared), folder)
        before = self._answers_before(step, prepared[0])
        seen = [self._see(one, gradients, before, step) for one in prepared]
        first = seen[0].answers
        completions = [completion for group in self.groups for completion in group.completions]
        return FrozenComparison(
            run=self.stored.folder.path.resolve().name,
            step=step,
            weights=self.weights.origin,
            num_groups=len(self.groups),
            num_set_aside=num_set_aside,
            num_completions=len(completions),
            num_tokens=sum(len(completion.token_ids) for completion in completions),
            gap=self.gap,
            lr=self.stored.config.learner.lr_at(self.weights.num_steps),
            before=None if before is None else _before(before),
            objectives=tuple(
                _reading(one, norm, before, None if one is seen[0] else first, self._own_steps)
                for one, norm in zip(seen, gradients.norms(), strict=True)
            ),
            cosines=tuple(tuple(row) for row in gradients.cosines()),
        )

    @property
    def _own_steps(self) -> int:
        return self.stored.config.learner.updates_per_rollout

    def _begin(self, one: _Prepared) -> Learner:
        """A learner of this candidate at the common weights."""
        settings = self.stored.config.learner.model_copy(update={"updates_per_rollout": 1, "watch_kl_completions": 0})
        learner = self.stored.learner(self.policy, settings, one.candidate.objective, self.reference)
        self.weights.begin(learner, is_own=one.candidate.is_own)
        return learner

    def _see(self, one: _Prepared, gradients: Gradients, before: Answers | None, step: int) -> _Seen:
        self.note(f"objective {one.candidate.name}")
        learner = self._begin(one)
        probe = None
        if one.has_step:
            found = learner.gradient(self.groups)
            gradients.add(found.gradient)
            probe = replace(found, gradient={})  # kept once, wherever there is room for it
        else:
            gradients.add({})
        seed = derive_seed("clip_cov", self.weights.num_steps) % 2**63
        counts = count_by_reason(one.graded if probe is None else probe.graded, probe, seed=seed)
        answers = before
        if probe is not None:
            self.gap = _gap(probe)
            if self.examiner is not None:
                learner.update(self.groups)
                answers = self.examiner.ask(step + 1)
        return _Seen(one, probe, answers, counts)

    def _answers_before(self, step: int, one: _Prepared) -> Answers | None:
        if self.examiner is None:
            return None
        self._begin(one)
        return self.examiner.ask(step)

    def _room_for(self, count: int, folder: Path) -> Gradients:
        masters = self.weights.masters
        is_double = any(master.dtype == torch.float64 for master in masters.values())
        return Gradients(
            {name: master.shape for name, master in masters.items()},
            torch.float64 if is_double else torch.float32,
            count=count,
            folder=folder,
            memory_bytes=GRADIENT_MEMORY_BYTES,
        )


def _prepare(one: Candidate, stored: StoredRun, groups: Sequence[Group]) -> _Prepared:
    formula, graded = formula_in(one, stored.config), grade_for(one, stored.config, groups)
    has_step = any(True for _ in graded.minibatches(1, max_tokens=stored.config.rollout.sampling.max_tokens))
    return _Prepared(one, formula, graded, has_step)


def _reference(policy: Policy, stored: StoredRun, prepared: Sequence[_Prepared]) -> Reference | None:
    """The starting model, while the policy still is it; None when no objective looks at it."""
    objectives = [stored.config.objective, *(one.candidate.objective for one in prepared)]
    return reference_of(policy) if any(objective.needs_reference for objective in objectives) else None


def _gap(probe: Probe) -> float:
    """Mean |recorded - recomputed| log-prob over the trained tokens; ``gradient`` has refused one beyond rounding."""
    recorded = {member.index: member.completion.old_logprobs for member in probe.members}
    return gap_metrics(probe.logprobs, recorded)["gap/mean_abs"]


def _reading(
    seen: _Seen, norm: float, before: Answers | None, first: Answers | None, own_steps: int
) -> ObjectiveReading:
    probe, total = seen.probe, sum(seen.counts.values())
    candidate, formula = seen.prepared.candidate, seen.prepared.formula
    has_kl = probe is not None and candidate.objective.has_kl_in_loss
    return ObjectiveReading(
        name=candidate.name,
        formula=formula.text,
        gradient=formula.gradient,
        loss=0.0 if probe is None else probe.tokens.total,
        policy=0.0 if probe is None else probe.tokens.policy,
        kl=probe.tokens.kl if probe is not None and has_kl else None,
        grad_norm=norm,
        num_groups=len(seen.prepared.graded.trained_groups),
        shares={name: count / total for name, count in seen.counts.items()},
        effect=None if before is None or seen.answers is None else _effect(seen.answers, before, first),
        notes=tuple(_notes(seen.prepared, own_steps)),
    )


def _effect(after: Answers, before: Answers, first: Answers | None) -> StepEffect:
    return StepEffect(
        greedy=after.evaluation.greedy,
        interval=after.evaluation.interval,
        change=_change(after, before),
        against_first=None if first is None else _change(after, first),
    )


def _change(after: Answers, other: Answers) -> Change:
    found = after.against(other)
    return Change(difference=found.difference, p=found.p_sign_test)


def _before(answers: Answers) -> Before:
    found = answers.evaluation
    return Before(num_tasks=found.num_tasks, greedy=found.greedy, interval=found.interval)


def _notes(prepared: _Prepared, own_steps: int) -> list[str]:
    candidate, objective = prepared.candidate, prepared.candidate.objective
    notes = []
    if not candidate.is_own and objective.preset and PRESETS[objective.preset].differs:
        notes.append(f"{PRESETS[objective.preset].source}. {PRESETS[objective.preset].differs}")
    if not candidate.is_own and objective.zero_variance == "resample":
        notes.append("Would sample further groups in the place of the equal ones; here those are left out.")
    if candidate.is_own and own_steps > 1:
        notes.append(f"The run took {own_steps} optimiser steps on this rollout, a part each; here it is one on all.")
    if not prepared.has_step:
        notes.append("Nothing of this rollout can be learned from under it: its gradient is 0, and no step is taken.")
    return notes
