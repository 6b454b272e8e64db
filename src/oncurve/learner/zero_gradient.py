"""Which sampled tokens have no policy gradient under an objective, and why.

The numbers come from the loss itself: it is differentiated by the log-prob of every token, first bare and then with
each of its corrections and filters, and a token belongs to the first of these that leaves it with exactly 0.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from oncurve.algo import CLIPPED, MAX_LOG_RATIO, ObjectiveSettings
from oncurve.algo.objective_settings import CorrectionSettings, TokenFilterSettings
from oncurve.learner.coupled_step import CoupledLoss
from oncurve.learner.learner import Probe
from oncurve.learner.minibatch import GradedRollout, Member

NONZERO = "nonzero"

REASONS = (
    "equal_group",
    "no_verdict",
    "truncated",
    "not_selected",
    "clipped",
    "correction",
    "divergence",
    "filter",
    "no_advantage",
    "other",
)
"""Why a token has no policy gradient, in the order in which they are looked for.

- ``equal_group``: the task rewards of its group are all equal
- ``no_verdict``: its completion has none, or lacks a component that is needed, or too few of its group have one
- ``truncated``: left out by ``mask_truncated``
- ``not_selected``: by ``raft``
- ``clipped``: beyond the band of ratios, or a log-ratio that is clamped
- ``correction``: weight 0
- ``divergence``: beyond ``max_divergence``
- ``filter``: by ``token_filter``
- ``no_advantage``: its reward is exactly the baseline, though the rewards of the group differ
- ``other``: a soft weight has vanished
"""


def count_by_reason(graded: GradedRollout, probe: Probe | None, *, seed: int = 0) -> dict[str, int]:
    """Count the sampled tokens by what becomes of their policy gradient. KL and entropy terms do not count.

    Args:
        graded: the rollout under the objective.
        probe: the optimiser step on it; None where nothing is trained.
        seed: of the choice of ``clip_cov``, as the step had it.

    Returns:
        Tokens by ``nonzero`` and each of ``REASONS``; together all sampled tokens of the rollout.
    """
    counts = Counter(dict.fromkeys((NONZERO, *REASONS), 0))
    places = [(p, g) for p, group in enumerate(graded.groups) for g in range(len(group.completions))]
    trained = {} if probe is None else {member.index: member for member in probe.members}
    stages = {} if probe is None else dict(_stages(probe, seed))
    order = {index: row for row, index in enumerate(trained)}
    for index, (p, g) in enumerate(places):
        if index in trained:
            found = {reason: tables[order[index]] for reason, tables in stages.items()}
            counts.update(_of_member(trained[index], found, is_silent=bool(graded.is_silent[p])))
        else:
            counts[_of_untrained(graded, p, g, index)] += len(graded.groups[p].completions[g].token_ids)
    return dict(counts)


def _of_untrained(graded: GradedRollout, p: int, g: int, index: int) -> str:
    group, objective = graded.groups[p], graded.objective
    selects = objective.advantage.estimator == "raft"
    if group.rewards[g] is None or bool(graded.is_dropped[p]):
        return "no_verdict"
    if bool(graded.is_silent[p]) and not selects and not bool(graded.advantages[index].any()):
        return "equal_group"
    if objective.mask_truncated and group.completions[g].is_truncated:
        return "truncated"
    lacks_component = objective.advantage.estimator == "gdpo"
    return "not_selected" if selects else "no_verdict" if lacks_component else "other"


def _of_member(member: Member, found: Mapping[str, Tensor], *, is_silent: bool) -> Counter[str]:
    """Count the tokens of one trained completion, given d loss / d log-prob with more and more of the objective."""
    *_, whole = found.values()
    left = whole == 0
    counts = Counter({NONZERO: int((~left).sum())})
    without = left & (member.advantages == 0)
    counts["equal_group" if is_silent else "no_advantage"] += int(without.sum())
    left = left & ~without
    for reason, gradient in found.items():
        hit = left & (gradient == 0)
        counts[reason] += int(hit.sum())
        left = left & ~hit
    return counts


def _stages(probe: Probe, seed: int) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """Yield d loss / d log-prob by member, from the bare loss to the whole objective.

    Where the bare loss leaves nothing is ``clipped`` for a clamped ratio and a loss that clips, else ``other``.
    """
    objective, members = probe.graded.objective, probe.members
    entropy = _entropies(probe) if objective.couples_tokens else None

    def differentiate(settings: ObjectiveSettings) -> tuple[Tensor, ...]:
        loss = CoupledLoss(settings, 1.0, members, "", seed)
        return loss.coefficients(probe.logprobs, probe.old_logprobs, entropy)

    no_filter = {"token_filter": TokenFilterSettings()}
    bare = differentiate(
        objective.model_copy(update={"correction": CorrectionSettings(), "max_divergence": None, **no_filter})
    )
    clips = objective.loss in CLIPPED
    yield (
        "clipped",
        tuple(
            torch.where(clips | _is_clamped(probe, member), gradient, 1.0)
            for member, gradient in zip(members, bare, strict=True)
        ),
    )
    yield "other", bare
    yield "correction", differentiate(objective.model_copy(update={"max_divergence": None, **no_filter}))
    yield "divergence", differentiate(objective.model_copy(update=no_filter))
    yield "filter", differentiate(objective)


def _is_clamped(probe: Probe, member: Member) -> Tensor:
    log_ratio = probe.logprobs[member.index].double() - probe.old_logprobs[member.index].double()
    return (log_ratio.abs() >= MAX_LOG_RATIO).cpu()


def _entropies(probe: Probe) -> dict[int, Tensor]:
    """Of an objective that couples tokens, whose record is in the order of the members."""
    lengths = [len(member.completion.token_ids) for member in probe.members]
    parts: Sequence[Tensor] = torch.split(probe.tokens.entropy, lengths)
    return {member.index: part for member, part in zip(probe.members, parts, strict=True)}
