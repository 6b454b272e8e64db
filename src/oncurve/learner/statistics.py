"""What a rollout looks like, before any training: rewards, groups, lengths. A pure function of the groups."""

from collections.abc import Sequence
from statistics import fmean, pstdev

import torch

from oncurve.algo import length_stats
from oncurve.types import Group, Status


def rollout_metrics(groups: Sequence[Group], advantages: Sequence[Sequence[float]] | None = None) -> dict[str, float]:
    """Summarise a rollout.

    - ``reward/mean`` and ``component/<name>/mean`` over completions that have the value; ``.../group_std`` is the mean,
      over groups with at least two such completions, of the population std inside the group.
    - ``groups/all_right``, ``mixed``, ``all_wrong``, ``no_verdict``: shares of the groups, by the statuses of their
      scored completions; the four sum to 1. ``reward/no_verdict_frac``: share of completions without verdict.
      ``completions/correct`` counts the right ones.
    - ``length/...`` in sampled tokens, terminators included, over all completions; ``tokens/...`` are sums, and every
      completion counts its prompt. ``tokens/inserted`` are those that environments answered, in no other figure;
      ``tools/calls``, and ``tools/error_frac`` of them, where completions had an environment.

    Args:
        groups: at least one, each with at least one completion.
        advantages: per group and completion; adds ``length/advantage_correlation`` where neither is constant.

    Returns:
        Numbers by name. A name without a value, such as the mean of rewards when nothing was scored, is left out.

    Raises:
        ValueError: there is no completion at all.
    """
    if not any(group.completions for group in groups):
        raise ValueError("a rollout without completions has no statistics: raise rollout.num_prompts or group_size")
    return {
        **_rewards(groups),
        **_components(groups),
        **_statuses(groups),
        **_lengths(groups, advantages),
        **_tools(groups),
    }


def _rewards(groups: Sequence[Group]) -> dict[str, float]:
    count = sum(len(group.completions) for group in groups)
    unscored = sum(reward is None for group in groups for reward in group.rewards)
    return {**_spread("reward", [group.rewards for group in groups]), "reward/no_verdict_frac": unscored / count}


def _components(groups: Sequence[Group]) -> dict[str, float]:
    names = dict.fromkeys(name for group in groups for verdict in group.verdicts for name in verdict.components)
    result: dict[str, float] = {}
    for name in names:
        values = [[verdict.components.get(name) for verdict in group.verdicts] for group in groups]
        result |= _spread(f"component/{name}", values)
    return result


def _spread(name: str, rows: Sequence[Sequence[float | None]]) -> dict[str, float]:
    present = [[value for value in row if value is not None] for row in rows]
    values = [value for row in present for value in row]
    stds = [pstdev(row) for row in present if len(row) >= 2]
    result = {f"{name}/mean": fmean(values)} if values else {}
    return result | ({f"{name}/group_std": fmean(stds)} if stds else {})


def _statuses(groups: Sequence[Group]) -> dict[str, float]:
    seen = [{verdict.status for verdict in group.verdicts} - {Status.NO_VERDICT} for group in groups]
    kinds = {
        "all_right": {Status.CORRECT},
        "mixed": {Status.CORRECT, Status.WRONG},
        "all_wrong": {Status.WRONG},
        "no_verdict": set(),
    }
    right = sum(verdict.status is Status.CORRECT for group in groups for verdict in group.verdicts)
    shares = {f"groups/{name}": seen.count(kind) / len(groups) for name, kind in kinds.items()}
    return {"completions/correct": float(right), **shares}


def _tools(groups: Sequence[Group]) -> dict[str, float]:
    completions = [completion for group in groups for completion in group.completions]
    episodes = [completion.episode for completion in completions if completion.episode is not None]
    if not episodes:
        return {}
    calls = sum(episode.num_calls for episode in episodes)
    errors = sum(episode.num_errors for episode in episodes)
    inserted = sum(len(part.token_ids) for completion in completions for part in completion.inserted)
    rate = {"tools/error_frac": errors / calls} if calls else {}
    return {"tokens/inserted": float(inserted), "tools/calls": float(calls), **rate}


def _lengths(groups: Sequence[Group], advantages: Sequence[Sequence[float]] | None) -> dict[str, float]:
    completions = [completion for group in groups for completion in group.completions]
    gains = [0.0] * len(completions) if advantages is None else [gain for row in advantages for gain in row]
    stats = length_stats(
        torch.tensor([float(len(completion.token_ids)) for completion in completions]),
        torch.tensor(gains, dtype=torch.float64),
        torch.tensor([completion.is_truncated for completion in completions]),
        torch.tensor([verdict.status is Status.CORRECT for group in groups for verdict in group.verdicts]),
    )
    named = {
        "length/mean": stats.mean,
        "length/p10": stats.p10,
        "length/p50": stats.p50,
        "length/p90": stats.p90,
        "length/max": stats.max,
        "length/truncated_frac": stats.truncated_frac,
        "length/advantage_correlation": stats.advantage_correlation,
        "tokens/completion": float(sum(len(completion.token_ids) for completion in completions)),
        "tokens/prompt": float(sum(len(completion.prompt_ids) for completion in completions)),
    }
    return {name: value for name, value in named.items() if value is not None}
