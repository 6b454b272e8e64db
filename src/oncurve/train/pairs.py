"""Preference pairs as token ids: from a file, or from the recorded completions of a run."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from oncurve.learner import PreferencePair
from oncurve.model import Policy
from oncurve.report import Rollout, read_rollouts
from oncurve.tasks import read_pairs
from oncurve.train.encode import canonical, encode_completion
from oncurve.types import DataError, Status, derive_seed


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutPair:
    """Two completions that were sampled for the same prompt by the same weights."""

    chosen: Rollout
    rejected: Rollout


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutPairs:
    """The pairs of a run, in the order of recording, and what became of the rest."""

    pairs: tuple[RolloutPair, ...]
    dropped: Mapping[str, int]
    """``all_right``, ``all_wrong``, ``unscored``: groups without a pair. ``equal_text``, ``over_limit``: pairs."""


def pair_rollouts(rollouts: Iterable[Rollout], *, seed: int, max_per_task: int) -> RolloutPairs:
    """Pair recorded completions: one right and one wrong of the same group.

    In each group the right and the wrong completions are put into an order that a hash decides and matched one to one,
    so that none is used twice. Of a task's pairs over all steps a hash keeps ``max_per_task``.

    Args:
        rollouts: in the order of recording, as ``read_rollouts`` gives them.
        seed: of the hash.
        max_per_task: most pairs of one task.
    """
    found: dict[str, list[RolloutPair]] = defaultdict(list)
    dropped: Counter[str] = Counter()
    for _, members in groupby(rollouts, key=lambda rollout: (rollout.step, rollout.group)):
        pairs, reason = _pairs_of(list(members), seed)
        dropped.update([reason] if reason else [])
        for pair in pairs:
            if pair.chosen.text == pair.rejected.text:
                dropped["equal_text"] += 1
            else:
                found[pair.chosen.task_id].append(pair)
    by_hash = [sorted(pairs, key=lambda pair: _order(seed, pair.chosen)) for pairs in found.values()]
    kept = [pair for pairs in by_hash for pair in pairs[:max_per_task]]
    dropped["over_limit"] = sum(map(len, by_hash)) - len(kept)
    return RolloutPairs(
        pairs=tuple(sorted(kept, key=lambda pair: (pair.chosen.step, pair.chosen.group, pair.chosen.index))),
        dropped={reason: count for reason, count in sorted(dropped.items()) if count},
    )


def pairs_of_run(
    run: Path, policy: Policy, held_out: Set[str], *, seed: int, max_per_task: int
) -> tuple[list[PreferencePair], Mapping[str, int]]:
    """The pairs of a run with the token ids that were sampled, and how many were left out by reason.

    Args:
        run: its folder.
        policy: what is to be trained; its tokenizer must be that of the run.
        held_out: ``canonical`` prompts that must not be trained on.
        seed: of the choices.
        max_per_task: most pairs of one task.

    Raises:
        DataError: the run's tokens are not those of this policy.
        RunError: the folder is no run.
    """
    made = pair_rollouts(read_rollouts(run), seed=seed, max_per_task=max_per_task)
    kept = [pair for pair in made.pairs if canonical(pair.chosen.prompt) not in held_out]
    for pair in kept:
        _refuse_episodes(run, pair.chosen, pair.rejected)
        _require_same_tokenizer(run, policy, pair.chosen)
        _require_same_tokenizer(run, policy, pair.rejected)
    pairs = [
        PreferencePair(pair.chosen.prompt_ids, pair.chosen.token_ids, pair.rejected.token_ids)
        for pair in kept
        if pair.chosen.token_ids and pair.rejected.token_ids
    ]
    return pairs, {**made.dropped, "held_out": len(made.pairs) - len(kept), "empty": len(kept) - len(pairs)}


def pairs_of_file(path: Path, policy: Policy, held_out: Set[str]) -> tuple[list[PreferencePair], Mapping[str, int]]:
    """The pairs of a file as token ids, and how many were left out by reason.

    Args:
        path: a .jsonl or .parquet file.
        policy: whose tokenizer and chat template are used.
        held_out: ``canonical`` prompts that must not be trained on.

    Raises:
        DataError: the file or a row cannot be used.
    """
    dropped: Counter[str] = Counter()
    pairs = []
    for row in read_pairs(path):
        if canonical(row.prompt) in held_out:
            dropped["held_out"] += 1
        elif row.chosen == row.rejected:
            dropped["equal_text"] += 1
        else:
            chosen = encode_completion(policy, row.prompt, row.chosen, where=row.where)
            rejected = encode_completion(policy, row.prompt, row.rejected, where=row.where)
            pairs.append(PreferencePair(policy.encode_prompt(row.prompt), chosen, rejected))
    return pairs, dropped


def _pairs_of(members: Sequence[Rollout], seed: int) -> tuple[list[RolloutPair], str | None]:
    """The pairs of one group, or why there is none."""
    ordered = sorted(members, key=lambda member: _order(seed, member))
    right = [member for member in ordered if member.status is Status.CORRECT]
    wrong = [member for member in ordered if member.status is Status.WRONG]
    if right and wrong:
        return [RolloutPair(chosen=c, rejected=r) for c, r in zip(right, wrong, strict=False)], None
    return [], "all_right" if right else "all_wrong" if wrong else "unscored"


def _order(seed: int, rollout: Rollout) -> int:
    return derive_seed("pairs", seed, rollout.step, rollout.group, rollout.index)


def _refuse_episodes(run: Path, *members: Rollout) -> None:
    for member in members:
        if member.inserted:
            raise DataError(
                f"{run}: completion {member.index} of task {member.task_id} holds answers of an environment, which a "
                'pair of plain completions cannot. Learn tool tasks online, or from worked examples (method = "sft").'
            )


def _require_same_tokenizer(run: Path, policy: Policy, rollout: Rollout) -> None:
    size = len(policy.tokenizer)
    is_known = all(token < size for token in (*rollout.prompt_ids, *rollout.token_ids))
    if (
        not is_known
        or policy.encode_prompt(rollout.prompt) != rollout.prompt_ids
        or policy.decode(rollout.token_ids) != rollout.text
    ):
        raise DataError(
            f"{run}: the tokens of completion {rollout.index} of task {rollout.task_id} are not those of this model's "
            "tokenizer. Pairs keep the tokens that were sampled: set model.path to a model of the family that made the "
            "run."
        )
