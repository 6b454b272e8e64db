"""A run folder written through RunFolder itself, with the numbers of a small countdown run that learns."""

import math
import random
from collections.abc import Sequence
from pathlib import Path

from oncurve.report import RunFolder
from oncurve.types import Completion, FinishReason, Group, Message, Prompt, Sampling, Status, Task, Verdict

CONFIG = """\
seed = 0

[task]
source = "countdown"
num_held_out = 200

[rollout]
num_prompts = 4
group_size = 8

[objective]
clip_low = 0.2
clip_high = 0.28
kl_coef = 0.0
"""
FORMULA = """\
maximise  1/P sum_p 1/G sum_i 1/|y_i| sum_t min( ratio A, clip(ratio, 1 - 0.2, 1 + 0.28) A )
A[p, i] = (r[p, i] - mean(r[p])) / (std(r[p]) + 1e-06)

gradient: of the surrogate only; no KL term.
"""
SAMPLING = Sampling(max_tokens=24)
HOSTILE = [
    "<script>window.hostile = 1</script>",
    "</script><script>window.hostile = 2</script>",
    "<img src=x onerror='window.hostile = 3'>",
    "{{ 7 * 7 }} {% raw %} {{ ''.__class__ }}",
    "<!-- <script> --> \u2028 \u202e desrever \x00 \x1b[31m",
    "\"'><svg onload=window.hostile=4><a href='javascript:window.hostile=5'>x</a>",
    "<link rel=stylesheet href=http://203.0.113.1/x.css><iframe src=http://203.0.113.1/></iframe>",
    "</textarea></pre></details></main><style>body{display:none}</style>",
]


def make_task(number: int, *, prompt: Prompt | None = None, kind: str = "countdown", gold: str | None = None) -> Task:
    target = 10 + number
    return Task(
        id=f"{kind}-{number}",
        prompt=prompt if prompt is not None else f"Numbers: {number}, 7, 3. Make {target}.",
        gold=gold if gold is not None else f"{number}+7+3",
        kind=kind,
        verifier="countdown",
    )


def make_completion(
    task: Task, index: int, text: str, *, step: int = 0, reason: FinishReason = FinishReason.STOP
) -> Completion:
    ids = tuple(range(5, 5 + len(text.encode("utf-8", "surrogatepass")) % 20 + 1))
    return Completion(
        task_id=task.id,
        index=index,
        prompt_ids=(1, 2, 3 + index % 2),
        token_ids=ids,
        old_logprobs=tuple(-math.log(2 + position + index / 3) for position in range(len(ids))),
        policy_version=step,
        finish_reason=reason,
        sampling=SAMPLING,
        text=text,
        seconds=0.01 * index,
    )


def make_verdict(reward: float | None, *, evidence: str = "", cause: str = "timeout") -> Verdict:
    if reward is None:
        return Verdict(status=Status.NO_VERDICT, reward=None, components={"answer": None}, cause=cause)
    status = Status.CORRECT if reward >= 1 else Status.WRONG
    components = {"answer": float(reward >= 1), "format": 1.0 if reward > 0 else 0.0}
    return Verdict(status=status, reward=reward, components=components, evidence=evidence)


def make_group(
    number: int, rewards: Sequence[float | None], *, step: int = 0, texts: Sequence[str] = (), task: Task | None = None
) -> Group:
    task = task or make_task(number)
    texts = texts or [f"{number}+7+3" if reward == 1 else f"{number}*{index}+7" for index, reward in enumerate(rewards)]
    return Group(
        task=task,
        completions=tuple(
            make_completion(
                task, index, text, step=step, reason=FinishReason.LENGTH if index % 5 == 4 else FinishReason.STOP
            )
            for index, text in enumerate(texts)
        ),
        verdicts=tuple(
            make_verdict(reward, evidence=f"extracted {text!r}" if reward is not None else "")
            for reward, text in zip(rewards, texts, strict=True)
        ),
    )


def advantages_of(group: Group) -> list[float]:
    scored = [reward for reward in group.rewards if reward is not None]
    if not scored or max(scored) == min(scored):
        return [0.0] * len(group.rewards)
    mean = sum(scored) / len(scored)
    std = math.sqrt(sum((reward - mean) ** 2 for reward in scored) / len(scored))
    return [0.0 if reward is None else (reward - mean) / std for reward in group.rewards]


def create_run(path: Path) -> RunFolder:
    return RunFolder.create(path, config_toml=CONFIG, environment={"python": "3.11.7", "cpus": 2}, formula=FORMULA)


def append_groups(run: RunFolder, step: int, groups: Sequence[Group]) -> None:
    run.append_rollouts(step, groups, [advantages_of(group) for group in groups])


