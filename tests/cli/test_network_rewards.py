"""Commands that judge without training work with a reward model in the config: a real classifier, tiny and random."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

from oncurve.cli.audit import audit_target
from oncurve.cli.inspect import check_tasks
from oncurve.cli.judge import judge_file
from oncurve.cli.review import Review
from oncurve.config import dump_config, load_config
from oncurve.model.embedded import character_tokenizer
from oncurve.report import RunFolder
from oncurve.rollout.reward_model import NETWORK_VERIFIERS, RewardModel
from oncurve.tasks import load_tasks
from oncurve.types import Completion, ConfigError, FinishReason, Group, Sampling, Task
from oncurve.verify import Item, Scorer
from oncurve.verify.audit import AuditSettings
from oncurve.verify.judges import RewardModelSettings
from oncurve.verify.loopholes import loopholes

TEXTS = ("<think>1</think><answer>1</answer>", "<answer>2</answer>", "three")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory, tokenizer = tmp_path_factory.mktemp("taste"), character_tokenizer()
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                         num_attention_heads=2, pad_token_id=0, num_labels=1)  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(1)
        LlamaForSequenceClassification(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def words(model: Path) -> list[str]:
    """The embedded default with the classifier as a second component."""
    taste = {"verifier": '"reward_model"', "weight": "0.5", "options.path": json.dumps(str(model))}
    given = [word for name, value in taste.items() for word in (f"--reward.components.taste.{name}", value)]
    return [*given, "--tasks.num_held_out", "4", "--tasks.num_train", "4"]


def taste_of(model: Path, prompt: Any, text: str) -> float:
    task = Task(id="1", prompt=prompt, gold="1", kind="file", verifier="answer")
    (verdict,) = RewardModel(RewardModelSettings(path=model)).judge([Item(task=task, text=text)])
    assert verdict.reward is not None
    return verdict.reward


def test_verify_judges_a_file_with_the_network_of_the_config(model: Path, words: list[str], tmp_path: Path):
    rows = [{"completion": text, "gold": "1", "prompt": "1=", "verifier": "answer"} for text in TEXTS]
    file = tmp_path / "completions.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    found = list(judge_file(file, None, words))
    assert [one["components"]["taste"] for one in found] == pytest.approx(
        [taste_of(model, "1=", text) for text in TEXTS], abs=1e-6
    )
    assert [one["components"]["correct"] for one in found] == [1.0, 0.0, 0.0]


def test_audit_attacks_it(words: list[str], tmp_path: Path):
    settings = AuditSettings(families=("policy",), num_policy_tasks=1, num_tasks=1)
    found = audit_target(None, words, tasks=None, settings=settings, exploits=tmp_path, timeout_s=5)
    assert found.num_asked > 10
    assert not found.no_verdicts


def test_check_judges_golds_beside_it(words: list[str]):
    assert check_tasks(None, words).data["rejected_golds"] == []


def test_loopholes_ask_it(words: list[str]):
    config = load_config(None, words)
    tasks = load_tasks(config.tasks, seed=0).held_out
    assert loopholes(config.reward, tasks, builders=NETWORK_VERIFIERS) != []
    with pytest.raises(ConfigError, match="reward_model"):
        loopholes(config.reward, tasks)


def test_review_takes_a_component_of_the_run_for_its_second_opinion(model: Path, words: list[str], tmp_path: Path):
    config = load_config(None, words)
    run = RunFolder.create(tmp_path / "run", config_toml=dump_config(config), environment={}, formula="")
    task = load_tasks(config.tasks, seed=config.seed).train[0]
    texts = [f"<think>ok</think><answer>{task.gold}</answer>", *TEXTS]
    with Scorer(config.reward, builders=NETWORK_VERIFIERS) as scorer:
        verdicts = scorer.score([Item(task=task, text=text) for text in texts])
    completions = tuple(
        Completion(task_id=task.id, index=index, prompt_ids=(1,), token_ids=(2,), old_logprobs=(-1.0,), text=text,
                   policy_version=0, finish_reason=FinishReason.STOP, sampling=Sampling())
        for index, text in enumerate(texts)
    )  # fmt: skip
    run.append_rollouts(0, [Group(task=task, completions=completions, verdicts=tuple(verdicts))], [[0.0] * 4])
    for option, is_doubtful in ((0.999, True), (0.0, False)):  # paid well by the run; is it liked as well?
        changed = load_config(None, [*words, "--reward.components.taste.options.correct_at", str(option)])
        (tmp_path / "run" / "config.toml").write_text(dump_config(changed))
        review = Review(tmp_path / "run", second="taste", exploits=tmp_path / "exploits")
        reasons = {reason.name for suspect in review.suspects for reason in suspect.reasons}
        assert ("second_opinion" in reasons) is is_doubtful, reasons
    with pytest.raises(ConfigError, match="--second tast: "):
        Review(tmp_path / "run", second="tast", exploits=tmp_path / "exploits")
