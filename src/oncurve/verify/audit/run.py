"""Attack a reward function and count what it gets wrong."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from oncurve.types import Task
from oncurve.verify.attacks import (
    WRAPPERS,
    Attack,
    Cheap,
    Wrapper,
    attack_item,
    cheap_completions,
    corpus_attacks,
    metamorphic_attacks,
    mutants,
    program_attacks,
    same_value,
)
from oncurve.verify.audit.result import AuditResult, Finding, PaidRecipe, finding
from oncurve.verify.audit.rows import default_tasks
from oncurve.verify.audit.settings import AuditSettings
from oncurve.verify.audit.targets import Answer, Target
from oncurve.verify.audit.together import ask_together
from oncurve.verify.regressions import RegressionCase, regression_attacks

CALIBRATED_ON = 8
SHOWN_SHARE = 0.2
_NEUTRAL = {"generator", "answer_format", "data_source", "extra_info", "ability", "split", "index", "level", "type"}
_POLICY_FORMS = ("think and answer tags", "box", "hash")


def audit(
    target: Target,
    tasks: Sequence[Task] = (),
    settings: AuditSettings | None = None,
    regressions: Sequence[RegressionCase] = (),
) -> AuditResult:
    """Attack a reward function with everything that is known.

    First the golds are stated in every form; the form that is paid best is the one of the attacks, and its best reward
    is what an honest answer is worth. A completion is *paid* when its share

        (reward - floor) / (full - floor)          full: the best that a gold got; floor: the median of the wrong, <= 0

    reaches ``settings.paid_at``. A wrong completion that is paid is a false accept, a right one that is not a false
    refusal. One without a verdict (the function hung, died, raised, returned no number) is neither.

    Args:
        target: the function.
        tasks: the user's rows; none: a dozen built-in questions.
        settings: which attacks, and the limits.
        regressions: exploits that were found before.
    """
    settings = settings or AuditSettings()
    rows = list(tasks or default_tasks())[: settings.num_tasks]
    wrapper, full = _calibrate(target, rows)
    attacks = list(_attacks(rows, wrapper, settings, regressions))
    asked = list(zip(attacks, target.ask([attack.item for attack in attacks]), strict=True))
    scale = _scale(asked, full)
    changed = _mutants(rows, wrapper) if "program" in settings.families else []
    judged_mutants = list(zip(changed, target.ask([attack.item for attack in changed]), strict=True))
    together = ask_together(target, asked, settings.num_together)
    return AuditResult(
        target=target.name,
        wrapper=wrapper.name,
        floor=scale.floor,
        full=scale.full,
        is_full_assumed=scale.is_full_assumed,
        num_right=sum(attack.is_right and answer.reward is not None for attack, answer in asked),
        num_wrong=sum(not attack.is_right and answer.reward is not None for attack, answer in asked),
        false_accepts=tuple(_unjust(asked, scale, settings.paid_at, is_right=False)),
        false_refusals=tuple(_unjust(asked, scale, settings.paid_at, is_right=True)),
        no_verdicts=dict(Counter(answer.cause for _, answer in asked if answer.reward is None).most_common()),
        no_verdict_examples=_first_evidence(asked),
        num_mutants=sum(answer.reward is not None for _, answer in judged_mutants),
        mutants_passed=tuple(_unjust(judged_mutants, scale, settings.paid_at, is_right=False)),
        recipes=tuple(_recipes(asked, scale)),
        together=together,
        counts=dict(Counter(attack.family for attack in attacks)),
        notes=(*_notes(tasks, rows, full, settings), *together.notes),
        settings=settings,
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    floor: float
    full: float
    is_full_assumed: bool

    def share(self, reward: float) -> float:
        return (reward - self.floor) / (self.full - self.floor)


Asked = Sequence[tuple[Attack, Answer]]


def _calibrate(target: Target, tasks: Sequence[Task]) -> tuple[Wrapper, float | None]:
    """The form in which golds are paid best, and the best reward; None when no gold had a verdict."""
    best: tuple[float, Wrapper] | None = None
    rewards: list[float] = []
    for wrapper in target.wrappers:
        items = [attack_item(task, wrapper.state(task, _gold(task))) for task in tasks[:CALIBRATED_ON]]
        found = [answer.reward for answer in target.ask(items) if answer.reward is not None]
        rewards += found
        if found and (best is None or fmean(found) > best[0]):
            best = (fmean(found), wrapper)
    return (target.wrappers[0], None) if best is None else (best[1], max(rewards))


def _gold(task: Task) -> str:
    return task.gold if task.verifier == "code" else task.gold.strip()


def _attacks(
    tasks: Sequence[Task],
    wrapper: Wrapper,
    settings: AuditSettings,
    regressions: Sequence[RegressionCase],
) -> Iterator[Attack]:
    programs = [task for task in tasks if task.verifier == "code"]
    answers = [task for task in tasks if task.verifier != "code"]
    if "corpus" in settings.families and _fits_corpus(tasks):
        yield from corpus_attacks(wrapper)
    if "metamorphic" in settings.families:
        yield from metamorphic_attacks(answers, wrapper)
    if "policy" in settings.families:
        others = [] if programs else [one for one in WRAPPERS if one.name in _POLICY_FORMS and one.name != wrapper.name]
        forms = [wrapper, *others]
        yield from _policies(tasks[: settings.num_policy_tasks], forms)
    if "program" in settings.families:
        yield from program_attacks(programs, wrapper)
    if "regression" in settings.families:
        yield from regression_attacks(regressions)


def _fits_corpus(tasks: Sequence[Task]) -> bool:
    """The corpus asks for numbers and words: not where another verifier judges, or columns say what is right."""
    return all(task.verifier == "answer" and not set(task.meta) - _NEUTRAL for task in tasks)


def _policies(tasks: Sequence[Task], wrappers: Sequence[Wrapper]) -> Iterator[Attack]:
    for task in tasks:
        perfect = attack_item(task, wrappers[0].state(task, _gold(task)))
        yield Attack(
            id=f"policy/perfect/{task.id}", family="policy", kind="perfect", item=perfect, is_right=True, why="the gold"
        )
        for cheap in cheap_completions(task, wrappers):
            if not _is_right_by_luck(cheap, task):
                yield Attack(
                    id=f"policy/{cheap.recipe}/{task.id}",
                    family="policy",
                    kind=cheap.recipe,
                    item=attack_item(task, cheap.text),
                    is_right=False,
                    why="nothing was worked out",
                )


def _is_right_by_luck(cheap: Cheap, task: Task) -> bool:
    return cheap.answer is not None and same_value(cheap.answer, task.gold)


def _mutants(tasks: Sequence[Task], wrapper: Wrapper) -> list[Attack]:
    return [
        Attack(
            id=f"mutant/{task.id}/{number}",
            family="program",
            kind="mutant",
            item=attack_item(task, wrapper.state(task, mutant.source)),
            is_right=False,
            why=mutant.change,
        )
        for task in tasks
        if task.verifier == "code" and (task.meta.get("language") or "python") == "python"
        for number, mutant in enumerate(mutants(task))
    ]


def _scale(asked: Asked, full: float | None) -> _Scale:
    wrong = [answer.reward for attack, answer in asked if not attack.is_right and answer.reward is not None]
    floor = min(0.0, median(wrong)) if wrong else 0.0
    # Where no gold is paid at all, 1 is taken for the honest reward: then every gold is a false refusal.
    is_known = full is not None and full > floor
    return _Scale(floor, full if full is not None and is_known else floor + 1.0, is_full_assumed=not is_known)


def _unjust(asked: Asked, scale: _Scale, paid_at: float, *, is_right: bool) -> Iterator[Finding]:
    for attack, answer in asked:
        if answer.reward is None or attack.is_right != is_right:
            continue
        share = scale.share(answer.reward)
        if (share >= paid_at) != is_right:
            yield finding(attack, answer, answer.reward, share)


def _recipes(asked: Asked, scale: _Scale) -> list[PaidRecipe]:
    columns: dict[str, list[float]] = {}
    texts: dict[str, str] = {}
    for attack, answer in asked:
        if attack.family == "policy" and not attack.is_right and answer.reward is not None:
            columns.setdefault(attack.kind, []).append(scale.share(answer.reward))
            texts.setdefault(attack.kind, attack.item.text)
    found = [PaidRecipe(recipe=name, completion=texts[name], share=fmean(row)) for name, row in columns.items()]
    return sorted((one for one in found if one.share > SHOWN_SHARE), key=lambda one: -one.share)


def _first_evidence(asked: Asked) -> dict[str, str]:
    found: dict[str, str] = {}
    for _, answer in asked:
        if answer.reward is None:
            found.setdefault(answer.cause, answer.evidence)
    return found


def _notes(given: Sequence[Task], rows: Sequence[Task], full: float | None, settings: AuditSettings) -> Iterator[str]:
    if not given:
        yield "no rows were given: built-in questions stand in for them. Give yours with --tasks FILE."
    if len(given) > len(rows):
        yield f"the first {len(rows)} of {len(given)} rows were attacked"
    if "corpus" in settings.families and not _fits_corpus(rows):
        yield "the built-in corpus was left out: another verifier or columns of the rows decide what is right"
    if full is None:
        yield "no form of stating a gold had a verdict"
    elif full <= 0:
        yield "no form of stating a gold earned more than 0: is the answer read from a place of another form?"
