"""What a comparison file plans, and what it refuses."""

from pathlib import Path

import pytest

from oncurve.config import ComparisonPlan, load_comparison
from oncurve.types import ConfigError

FILE = """
tokens = 1000
seeds = [3, 5]
output = "{output}"
[settings]
threads = 1
learner.lr = 2e-4
[arms.grpo]
objective = {{ preset = "grpo" }}
[arms.base]
learner.lr = 3e-4
rollout.group_size = 7
[arms.dpo]
method = "dpo"
dpo = {{ beta = 0.3 }}
evaluation.every = 2
"""


def plan_of(folder: Path, text: str = FILE, *words: str) -> ComparisonPlan:
    file = folder / "compare.toml"
    file.write_text(text.format(output=folder / "out"), encoding="utf-8")
    return load_comparison(file, words)


def refusal(folder: Path, old: str, new: str) -> str:
    assert FILE.count(old) == 1
    with pytest.raises(ConfigError) as caught:
        plan_of(folder, FILE.replace(old, new))
    return str(caught.value)


def test_every_arm_has_a_run_for_each_seed_and_offline_arms_one_collection_before(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert [run.name for run in plan.runs] == [
        *("grpo-seed3", "base-seed3", "collect-seed3", "dpo-seed3"),
        *("grpo-seed5", "base-seed5", "collect-seed5", "dpo-seed5"),
    ]
    assert [run.config.seed for run in plan.of_arm("dpo")] == [3, 5]
    dpo = plan.of_arm("dpo")[1]
    collection = plan.collection_of(dpo)
    assert collection is not None
    assert (collection.config.method, collection.config.seed, collection.folder) == (
        *("collect", 5),
        tmp_path / "out" / "collect-seed5",
    )
    assert dpo.config.dpo.rollouts == collection.folder
    assert plan.collection_of(plan.runs[0]) is None


def test_an_arm_is_the_base_with_what_is_shared_and_what_is_its_own(tmp_path: Path) -> None:
    grpo, base, collect, dpo = (run.config for run in plan_of(tmp_path).runs[:4])
    assert (grpo.learner.lr, base.learner.lr, dpo.learner.lr) == (2e-4, 3e-4, 2e-4)
    assert (grpo.rollout.group_size, base.rollout.group_size, collect.rollout.group_size) == (16, 7, 16)
    assert (grpo.objective.kl_coef, base.objective.kl_coef) == (0.04, 0.0)
    # A preset takes the place of the base's objective, which leaves equal groups out and means over tokens.
    assert (grpo.objective.zero_variance, grpo.objective.aggregation) == ("keep", "seq-mean-token-mean")
    assert (base.objective.zero_variance, base.objective.aggregation) == ("skip", "token-mean")
    assert (dpo.dpo.beta, dpo.evaluation.every, grpo.evaluation.every) == (0.3, 2, 20)
    assert dpo.dpo.rollouts == tmp_path / "out" / "collect-seed3"
    assert grpo.tasks == base.tasks == collect.tasks == dpo.tasks


def test_the_budget_ends_a_run_and_its_steps_never_come_before(tmp_path: Path) -> None:
    grpo, base, collect, dpo = (run.config for run in plan_of(tmp_path).runs[:4])
    assert [config.rollout_tokens for config in (grpo, base, collect, dpo)] == [1000, 1000, 1000, 0]
    # A step samples one token a completion at least: ceil(1000 / (32 * 16)) and ceil(1000 / (32 * 7)).
    assert (grpo.steps, base.steps, collect.steps) == (2, 5, 2)
    assert dpo.steps == 1000  # its passes over the pairs end it
    assert collect.evaluation.num_tasks == 2


def test_an_arm_with_rollouts_of_its_own_has_a_collection_of_its_own(tmp_path: Path) -> None:
    text = FILE.replace("evaluation.every = 2", "rollout.group_size = 4\n[arms.ipo]\nmethod = 'dpo'")
    plan = plan_of(tmp_path, text)
    names = [run.name for run in plan.runs if run.seed == 3]
    assert names == ["grpo-seed3", "base-seed3", "collect-dpo-seed3", "dpo-seed3", "collect-seed3", "ipo-seed3"]
    assert plan.runs[2].config.rollout.group_size == 4
    assert plan.runs[4].config.rollout.group_size == 16


def test_two_offline_arms_share_their_collection(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, FILE + "\n[arms.ipo]\nmethod = 'dpo'\ndpo.variant = 'ipo'\n")
    assert [run.name for run in plan.runs if run.seed == 5 and run.arm == "collect"] == ["collect-seed5"]
    assert plan.of_arm("ipo")[0].collection == plan.of_arm("dpo")[0].collection


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, FILE, "--tokens", "64", "--seeds", "[9]", "--settings.learner.lr=1e-5")
    assert [run.name for run in plan.runs] == ["grpo-seed9", "base-seed9", "collect-seed9", "dpo-seed9"]
    assert (plan.runs[0].config.rollout_tokens, plan.runs[0].config.learner.lr) == (64, 1e-5)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('preset = "grpo"', 'preset = "grop"', "arms.grpo: objective: there is no preset 'grop'. Did you mean grpo?"),
        ("rollout.group_size = 7", "lr = 1.0", "arms.base: unknown setting lr. Did you mean learner.lr?"),
        ("rollout.group_size = 7", "learner.lrr = 1.0", "arms.base: unknown setting learner.lrr. Did you mean"),
        ("rollout.group_size = 7", "tasks.num_held_out = 9", "arms.base.tasks.num_held_out: task, starting model"),
        ("rollout.group_size = 7", "rollout.sampling.max_tokens = 9", "arms.base.rollout.sampling.max_tokens: task"),
        ("rollout.group_size = 7", "evaluation.num_tasks = 9", "arms.base.evaluation.num_tasks: task, starting"),
        ("rollout.group_size = 7", "seed = 9", "arms.base.seed: a comparison decides this itself, by seeds"),
        ("rollout.group_size = 7", "rollout = 7", "arms.base.rollout: is a table of settings, got 7"),
        ("beta = 0.3", "pairs = 'x.jsonl'", "arms.dpo.dpo.pairs: a comparison decides this itself"),
        ('method = "dpo"', 'method = "sft"', 'arms.dpo.method: a comparison has arms of method "online" and "dpo"'),
        ("threads = 1", "threads = 1\nsteps = 9", "settings.steps: a comparison decides this itself, by tokens"),
        ("threads = 1", "threds = 1", "settings: unknown setting threds. Did you mean threads?"),
        ("tokens = 1000", "tokens = 0", "tokens: Input should be greater than or equal to 1"),
        ("tokens = 1000", "tokns = 1000", "unknown setting tokns. Did you mean tokens?"),
        ("seeds = [3, 5]", "seeds = [3, 3]", "seeds must be different numbers"),
        ("[arms.base]", "[arms.collect]", 'an arm cannot be named "collect"'),
        ("[arms.base]", '[arms."a/b"]', "arms.a/b: name: String should match pattern"),
    ],
)
def test_what_would_not_be_a_comparison_is_refused_with_file_and_key(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    said = refusal(tmp_path, old, new)
    assert str(tmp_path / "compare.toml") in said
    assert says in said


def test_seeds_must_be_asked_the_same_problems(tmp_path: Path) -> None:
    base = tmp_path / "base.toml"
    base.write_text("[tasks]\nsource = 'largest'\n[reward.components.correct]\nverifier = 'task'\n")
    text = FILE.replace("tokens = 1000", f"tokens = 1000\nbase = '{base}'")
    with pytest.raises(ConfigError, match=r"held_out_seed is not set, so every seed would be examined on other"):
        plan_of(tmp_path, text)
    assert plan_of(tmp_path, text, "--seeds", "[1]").config.seeds == (1,)
    assert plan_of(tmp_path, text, "--settings.tasks.held_out_seed", "0").runs


def test_a_comparison_needs_two_arms_and_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 2 items"):
        plan_of(tmp_path, "tokens = 5\n[arms.a]\n")
    with pytest.raises(ConfigError, match=r"there is no config file .*missing.toml"):
        load_comparison(tmp_path / "missing.toml")