def groups_of(step: int, rate: float, dice: random.Random) -> list[Group]:
    groups = []
    for prompt in range(4):
        rewards: list[float | None] = [
            1.0 if dice.random() < rate else dice.choice([0.0, 0.1]) if dice.random() > 0.02 else None for _ in range(8)
        ]
        groups.append(make_group(step * 4 + prompt, rewards, step=step))
    return groups


def metrics_of(step: int, groups: Sequence[Group], rate: float, dice: random.Random) -> dict[str, float | int | None]:
    rewards = [reward for group in groups for reward in group.rewards if reward is not None]
    right = [all(reward == 1 for reward in group.rewards) for group in groups]
    wrong = [all(reward is not None and reward < 1 for reward in group.rewards) for group in groups]
    jitter = dice.uniform(0.9, 1.1)
    return {
        "step": step,
        "reward/mean": sum(rewards) / len(rewards),
        "reward/group_std": 0.4 * jitter,
        "component/answer/mean": rate * jitter,
        "component/format/mean": min(1.0, 0.7 + rate / 3),
        "groups/all_right": sum(right) / 4,
        "groups/all_wrong": sum(wrong) / 4,
        "groups/mixed": 1 - (sum(right) + sum(wrong)) / 4,
        "groups/no_verdict": 0.0,
        "length/p10": 8 * jitter,
        "length/p50": 12 * jitter,
        "length/p90": 18 * jitter,
        "length/truncated_frac": 0.05 * jitter,
        "kl/reference": 0.001 * step * jitter,
        "entropy/mean": (1.1 - 0.5 * rate) * jitter,
        "clip/low": 0.004 * jitter,
        "clip/high": 0.007 * jitter,
        "grad/norm": 0.8 * jitter,
        "gap/mean_abs": 2e-7 * jitter,
        "gap/max_abs": 9e-7 * jitter,
        "loss/total": -0.01 * jitter,
        "learner/lr": 3e-4,
        "tokens/completion": int(400 * jitter),
        "seconds/rollout": 0.7 * jitter,
        "seconds/verify": 0.02 * jitter,
        "seconds/verify_busy": 0.05 * jitter,
        "seconds/update": 0.5 * jitter,
        "seconds/update/forward": 0.125 * jitter,
        "seconds/update/backward": 0.25 * jitter,
        "seconds/record": 0.005 * jitter,
        **({"seconds/evaluation": 1.5} if step % 20 == 0 else {}),
        "tokens_per_second/rollout": 900 * jitter,
        "tokens_per_second/update": 4000 * jitter,
    }


def evaluation(step: int, greedy: float) -> dict[str, object]:
    return {
        "step": step,
        "greedy": greedy,
        "pass_at_1": greedy - 0.04,
        "pass_at_k": min(1.0, greedy + 0.21),
        "k": 4,
        "interval": [greedy - 0.06, greedy + 0.06],
        "pass_at_1_interval": [greedy - 0.08, greedy + 0.01],
        "num_tasks": 200,
        "num_samples": 4,
        "tokens_per_correct": 12.5 / max(greedy, 0.01),
        "mean_tokens": 12.5,
        "truncated_frac": 0.04,
        "by_kind": {"countdown-3": {"greedy": greedy + 0.03}, "countdown-4": {"greedy": greedy - 0.05}},
    }


def build_run(path: Path, *, num_steps: int = 60, is_final: bool = True) -> RunFolder:
    """Write a whole run: evaluations every 20 steps, one drop, hostile text in its last group."""
    dice = random.Random(0)
    run = create_run(path)
    for step in range(num_steps):
        rate = 0.34 + 0.43 * step / num_steps
        if step % 20 == 0:
            run.append_evaluation(step, evaluation(step, round(rate, 3)))
        groups = groups_of(step, rate, dice)
        if step == num_steps - 1:
            groups.append(hostile_group(step))
        append_groups(run, step, groups)
        run.append_metrics(metrics_of(step, groups, rate, dice))
        if step == 12:
            run.append_event(step, "dropped_group", "countdown-49: fewer than two verdicts", task="countdown-49", num=1)
        if step % 10 == 9:
            run.seal()
    if is_final:
        run.append_evaluation(num_steps, evaluation(num_steps, 0.77))
        run.seal(is_final=True)
    return run


def hostile_group(step: int) -> Group:
    task = make_task(
        9000,
        prompt=(Message(role="system", content=HOSTILE[1]), Message(role="user", content=HOSTILE[0])),
        kind="<b>hostile</b>",
        gold=HOSTILE[2],
    )
    return make_group(9000, [1.0, 0.0, 0.0, None, 0.0, 0.1, 0.0, 0.0], step=step, texts=HOSTILE, task=task)
