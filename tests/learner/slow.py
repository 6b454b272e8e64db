"""The optimiser step written out from its definition: one completion at a time, all logits, plain loops.

It calls nothing of ``oncurve.algo`` and nothing of the learner, so that agreement means something. Numbers that have no
gradient are Python floats.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log

import torch
from torch import Tensor

from oncurve.algo import ObjectiveSettings
from oncurve.types import Completion, Group

Floats = list[float]
ByIndex = Mapping[int, Floats]
"""One number a token, by the place of the completion in the rollout."""


@dataclass
class Part:
    """A trained completion in an optimiser step."""

    group: int
    index: int
    logprobs: Tensor
    """[L] of the policy; carries the gradient."""
    entropy: Tensor
    """[L] likewise."""
    sampler: Floats
    """As recorded."""
    old: Floats
    ref: Floats
    advantages: Floats
    log_ratio: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.log_ratio = self.logprobs - torch.tensor(self.old, dtype=torch.float64)

    @property
    def length(self) -> int:
        return len(self.sampler)

    @property
    def gain(self) -> float:
        """The advantage of a completion whose tokens share it."""
        return self.advantages[0]


@dataclass(frozen=True)
class Rollout:
    """What the slow way is told beside the objective."""

    groups: Sequence[Group]
    temperature: float
    max_tokens: int
    penalties: ByIndex = field(default_factory=dict)
    """kl_coef * KL of each token, where it is subtracted from the reward."""
    values: ByIndex = field(default_factory=dict)
    component_weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def completions(self) -> list[Completion]:
        return [completion for group in self.groups for completion in group.completions]

    @property
    def rewards(self) -> list[float | None]:
        return [reward for group in self.groups for reward in group.rewards]

    @property
    def owners(self) -> list[int]:
        """The group of each completion."""
        return [place for place, group in enumerate(self.groups) for _ in group.completions]


def look(model: torch.nn.Module, completion: Completion, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of the tokens of one completion, alone in its batch."""
    read, places = list(completion.prompt_ids), list[int]()
    for count, token in enumerate(completion.token_ids):
        for part in completion.inserted:
            read += part.token_ids if part.after == count else ()
        places.append(len(read) - 1)
        read.append(token)
    rows = torch.log_softmax(model(input_ids=torch.tensor([read])).logits[0] / temperature, -1)[places]
    said = torch.stack([row[token] for row, token in zip(rows, completion.token_ids, strict=True)])
    return said, -(rows.exp() * rows).sum(-1)


def floats(model: torch.nn.Module, completions: Sequence[Completion], temperature: float) -> dict[int, Floats]:
    """Log-probs without gradient, of completions that have tokens."""
    with torch.no_grad():
        return {i: look(model, c, temperature)[0].tolist() for i, c in enumerate(completions) if c.token_ids}


