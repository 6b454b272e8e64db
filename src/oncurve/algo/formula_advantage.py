"""The printed lines of the advantage.

Means and sums with _g run over the scored completions of the group of i, with _all over those of the rollout, with
_groups over its groups, with _tokens over its trained tokens.
"""

from oncurve.algo.advantage_settings import AdvantageSettings
from oncurve.algo.estimate import WHITEN_EPS
from oncurve.algo.formula_loss import advantage_symbol, kl_symbol
from oncurve.algo.objective_settings import ObjectiveSettings

_VAR_TOKENS = "var_tokens(x) = sum_tokens((x − mean_tokens(x))^2) / (count_tokens − {ddof})"


def advantage_lines(settings: ObjectiveSettings) -> list[str]:
    """Definitions from the reward to the advantage."""
    advantage, final = settings.advantage, advantage_symbol(settings)
    name = final.replace("A", "a") if advantage.whiten or advantage.clip is not None else final
    lines = [*_finish_lines(advantage, name, final), *_estimator_lines(settings, name), *_reward_lines(settings)]
    functions = _function_lines(advantage, lines)
    return [*lines, *functions, "a completion without verdict is outside every mean and has A = 0"]


def _finish_lines(settings: AdvantageSettings, name: str, final: str) -> list[str]:
    if name == final:
        return []
    value = name
    if settings.whiten:
        value = f"({name} − mean_tokens({name})) / sqrt(var_tokens({name}) + {WHITEN_EPS!r})"
    if settings.clip is not None:
        value = f"clip({value}, −{settings.clip!r}, {settings.clip!r})"
    return [f"{final} = {value}"]


def _estimator_lines(settings: ObjectiveSettings, name: str) -> list[str]:
    advantage = settings.advantage
    r = "r̃ᵢ" if settings.has_kl_in_reward else "rᵢ"
    eps = repr(advantage.std_eps)
    equal_group = f"0 if max_g({r}) − min_g({r}) ≤ {advantage.tolerance!r} else"
    equal_rollout = f"0 if max_all({r}) − min_all({r}) ≤ {advantage.tolerance!r} else"
    shrinkage = repr(advantage.shrinkage)
    match advantage.estimator:
        case "group_zscore":
            return [f"{name} = {equal_group} ({r} − mean_g({r})) / (std_g({r}) + {eps})"]
        case "group_mean":
            return [f"{name} = {equal_group} {r} − mean_g({r})"]
        case "rloo":
            return [f"{name} = {equal_group} {r} − (sum_g({r}) − {r}) / (count_g − 1)"]
        case "length_weighted":
            return [f"{name} = {equal_group} {r} − sum_g(nᵢ·{r}) / sum_g(nᵢ)"]
        case "batch_std":
            spread = r if advantage.std_of == "rewards" else "cᵢ"
            return [f"{name} = cᵢ / (std_all({spread}) + {eps})", f"cᵢ = {equal_group} {r} − mean_g({r})"]
        case "batch_loo":
            return [f"{name} = {equal_rollout} {r} − (sum_all({r}) − {r}) / (count_all − 1)"]
        case "shrink":
            others = f"(sum_groups(mean_g({r})) − mean_g({r})) / (count_groups − 1)"
            return [
                f"{name} = (1 − {shrinkage})·uᵢ + {shrinkage}·(bᵢ if count_groups > 1 else uᵢ)",
                f"uᵢ = {equal_group} {r} − (sum_g({r}) − {r}) / (count_g − 1) — against the others of its group",
                f"bᵢ = {equal_rollout} {r} − {others} — against the means of the other groups",
            ]
        case "reinforce_pp_baseline":
            return [
                f"{name} = (cᵢ − mean_tokens(cᵢ)) / sqrt(max(var_tokens(cᵢ), 1e-08))",
                f"cᵢ = {equal_group} {r} − mean_g({r})",
            ]
        case "maxrl":
            return [f"{name} = {equal_group} ({r} − mean_g({r})) / (mean_g({r}) + {eps})"]
        case "ngrpo":
            return _ngrpo_lines(advantage, name, r)
        case "pass_at_k":
            return _pass_at_k_lines(advantage, name, r)
        case "pkpo":
            rest = f" − max_rest({r})" if advantage.leave_one_out else ""
            share = f"sum_subsets({advantage.k}, max_S({r}){rest}) / comb(count_g, {advantage.k})"
            return [
                f"{name} = 0 if count_g < {advantage.k} else {share} — over the subsets S of {advantage.k} of the "
                "group that hold i; rest: S without i"
            ]
        case "top_gap":
            gap = f"(max_g({r}) − second_g({r})) / (std_g({r}) + {eps})"
            return [f"{name} = {equal_group} ({gap} if {r} = max_g({r}) else 0) — second: the next largest"]
        case "gdpo":
            equal = f"0 if max_g(rₖᵢ) − min_g(rₖᵢ) ≤ {advantage.tolerance!r} else"
            return [
                f"{name} = (bᵢ − mean_all(bᵢ)) / (std_all(bᵢ) + {eps})",
                "bᵢ = Σₖ wₖ·zₖᵢ — over the reward components k with their weights",
                f"zₖᵢ = {equal} (rₖᵢ − mean_g(rₖᵢ)) / (std_g(rₖᵢ) + {eps})",
            ]
        case "difficulty":
            return _difficulty_lines(advantage, name, r, equal_group)
        case "raft":
            return [f"{name} = selectedᵢ — {_selection(advantage)}"]
        case _:
            return _token_lines(advantage, name)


