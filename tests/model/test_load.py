"""Loading: what is found in a directory, and one clear error for each thing that can be wrong with it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BloomConfig, BloomForCausalLM, GPT2Config, GPT2LMHeadModel, T5Config

from oncurve.model import LoraSettings, ModelSettings, embedded_directory, load_policy, save_policy, source
from oncurve.model.embedded import CONTEXT_LENGTH, character_tokenizer, fresh_embedded_policy
from oncurve.model.source import resolve_directory
from oncurve.types import Message, ModelError
from tests.model.directories import chat_tokenizer, edit_json, llama, save_llama


def load(directory: Path, **settings: Any) -> Any:
    return load_policy(ModelSettings(path=str(directory), **settings), seed=0)


def test_a_directory_gives_model_tokenizer_limits_and_every_terminator(llama_directory: Path) -> None:
    policy = load(llama_directory)
    end_of_turn = policy.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert policy.terminators == {0, end_of_turn}  # <end> of the tokenizer, <|im_end|> of the template
    assert policy.context_length == 64
    assert policy.adapter is None
    assert not policy.model.training
    assert policy.model.dtype is torch.float32  # auto, and the model is small


def test_the_weights_are_those_of_the_file(llama_directory: Path) -> None:
    weights = load(llama_directory).model.state_dict()
    for name, saved in load_file(llama_directory / "model.safetensors").items():
        assert torch.equal(weights[name], saved)


def test_loading_leaves_the_random_state_alone(llama_directory: Path) -> None:
    before = torch.get_rng_state()
    load(llama_directory, lora=LoraSettings())
    assert torch.equal(torch.get_rng_state(), before)


def test_bfloat16_rounds_the_weights_but_not_the_rotary_frequencies(llama_directory: Path) -> None:
    exact, rounded = load(llama_directory), load(llama_directory, dtype="bfloat16")
    assert {parameter.dtype for parameter in rounded.model.parameters()} == {torch.bfloat16}
    assert torch.equal(exact.model.model.rotary_emb.inv_freq, rounded.model.model.rotary_emb.inv_freq)


@pytest.mark.parametrize(
    ("dtype", "attention", "expected"),
    [
        ("float32", "auto", "sdpa"),
        ("bfloat16", "auto", "eager"),
        ("float32", "eager", "eager"),
        ("bfloat16", "sdpa", "sdpa"),
    ],
)
def test_attention_follows_the_setting(llama_directory: Path, dtype: str, attention: str, expected: str) -> None:
    policy = load(llama_directory, dtype=dtype, attention=attention)
    assert policy.model.config._attn_implementation == expected


def test_dropout_is_off_even_in_training_mode(tmp_path: Path) -> None:
    save_llama(tmp_path / "llama", attention_dropout=0.5)
    fresh = fresh_embedded_policy(0)
    config = GPT2Config(**{**fresh.model.config.to_dict(), "resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_pdrop": 0.5})
    fresh.model = GPT2LMHeadModel(config)
    save_policy(fresh, tmp_path / "gpt2")
    for name in ("llama", "gpt2"):
        model = load(tmp_path / name, attention="eager").model
        ids = torch.arange(8).unsqueeze(0)
        quiet = model(ids).logits
        assert torch.equal(model.train()(ids).logits, quiet)


def test_checkpointing_changes_memory_and_not_the_gradient(llama_directory: Path) -> None:
    plain, checkpointed = (load(llama_directory, gradient_checkpointing=each).model.train() for each in (False, True))
    assert _tensors_kept_for_backward(checkpointed) < _tensors_kept_for_backward(plain) / 2
    for left, right in zip(plain.parameters(), checkpointed.parameters(), strict=True):
        assert torch.allclose(left.grad, right.grad)


def _tensors_kept_for_backward(model: Any) -> int:
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(torch.arange(8).unsqueeze(0)).logits.square().sum()
    number = len(kept)
    loss.backward()
    return number


def test_chat_messages_go_through_the_template_and_open_the_assistants_turn(llama_directory: Path) -> None:
    policy = load(llama_directory)
    ids = policy.encode_prompt((Message(role="user", content="1+2"),))
    assert policy.tokenizer.decode(ids) == "<|im_start|>user\n1+2<|im_end|>\n<|im_start|>assistant\n"


def test_chat_messages_without_a_template_are_refused() -> None:
    with pytest.raises(ModelError, match="no chat template"):
        fresh_embedded_policy(0).encode_prompt((Message(role="user", content="1+2"),))


def test_nothing_reaches_for_the_network(llama_directory: Path) -> None:
    connections: list[str] = []
    listening = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if listening and event in ("socket.connect", "socket.getaddrinfo"):
            connections.append(f"{event} {arguments}")

    sys.addaudithook(hook)
    try:
        load(llama_directory)
        with pytest.raises(ModelError):
            load(Path("someone/some-model"))
    finally:
        listening = False
    assert connections == []


# What can be wrong with the source


@pytest.mark.parametrize(
    ("path", "nearest"), [("embeded", "embedded"), ("smollm", "smollm2"), ("{parent}/tiny-lama", "{parent}/tiny-llama")]
)
def test_a_path_that_is_no_directory_names_the_nearest_known_one(
    llama_directory: Path, path: str, nearest: str
) -> None:
    path, nearest = (text.format(parent=llama_directory.parent) for text in (path, nearest))
    with pytest.raises(ModelError) as error:
        load_policy(ModelSettings(path=path), seed=0)
    assert f"model.path = {path!r} is not a directory. Did you mean {nearest}?" in str(error.value)


def test_a_hub_name_is_not_downloaded() -> None:
    with pytest.raises(ModelError, match="never downloaded"):
        load_policy(ModelSettings(path="someone/some-model"), seed=0)


def test_a_missing_embedded_model_names_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "embedded_directory", lambda: tmp_path / "data")
    with pytest.raises(ModelError, match=r"data has no config.*run `oncurve sft"):
        load_policy(ModelSettings(), seed=0)


def test_the_embedded_model_is_package_data() -> None:
    assert embedded_directory() == Path(source.__file__).parent / "data" / "embedded"


@pytest.mark.parametrize(
    ("removed", "what"),
    [("config.json", "config"), ("model.safetensors", "weights"), ("tokenizer.json", "tokenizer")],
)
def test_an_incomplete_directory_names_what_it_lacks(tmp_path: Path, removed: str, what: str) -> None:
    save_llama(tmp_path)
    (tmp_path / removed).unlink()
    with pytest.raises(ModelError, match=f"{tmp_path} has no {what}: .*{removed}"):
        load(tmp_path)


def test_an_adapter_alone_is_named_as_such(tmp_path: Path, llama_directory: Path) -> None:
    save_policy(load(llama_directory, lora=LoraSettings()), tmp_path)
    with pytest.raises(ModelError, match="LoRA adapter without its model"):
        load(tmp_path / "adapter")
    assert resolve_directory(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_damaged_file_is_an_error_that_names_its_place(tmp_path: Path, file: str) -> None:
    save_llama(tmp_path)
    (tmp_path / file).write_bytes((tmp_path / file).read_bytes()[:40])
    with pytest.raises(ModelError, match=str(tmp_path)):
        load(tmp_path)


def test_a_model_that_is_no_language_model_is_refused(tmp_path: Path) -> None:
    save_llama(tmp_path)
    T5Config().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"config\.json as a causal language model: Unrecognized configuration class"):
        load(tmp_path)


def test_code_in_a_model_directory_is_not_run(tmp_path: Path) -> None:
    save_llama(tmp_path)
    (tmp_path / "custom.py").write_text("raise SystemExit('ran')\n")
    edit_json(tmp_path / "config.json", model_type="custom", auto_map={"AutoConfig": "custom.CustomConfig"})
    with pytest.raises(ModelError, match=r"config\.json"):
        load(tmp_path)


# What can be wrong with the weights


def test_a_base_model_without_its_head_is_refused(tmp_path: Path) -> None:
    tokenizer = chat_tokenizer()
    llama(len(tokenizer)).model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"lack lm_head.weight.*without its language-model head"):
        load(tmp_path)


def test_weights_of_other_shapes_are_named(tmp_path: Path) -> None:
    save_llama(tmp_path)
    edit_json(tmp_path / "config.json", intermediate_size=40)
    with pytest.raises(ModelError, match=r"shapes of its config.json: model\.layers\.0\.mlp.* and 3 more"):
        load(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_named_and_counted(tmp_path: Path, value: float) -> None:
    save_llama(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    weights["model.layers.1.mlp.up_proj.weight"][2, :3] = value
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"3 of 1536 values of model\.layers\.1\.mlp\.up_proj\.weight"):
        load(tmp_path)  # 48 * 32 = 1536


# What can be wrong with the tokenizer


def test_a_tokenizer_without_an_end_is_refused(tmp_path: Path) -> None:
    save_llama(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", eos_token=None)
    with pytest.raises(ModelError, match=r"no end-of-sequence token.*tokenizer_config\.json"):
        load(tmp_path)


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path: Path) -> None:
    tokenizer = chat_tokenizer()
    rows = len(tokenizer) - 1
    llama(rows).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(
        ModelError, match=rf"ids up to {rows}, but the model embeds only {rows} tokens \(0 to {rows - 1}\)"
    ):
        load(tmp_path)


def test_an_embedding_larger_than_the_tokenizer_is_fine(tmp_path: Path) -> None:
    tokenizer = chat_tokenizer()
    llama(len(tokenizer) + 7).save_pretrained(tmp_path)  # padded to a round number, as many models are
    tokenizer.save_pretrained(tmp_path)
    assert load(tmp_path).model.config.vocab_size == len(tokenizer) + 7


# Terminators and context


def _generation_eos(directory: Path, eos: Any) -> None:
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}))


@pytest.mark.parametrize(("eos", "added"), [(3, {3}), ([3, 4], {3, 4}), ([3, 50256], {3}), (None, set())])
def test_the_generation_config_adds_its_terminators(tmp_path: Path, eos: Any, added: set[int]) -> None:
    save_llama(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    _generation_eos(tmp_path, eos)
    assert load(tmp_path).terminators == {0} | added  # 50256 lies outside the embedding: it cannot be sampled


@pytest.mark.parametrize("closing", ["<|im_end|>", "\n<|im_end|>\n", "</answer><|im_end|>", ""])
def test_only_the_token_right_behind_the_answer_ends_a_turn(tmp_path: Path, closing: str) -> None:
    save_llama(tmp_path)
    template = "<|im_start|>{% for m in messages %}{{ m['content'] }}" + closing + "{% endfor %}"
    (tmp_path / "chat_template.jinja").write_text(template)
    policy = load(tmp_path)
    end_of_turn = policy.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert policy.terminators == ({0, end_of_turn} if closing.strip().startswith("<|im_end|>") else {0})


def test_a_broken_template_is_an_error_that_names_its_place(tmp_path: Path) -> None:
    save_llama(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{% for m in messages %}{{ raise_exception('no roles') }}")
    with pytest.raises(ModelError, match=f"chat template in {tmp_path} cannot render"):
        load(tmp_path)


def test_the_context_of_a_gpt2_is_its_number_of_positions(tmp_path: Path) -> None:
    save_policy(fresh_embedded_policy(0), tmp_path)
    policy = load(tmp_path)
    assert policy.context_length == CONTEXT_LENGTH
    assert policy.terminators == {0}


def test_auto_takes_eager_attention_where_the_architecture_has_no_other(tmp_path: Path) -> None:
    tokenizer = character_tokenizer()
    config = BloomConfig(vocab_size=len(tokenizer), hidden_size=32, n_layer=1, n_head=2, eos_token_id=0, seq_length=64)
    BloomForCausalLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    policy = load_policy(ModelSettings(path=str(tmp_path)), seed=0)
    assert policy.model.config._attn_implementation == "eager"
    with pytest.raises(ModelError, match="scaled_dot_product_attention"):
        load_policy(ModelSettings(path=str(tmp_path), attention="sdpa"), seed=0)


@pytest.mark.parametrize("is_tied", [True, False])
def test_frozen_embeddings_are_not_trained_and_a_tied_head_is_the_same_matrix(is_tied: bool, tmp_path: Path) -> None:
    directory = save_llama(tmp_path / "model", tie_word_embeddings=is_tied)
    model = load(directory, freeze_embeddings=True).model
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    assert frozen == {"model.embed_tokens.weight"}
    assert model.get_output_embeddings().weight.requires_grad is not is_tied
    assert all(weight.requires_grad for weight in load(directory).model.parameters())
