"""`oncurve compare`, as a user meets it."""

import json
from pathlib import Path

from tests.cli.test_cli import ROOT, error_of, oncurve
from tests.train.conftest import SMALL


def documented(run: Path) -> list[str]:
    """The command of the concept page, for the first step of a run."""
    page = (ROOT / "docs" / "concepts" / "frozen-comparison.md").read_text(encoding="utf-8")
    (command,) = (line for line in page.splitlines() if line.startswith("oncurve compare"))
    return command.replace("runs/countdown-001", str(run)).replace("--step 20", "--step 0").split()[1:]


def test_a_rollout_is_compared_and_a_mistyped_flag_is_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert oncurve("train", *SMALL, "--steps", "1", "--run_dir", run).returncode == 0
    words = [*documented(run), "--evaluate", "0"]
    done = oncurve(*words, "--json", "--to", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert [one["name"] for one in json.loads(done.stdout)["objectives"]] == ["run", "grpo", "dr_grpo", "gspo"]
    assert json.loads((tmp_path / "out" / "comparison.json").read_text()) == json.loads(done.stdout)
    shown = oncurve(*words)
    assert "cosine between gradients" in shown.stdout
    assert shown.stdout.count("minimise") == 4
    assert "Did you mean --objectives?" in error_of("compare", "--rollouts", run, "--step", "0", "--objectivs", "run")
    assert "--rollouts needs --step N" in error_of("compare", "--rollouts", run, "--objectives", "run")


def test_compare_without_a_rollout_says_what_to_type() -> None:
    assert "oncurve compare --rollouts RUN --step N --objectives a,b" in error_of("compare")
    assert "compare" in oncurve("compare", "--help").stdout
