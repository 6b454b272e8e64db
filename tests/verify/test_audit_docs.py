"""The pages about audit, review and reward design are true, and so are their examples."""

from pathlib import Path

import pytest

from oncurve.config import load_config
from oncurve.report import read_evaluations
from oncurve.tasks import load_tasks
from oncurve.train import Session, train
from oncurve.verify.audit import AuditSettings, RewardTarget, audit

ROOT = Path(__file__).parents[2]
BAD = ROOT / "examples" / "bad-rewards"


@pytest.mark.parametrize(
    "page", ["concepts/audit.md", "concepts/review.md", "concepts/reward-design.md", "verifiers.md"]
)
def test_the_code_of_the_page_runs(page: str):
    blocks = (ROOT / "docs" / page).read_text().split("```python\n")[1:]
    source = "\n".join(block.split("```")[0] for block in blocks)
    assert source.count("assert") >= 2
    exec(compile(source, page, "exec"), {})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("format-weight", "empty place"),
        ("claimed-result", "claimed target"),
        ("substring", "the prompt again"),
    ],
)
def test_the_audit_names_the_hole_of_each_bad_reward_before_training(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(ROOT)
    config = load_config(BAD / f"{name}.toml", ["--tasks.num_held_out", "4"])
    tasks = load_tasks(config.tasks, seed=config.seed).held_out
    with RewardTarget(config.reward, name=name, task=tasks[0]) as target:
        found = audit(target, tasks, AuditSettings(num_policy_tasks=1))
    assert not found.passed
    assert kind in {one.kind for one in found.false_accepts}


def test_a_bad_reward_runs_with_an_honest_witness_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    words = [
        *("--threads", "1", "--steps", "1", "--rollout.num_prompts", "2", "--rollout.group_size", "2"),
        *("--rollout.sampling.max_tokens", "30", "--tasks.num_held_out", "4", "--evaluation.num_tasks", "4"),
        *("--run_dir", str(tmp_path / "run")),
    ]
    config = load_config(BAD / "claimed-result.toml", words)
    assert config.reward.weights == {"claim": 1.0, "honest": 0.0}
    with Session.create(config) as session:
        list(train(session))
    assert set(read_evaluations(tmp_path / "run")[-1]["components"]) == {"claim", "honest"}