def step(
    model: torch.nn.Module,
    rollout: Rollout,
    objective: ObjectiveSettings,
    *,
    ref: ByIndex,
    old: ByIndex | None = None,
    only_group: int | None = None,
) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradient of one optimiser step.

    Args:
        old: denominators of the ratio; None takes what the sampler recorded.
        only_group: the step trains this group alone, though all were graded together.
    """
    advantages = graded(objective, rollout)
    owners, done = rollout.owners, rollout.completions
    kept = [p for p in range(len(rollout.groups)) if not is_left_out(objective, rollout.groups[p])]
    kept = kept if only_group is None else [only_group]
    parts = [
        Part(
            group=owners[i],
            index=i,
            **dict(zip(("logprobs", "entropy"), look(model, done[i], rollout.temperature), strict=True)),
            sampler=list(done[i].old_logprobs),
            old=list(done[i].old_logprobs if old is None else old[i]),
            ref=ref[i],
            advantages=advantages[i],
        )
        for i in range(len(done))
        if owners[i] in kept and is_trained(objective, rollout, i, advantages[i])
    ]
    loss = loss_of(objective, rollout, parts, kept)
    model.zero_grad()
    loss.backward()
    gradient = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return loss.item(), {name: found.clone() for name, found in gradient.items()}


# ---- who takes part --------------------------------------------------------------------------------------------------


def scored(group: Group) -> Floats:
    return [reward for reward in group.rewards if reward is not None]


def is_left_out(objective: ObjectiveSettings, group: Group) -> bool:
    found = scored(group)
    can_stand_alone = objective.advantage.estimator in ("gae", "reinforce_pp", "batch_loo", "raft")
    if len(found) < (1 if can_stand_alone else 2):
        return True
    return objective.zero_variance in ("skip", "resample") and max(found) - min(found) <= 1e-6


def is_trained(objective: ObjectiveSettings, rollout: Rollout, index: int, advantages: Floats) -> bool:
    completion = rollout.completions[index]
    if rollout.rewards[index] is None or not completion.token_ids:
        return False
    if objective.advantage.estimator == "raft" and advantages[0] == 0:
        return False
    return not (objective.mask_truncated and completion.is_truncated)


# ---- advantages ------------------------------------------------------------------------------------------------------


def graded(objective: ObjectiveSettings, rollout: Rollout) -> list[Floats]:
    """One advantage a token, completion after completion; 0 where there is no verdict."""
    settings = objective.advantage
    by_token = {"gae": gae, "reinforce_pp": reinforce_pp}
    if settings.estimator in by_token:
        found = by_token[settings.estimator](objective, rollout)
    else:
        gains = BY_COMPLETION[settings.estimator](objective, rollout)
        found = [[gain] * len(done.token_ids) for gain, done in zip(gains, rollout.completions, strict=True)]
    if settings.whiten:
        chosen = [
            value
            for i, row in enumerate(found)
            for value in row
            if not is_left_out(objective, rollout.groups[rollout.owners[i]]) and is_trained(objective, rollout, i, row)
        ]
        mean, std = mean_and_std(chosen, settings.ddof, inside=1e-8)
        found = [[(value - mean) / std for value in row] for row in found]
    if settings.clip is not None:
        found = [[min(max(value, -settings.clip), settings.clip) for value in row] for row in found]
    return found


def mean_and_std(values: Floats, ddof: int, inside: float = 0.0) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, (sum((value - mean) ** 2 for value in values) / (len(values) - ddof) + inside) ** 0.5


def penalised(rollout: Rollout) -> list[float | None]:
    costs = [sum(rollout.penalties.get(i, [])) for i in range(len(rollout.completions))]
    return [None if reward is None else reward - cost for reward, cost in zip(rollout.rewards, costs, strict=True)]


def penalties(objective: ObjectiveSettings, old: ByIndex, ref: ByIndex) -> ByIndex:
    """What a KL in the reward takes from each token."""
    value = {"k1": lambda d: d, "k2": lambda d: d**2 / 2, "k3": lambda d: exp(-d) - 1 + d}[objective.kl_estimator]
    return {
        i: [objective.kl_coef * value(mine - theirs) for mine, theirs in zip(row, ref[i], strict=True)]
        for i, row in old.items()
    }


def in_groups(score: Callable[[Floats, float], float]) -> Callable[[ObjectiveSettings, Rollout], Floats]:
    """An estimator that sees the rewards of the group, and one of them."""

    def estimate(_objective: ObjectiveSettings, rollout: Rollout) -> Floats:
        rewards = penalised(rollout)
        mine = [
            [other for other, owner in zip(rewards, rollout.owners, strict=True) if owner == p and other is not None]
            for p in rollout.owners
        ]
        return [
            0.0 if reward is None or len(group) < 2 or max(group) - min(group) <= 1e-6 else score(group, reward)
            for reward, group in zip(rewards, mine, strict=True)
        ]

    return estimate


def zscore(objective: ObjectiveSettings, rollout: Rollout) -> Floats:
    def score(group: Floats, reward: float) -> float:
        mean, std = mean_and_std(group, objective.advantage.ddof)
        return (reward - mean) / (std + objective.advantage.std_eps)

    return in_groups(score)(objective, rollout)


def batch_loo(_objective: ObjectiveSettings, rollout: Rollout) -> Floats:
    known = [reward for reward in penalised(rollout) if reward is not None]
    return [
        0.0 if reward is None else reward - (sum(known) - reward) / (len(known) - 1) for reward in penalised(rollout)
    ]


def raft(objective: ObjectiveSettings, rollout: Rollout) -> Floats:
    chosen: Floats = []
    for group in rollout.groups:
        seen: list[tuple[int, ...]] = []
        for reward, completion in zip(group.rewards, group.completions, strict=True):
            is_good = reward is not None and reward >= objective.advantage.threshold
            chosen.append(float(is_good and completion.token_ids not in seen))
            seen += [] if reward is None else [completion.token_ids]
    return chosen


def gdpo(objective: ObjectiveSettings, rollout: Rollout) -> Floats:
    settings = objective.advantage
    sums = [0.0] * len(rollout.completions)
    verdicts = [verdict for group in rollout.groups for verdict in group.verdicts]
    valid = [i for i, verdict in enumerate(verdicts) if verdict.reward is not None]
    for name, weight in rollout.component_weights.items():
        for i in valid:
            group = [verdicts[j].components[name] for j in valid if rollout.owners[j] == rollout.owners[i]]
            if max(group) - min(group) > 1e-6:
                mean, std = mean_and_std(group, settings.ddof)
                sums[i] += weight * (verdicts[i].components[name] - mean) / (std + settings.std_eps)
    mean, std = mean_and_std([sums[i] for i in valid], settings.ddof)
    silent = [
        all(len({verdicts[j].components[name] for j in valid if rollout.owners[j] == p}) == 1
            for name in rollout.component_weights)
        for p in rollout.owners
    ]  # fmt: skip
    return [
        (sums[i] - mean) / (std + settings.std_eps) if i in valid and not silent[i] else 0.0 for i in range(len(sums))
    ]


BY_COMPLETION: dict[str, Callable[[ObjectiveSettings, Rollout], Floats]] = {
    "group_zscore": zscore,
    "group_mean": in_groups(lambda group, reward: reward - sum(group) / len(group)),
    "rloo": in_groups(lambda group, reward: reward - (sum(group) - reward) / (len(group) - 1)),
    "batch_loo": batch_loo,
    "raft": raft,
    "gdpo": gdpo,
}


def token_rewards(rollout: Rollout, index: int) -> Floats:
    """The reward on the last token, a penalty on every one."""
    rewards = [-cost for cost in rollout.penalties.get(index, [0.0] * len(rollout.completions[index].token_ids))]
    rewards[-1] += rollout.rewards[index]
    return rewards


def gae(objective: ObjectiveSettings, rollout: Rollout) -> list[Floats]:
    """A_t = sum over k of (gamma lam)^k delta_(t+k)."""
    gamma, found = objective.advantage.gamma, []
    for i, completion in enumerate(rollout.completions):
        if rollout.rewards[i] is None or not completion.token_ids:
            found.append([0.0] * len(completion.token_ids))
            continue
        alpha = objective.advantage.lam_alpha
        lam = objective.advantage.lam if alpha is None else max(0.0, 1 - 1 / (alpha * len(completion.token_ids)))
        ahead = [*rollout.values[i], 0.0]
        deltas = [r + gamma * ahead[t + 1] - ahead[t] for t, r in enumerate(token_rewards(rollout, i))]
        found.append(
            [sum((gamma * lam) ** k * delta for k, delta in enumerate(deltas[t:])) for t in range(len(deltas))]
        )
    return found


def reinforce_pp(objective: ObjectiveSettings, rollout: Rollout) -> list[Floats]:
    """Discounted rewards-to-go, whitened over all tokens that have a verdict."""
    returns: list[Floats] = []
    for i, completion in enumerate(rollout.completions):
        if rollout.rewards[i] is None or not completion.token_ids:
            returns.append([])
            continue
        rewards, gamma = token_rewards(rollout, i), objective.advantage.gamma
        returns.append([sum(gamma**k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards))])
    mean, std = mean_and_std([value for row in returns for value in row], objective.advantage.ddof)
    return [[(value - mean) / std for value in row] for row in returns]


# ---- the loss --------------------------------------------------------------------------------------------------------


def loss_of(objective: ObjectiveSettings, rollout: Rollout, parts: list[Part], kept: list[int]) -> Tensor:
    terms = filtered(objective, parts, [corrected(objective, part, form(objective, part)) for part in parts])
    num_tokens = sum(part.length for part in parts)
    loss = torch.zeros((), dtype=torch.float64)
    for part, row in zip(parts, terms, strict=True):
        weight = weight_of(objective, rollout, parts, kept, part)
        for t in range(part.length):
            loss = loss + weight * row[t]
            if objective.kl_coef > 0 and objective.kl_placement == "loss":
                loss = loss + objective.kl_coef * weight * kl(objective, part, t)
            loss = loss - objective.entropy_coef * part.entropy[t] / num_tokens
    return loss


def weight_of(objective: ObjectiveSettings, rollout: Rollout, parts: list[Part], kept: list[int], part: Part) -> float:
    sizes = {p: len(rollout.groups[p].completions) for p in kept}
    num_sequences = sum(sizes.values())
    weight = {
        "seq-mean-token-mean": 1 / (num_sequences * part.length),
        "token-mean": 1 / sum(other.length for other in parts),
        "seq-mean-token-sum": 1 / num_sequences,
        "constant": 1 / (num_sequences * rollout.max_tokens),
        "prompt-mean": 1 / (len(kept) * sum(other.length for other in parts if other.group == part.group)),
    }[objective.aggregation]
    if objective.zero_variance == "rescale":
        lively = sum(size for p, size in sizes.items() if len(set(scored(rollout.groups[p]))) > 1)
        weight *= num_sequences / lively
    return weight


def form(objective: ObjectiveSettings, part: Part) -> list[Tensor]:
    """The policy term of each token."""
    ratio = part.log_ratio.exp()
    rows = {
        "clip": lambda t: surrogate(objective, ratio[t], part.advantages[t]),
        "gspo": lambda t: surrogate(objective, part.log_ratio.mean().exp(), part.gain),
        "luspo": lambda t: surrogate(objective, part.log_ratio.mean().exp(), part.gain),
        "gspo_token": lambda t: surrogate(objective, stopped_ratio(part, t), part.advantages[t]),
        "gmpo": lambda t: -part.gain * clipped_geometric_mean(objective, part),
        "cispo": lambda t: -cispo_weight(objective, ratio[t].item()) * part.advantages[t] * part.logprobs[t],
        "sapo": lambda t: soft_gate(objective, ratio[t], part.advantages[t]),
        "vespo": lambda t: -vespo_weight(objective, part) * part.gain * part.logprobs[t],
        "topr": lambda t: -topr_weight(part) * part.gain * part.logprobs[t],
        "reinforce": lambda t: -part.advantages[t] * part.logprobs[t],
    }
    return [rows[objective.loss](t) for t in range(part.length)]


def surrogate(objective: ObjectiveSettings, ratio: Tensor, gain: float) -> Tensor:
    low, high = 1 - objective.clip_low, 1 + objective.clip_high
    capped = ratio if objective.ratio_cap is None else ratio.clamp(max=objective.ratio_cap)
    found = torch.minimum(capped * gain, ratio.clamp(low, high) * gain)
    if objective.dual_clip is not None and gain < 0:
        found = found.clamp(min=objective.dual_clip * gain)
    return -found


def stopped_ratio(part: Part, t: int) -> Tensor:
    return part.log_ratio.mean().exp().detach() * (part.logprobs[t] - part.logprobs[t].detach()).exp()


def clipped_geometric_mean(objective: ObjectiveSettings, part: Part) -> Tensor:
    bounds = {"max": objective.clip_high} if part.gain > 0 else {"min": -objective.clip_low}
    return part.log_ratio.clamp(**bounds).mean().exp()


def cispo_weight(objective: ObjectiveSettings, ratio: float) -> float:
    return min(max(ratio, objective.cispo.ratio_min), objective.cispo.ratio_max)


def soft_gate(objective: ObjectiveSettings, ratio: Tensor, gain: float) -> Tensor:
    tau = objective.sapo.tau_positive if gain > 0 else objective.sapo.tau_negative
    return -4 / tau / (1 + (-tau * (ratio - 1)).exp()) * gain


def vespo_weight(objective: ObjectiveSettings, part: Part) -> float:
    settings = objective.vespo
    product = exp(min(max(part.log_ratio.sum().item(), log(1e-8)), 20.0))
    is_good = part.gain >= 0
    power = settings.power_positive if is_good else settings.power_negative
    rate = settings.rate_positive if is_good else settings.rate_negative
    return product**power * exp(rate * (1 - product))


def topr_weight(part: Part) -> float:
    return 1.0 if part.gain >= 0 else min(1.0, exp(part.log_ratio.sum().item()))


def kl(objective: ObjectiveSettings, part: Part, t: int) -> Tensor:
    difference = part.logprobs[t] - part.ref[t]
    k3 = (-difference).exp() - 1 + difference
    estimates = {"k1": difference, "k2": difference**2 / 2, "k3": k3, "k3_weighted": part.log_ratio[t].exp() * k3}
    return estimates[objective.kl_estimator]


def corrected(objective: ObjectiveSettings, part: Part, terms: list[Tensor]) -> list[Tensor]:
    gaps = [old - sampler for old, sampler in zip(part.old, part.sampler, strict=True)]
    terms = [correction(objective, gaps, t) * term for t, term in enumerate(terms)]
    limit = objective.max_divergence
    moved = sum(part.sampler) / part.length - part.logprobs.mean().item()
    return [0.0 * term for term in terms] if limit is not None and part.gain < 0 and moved > limit else terms


def correction(objective: ObjectiveSettings, gaps: Floats, t: int) -> float:
    settings = objective.correction
    token, product, mean = exp(gaps[t]), exp(sum(gaps)), exp(sum(gaps) / len(gaps))
    return {
        "none": 1.0,
        "token_truncate": min(max(token, settings.low), settings.high),
        "token_mask": token if settings.low <= token <= settings.high else 0.0,
        "seq_truncate": min(max(product, settings.low), settings.high),
        "seq_mask": product if settings.low <= product <= settings.high else 0.0,
        "seq_geo_mask": token if settings.low <= mean <= settings.high else 0.0,
    }[settings.mode]


def filtered(objective: ObjectiveSettings, parts: list[Part], terms: list[list[Tensor]]) -> list[list[Tensor]]:
    """``clip_cov`` with room for all who may be dropped: then there is nothing to draw."""
    settings = objective.token_filter
    if settings.mode == "all":
        return terms
    everyone = [(part, t) for part in parts for t in range(part.length)]
    if settings.mode == "high_entropy":
        limit = quantile([part.entropy[t].item() for part, t in everyone], 1 - settings.frac)
        return edited(parts, terms, lambda part, t, term: term if part.entropy[t] >= limit else 0.0 * term)
    said, _ = mean_and_std([part.logprobs[t].item() for part, t in everyone], 0)
    gain, _ = mean_and_std([part.advantages[t] for part, t in everyone], 0)

    def covariance(part: Part, t: int) -> float:
        return (part.logprobs[t].item() - said) * (part.advantages[t] - gain)

    if settings.mode == "kl_cov":
        ranked = sorted((covariance(part, t) for part, t in everyone), reverse=True)
        limit = ranked[max(1, int(settings.frac * len(ranked))) - 1]
        return edited(
            parts,
            terms,
            lambda part, t, term: (
                term + settings.coef * part.log_ratio[t].abs() if covariance(part, t) >= limit else term
            ),
        )

    def is_dropped(part: Part, t: int) -> bool:
        ratio = part.log_ratio[t].exp().item()
        is_clipped = (
            ratio > 1 + objective.clip_high if part.advantages[t] > 0 else ratio < 1 - objective.clip_low
        ) and part.advantages[t] != 0
        return settings.low < covariance(part, t) < settings.high and not is_clipped

    return edited(parts, terms, lambda part, t, term: 0.0 * term if is_dropped(part, t) else term)


def edited(
    parts: list[Part], terms: list[list[Tensor]], edit: Callable[[Part, int, Tensor], Tensor]
) -> list[list[Tensor]]:
    return [[edit(part, t, term) for t, term in enumerate(row)] for part, row in zip(parts, terms, strict=True)]


def quantile(values: Floats, share: float) -> float:
    ordered, place = sorted(values), share * (len(values) - 1)
    below = int(place + 1e-9)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