def _ngrpo_lines(settings: AdvantageSettings, name: str, r: str) -> list[str]:
    top, virtual = repr(settings.max_reward), settings.num_virtual
    equal = f"0 if max(max_g({r}), {top}) − min(min_g({r}), {top}) ≤ {settings.tolerance!r} else"
    squares = f"sum_g(({r} − mᵢ)^2) + {virtual}·({top} − mᵢ)^2"
    return [
        f"{name} = {equal} ({r} − mᵢ) / (sqrt(({squares}) / (count_g + {virtual} − {settings.ddof})) + "
        f"{settings.std_eps!r})",
        f"mᵢ = (sum_g({r}) + {virtual}·{top}) / (count_g + {virtual})",
    ]


def _pass_at_k_lines(settings: AdvantageSettings, name: str, r: str) -> list[str]:
    k = settings.k
    wrong = f"uᵢ − comb(count_g − sum_g({r}) − 1, {k} − 1) / comb(count_g − 1, {k} − 1)"
    scale = f"(sqrt(uᵢ·(1 − uᵢ)) + {settings.std_eps!r})"
    return [
        f"{name} = 0 if count_g < {k} or uᵢ = 0 or uᵢ = 1 else (uᵢ if {r} = 1 else {wrong}) / {scale}",
        f"uᵢ = comb(count_g − sum_g({r}), {k}) / comb(count_g, {k}) — the share of {k}-subsets without a right one",
    ]


def _difficulty_lines(settings: AdvantageSettings, name: str, r: str, equal: str) -> list[str]:
    d = settings.difficulty
    return [
        f"{name} = zᵢ·w(uᵢ) if zᵢ > 0 else zᵢ·w(1 − uᵢ)",
        f"uᵢ = mean_g(1 if {r} > 0 else 0) — the pass rate",
        f"zᵢ = {equal} ({r} − mean_g({r})) / (std_g({r}) + {settings.std_eps!r})",
        f"w(x) = {d.weight_min!r} + ({d.weight_max!r} − {d.weight_min!r}) / (1 + exp({d.slope!r}·(x − "
        f"{d.midpoint!r})))",
    ]


def _selection(settings: AdvantageSettings) -> str:
    which = "the first best of its group" if settings.best_of_group else "completions"
    most = "" if settings.max_per_group is None else f", the first {settings.max_per_group} of a group"
    return (
        f"selectedᵢ: 1 for {which} with rᵢ ≥ {settings.threshold!r}{most}, without repeats of the same tokens; else 0"
    )


def _token_lines(settings: AdvantageSettings, name: str) -> list[str]:
    gamma = repr(settings.gamma)
    if settings.estimator == "reinforce_pp":
        return [
            f"{name} = (Gᵢₜ − mean_tokens(Gᵢₜ)) / sqrt(max(var_tokens(Gᵢₜ), 1e-08))",
            f"Gᵢₜ = qᵢₜ + {gamma}·next(Gᵢₜ) — next(x): x at token t + 1, 0 after the last",
        ]
    lam = "λᵢ" if settings.lam_alpha is not None else repr(settings.lam)
    lines = [
        f"{name} = δᵢₜ + {gamma}·{lam}·next({name}) — next(x): x at token t + 1, 0 after the last",
        f"δᵢₜ = qᵢₜ + {gamma}·next(Vᵢₜ) − Vᵢₜ — V: the critic, before the first step on the rollout",
    ]
    if settings.lam_alpha is not None:
        return [*lines, f"λᵢ = max(1 − 1/({settings.lam_alpha!r}·nᵢ), 0) — the critic learns the same sum with λ = 1"]
    return lines


def _reward_lines(settings: ObjectiveSettings) -> list[str]:
    penalty = f"{settings.kl_coef!r}·{kl_symbol(settings)}"
    if settings.kl_adaptive is not None:
        penalty = f"β·{kl_symbol(settings)}"
    if settings.advantage.is_token_level:
        paid = "(rᵢ if t = nᵢ else 0)"
        return [f"qᵢₜ = {paid} − {penalty}" if settings.has_kl_in_reward else f"qᵢₜ = {paid}"]
    penalised = f"sum_t({penalty})"
    return [f"r̃ᵢ = rᵢ − {penalised}"] if settings.has_kl_in_reward else []


def _function_lines(settings: AdvantageSettings, lines: list[str]) -> list[str]:
    """Definitions of the functions that the lines call."""
    text, ddof = " ".join(lines), settings.ddof
    functions = []
    if "std_g(" in text:
        functions.append(f"std_g(x) = sqrt(sum_g((x − mean_g(x))^2) / (count_g − {ddof}))")
    if "std_all(" in text:
        functions.append(f"std_all(x) = sqrt(sum_all((x − mean_all(x))^2) / (count_all − {ddof}))")
    if "var_tokens(" in text:
        functions.append(_VAR_TOKENS.format(ddof=ddof))
    return functions
