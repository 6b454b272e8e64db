"""``oncurve import`` as a user meets it."""

import json
import re
from pathlib import Path

import pytest

from oncurve.cli import main
from oncurve.config import load_config

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked")
DATA = Path(__file__).parent / "data"


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr("sys.argv", ["oncurve", *words])
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise


def test_toml_goes_to_stdout_and_the_report_to_stderr(monkeypatch, capsys, tmp_path):
    run(monkeypatch, "import", "trl", str(DATA / "trl_grpo.json"))
    out, err = capsys.readouterr()
    (tmp_path / "ours.toml").write_text(out)
    assert load_config(tmp_path / "ours.toml").steps == 50
    assert "minimise" in err
    assert "repetition_penalty" in err


def test_with_to_the_report_goes_to_stdout(monkeypatch, capsys, tmp_path):
    target = tmp_path / "ours.toml"
    run(monkeypatch, "import", "verl", str(DATA / "verl_overrides.txt"), "--to", str(target))
    assert "WITHOUT A COUNTERPART" in capsys.readouterr().out
    assert load_config(target).steps == 50


def test_nothing_is_overwritten(monkeypatch, capsys, tmp_path):
    target = tmp_path / "ours.toml"
    target.write_text("steps = 3\n")
    with pytest.raises(SystemExit):
        run(monkeypatch, "import", "trl", str(DATA / "trl_grpo.json"), "--to", str(target))
    assert "exists already" in capsys.readouterr().err
    assert target.read_text() == "steps = 3\n"


def test_json_is_one_object(monkeypatch, capsys):
    run(monkeypatch, "import", "trl", str(DATA / "trl_script.yaml"), "--json")
    data = json.loads(capsys.readouterr().out)
    assert set(data) == {"config", "formula", "mapped", "same", "unmapped", "defaults_applied"}
    (typo,) = [entry for entry in data["unmapped"] if entry["key"] == "epsilon_hi"]
    assert "Did you mean epsilon_high?" in typo["note"]


def test_processes_multiply_the_batch_of_trl(monkeypatch, capsys):
    run(monkeypatch, "import", "trl", str(DATA / "trl_grpo.json"), "--processes", "3")
    assert "num_prompts = 12" in capsys.readouterr().out


def test_the_written_config_can_be_explained(monkeypatch, capsys, tmp_path):
    target = tmp_path / "ours.toml"
    run(monkeypatch, "import", "trl", str(DATA / "trl_grpo.json"), "--to", str(target))
    capsys.readouterr()
    run(monkeypatch, "explain", str(target), "--rollout.sampling.max_tokens", "8")
    assert "50 steps make 50 optimiser steps" in capsys.readouterr().out


def test_the_example_of_the_page_runs():
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "migrate.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(block, "migrate.md", "exec"), {})
