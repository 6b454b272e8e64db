"""Wrong settings of `verify` and `audit` are refused before torch is imported, right ones are left alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from oncurve.cli.early import refuse_early
from oncurve.types import ConfigError

SCRIPT = """
import sys
from oncurve.cli.app import app
try:
    app(sys.argv[1:])
except Exception as error:
    print(error)
print("torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--reward.timeout", "3"], "unknown setting reward.timeout. Did you mean reward.timeout_s?"),
        (["--reward.timeout_s", "-3"], "reward.timeout_s: Input should be greater than 0 (got -3)"),
        (["--tasks.surce", "x"], "unknown setting tasks.surce. Did you mean tasks.source?"),
        (["missing.toml"], "there is no config file missing.toml"),
        (["rewards.py"], "rewards.py is not valid TOML"),
    ],
)
@pytest.mark.parametrize("command", [["verify", "one.jsonl"], ["audit"]], ids=["verify", "audit"])
def test_a_wrong_setting_is_refused_without_torch(tmp_path: Path, command: list[str], words: list[str], message: str):
    (tmp_path / "one.jsonl").write_text('{"completion": "<answer>1</answer>", "gold": "1"}\n')
    (tmp_path / "rewards.py").write_text("def f(completions): pass\n")
    line = [sys.executable, "-c", SCRIPT, *command, *words]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert message in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "False"


def test_what_only_the_whole_config_can_tell_is_left_to_it(tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    refuse_early(None, [])
    refuse_early(None, ["--steps", "no number", "--learner.lr", "1e-4"])
    refuse_early(None, ["--no_such_setting"])
    # A file of problems takes the place of the embedded default, whose options belong to countdown.
    refuse_early(None, ["--tasks.path", str(tmp_path / "rows.jsonl")])
    with pytest.raises(ConfigError, match=r"tasks\.options"):
        refuse_early(None, ["--tasks.path", str(tmp_path / "rows.jsonl"), "--tasks.options.num_numbers", "3"])
