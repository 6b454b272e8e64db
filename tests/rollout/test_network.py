"""The network built from weights: whom it knows, what it computes once only, and how near it stays to the learner."""

from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from oncurve.learner import LearnerSettings
from oncurve.learner.packing import Row
from oncurve.learner.stepper import Stepper
from oncurve.model import Policy, fresh_embedded_policy
from oncurve.rollout import Request, TorchEngine
from oncurve.rollout.grouped import agrees
from oncurve.rollout.network import Network
from oncurve.types import Completion, Sampling, derive_seed

SHAPE = {
    "vocab_size": 57,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": 0,
    "bos_token_id": 0,
}
WINDOWS = ["sliding_attention", "full_attention", "sliding_attention"]
FAMILIES: dict[str, PreTrainedConfig] = {
    "gpt2": GPT2Config(vocab_size=57, n_positions=64, n_embd=32, n_layer=3, n_head=4, eos_token_id=0, bos_token_id=0),
    "llama": LlamaConfig(**SHAPE),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen3": Qwen3Config(**SHAPE, head_dim=16),
    "gemma3": Gemma3TextConfig(**SHAPE, head_dim=8, sliding_window=6, layer_types=WINDOWS),
    "mistral": MistralConfig(**SHAPE, sliding_window=5),
}
PROMPTS = [(5, 6, 7), (10, 11, 12, 13, 14, 15, 16, 17), tuple(range(20, 40))]


def policy_of(config: PreTrainedConfig, *, dtype: torch.dtype = torch.float32, attention: str = "sdpa") -> Policy:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).to(dtype).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.mul_(5)  # far from uniform
    return Policy(
        model=model, tokenizer=fresh_embedded_policy(0).tokenizer, terminators=frozenset({0}), context_length=64
    )


def requests(group_size: int, prompts: list[tuple[int, ...]] = PROMPTS) -> list[Request]:
    return [
        Request(task_id=f"t{place}", index=index, prompt_ids=prompt, seed=derive_seed("network", place, index))
        for place, prompt in enumerate(prompts)
        for index in range(group_size)
    ]


def gap_to_own_code(policy: Policy, completions: list[Completion]) -> torch.Tensor:
    """|old log-prob - that of one full pass of the model's own code|, over all tokens."""
    gaps = []
    for done in completions:
        ids = torch.tensor([done.prompt_ids + done.token_ids])
        with torch.no_grad():
            logits = policy.model(input_ids=ids).logits[0, len(done.prompt_ids) - 1 : -1].float()
        expected = logits.log_softmax(-1).gather(1, ids[0, len(done.prompt_ids) :, None]).squeeze(1)
        gaps.append((torch.tensor(done.old_logprobs) - expected).abs())
    return torch.cat(gaps)


def own_code(policy: Policy) -> Policy:
    """The same policy, watched, so that the engine has to run the model's modules."""
    policy.model.register_forward_pre_hook(lambda _module, _args: None)
    return policy


@pytest.mark.parametrize("name", FAMILIES)
def test_the_common_families_are_known_and_sample_what_their_own_code_samples(name):
    policy = policy_of(FAMILIES[name])
    ours, theirs = TorchEngine(policy, max_rows=5), TorchEngine(own_code(policy_of(FAMILIES[name])), max_rows=5)
    for sampling in (Sampling(max_tokens=20), Sampling(max_tokens=20, temperature=0.0)):
        made, twins = (engine.generate(requests(3), sampling, policy_version=0) for engine in (ours, theirs))
        assert ours.note == ""
        assert "hook" in theirs.note
        assert [one.token_ids for one in made] == [one.token_ids for one in twins]
        assert gap_to_own_code(policy, made).max() < 1e-4


def learner_gap(policy: Policy, completions: list[Completion]) -> torch.Tensor:
    """|old log-prob - that which the learner finds|, over all tokens."""
    forward = Stepper(policy, LearnerSettings()).forward
    rows = [Row(done.prompt_ids, done.token_ids) for done in completions]
    found = forward.logprobs(policy.model, rows, 1.0)
    return torch.cat([(torch.tensor(done.old_logprobs) - found[i]).abs() for i, done in enumerate(completions)])


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", FAMILIES)
def test_in_bfloat16_the_learner_finds_the_log_probs_that_were_sampled(name, attention):
    """Both round at the same places, so only a sum in another order may flip a last bit, now and then in a row."""
    config = FAMILIES[name]
    policy = policy_of(config, dtype=torch.bfloat16, attention=attention)
    asked, sampling = requests(12), Sampling(max_tokens=24)
    engine = TorchEngine(policy, max_rows=64)
    ours = learner_gap(policy, engine.generate(asked, sampling, policy_version=0))
    assert engine.note == ""
    assert ours.mean() < 1e-4
    assert (ours > 1e-5).float().mean() < 0.05
    twin = TorchEngine(own_code(policy_of(config, dtype=torch.bfloat16, attention=attention)), max_rows=64)
    theirs = learner_gap(policy, twin.generate(asked, sampling, policy_version=0))
    assert theirs.mean() > 20 * ours.mean()  # which is what rounding elsewhere makes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapter_is_part_of_the_weights(dtype):
    policy = policy_of(FAMILIES["llama"], dtype=dtype)
    base = TorchEngine(policy, max_rows=8).generate(requests(3), Sampling(max_tokens=8), policy_version=0)
    config = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    policy.model = get_peft_model(policy.model, config).eval()
    engine = TorchEngine(policy, max_rows=8)
    adapted = engine.generate(requests(3), Sampling(max_tokens=8), policy_version=0)
    assert engine.note == ""
    assert [one.token_ids for one in adapted] != [one.token_ids for one in base]
    assert gap_to_own_code(policy, adapted).mean() < (1e-4 if dtype is torch.float32 else 0.1)
    with policy.model.disable_adapter():
        again = engine.generate(requests(3), Sampling(max_tokens=8), policy_version=0)
    assert [one.token_ids for one in again] == [one.token_ids for one in base]


def test_a_window_in_the_config_of_a_llama_is_none():
    config = LlamaConfig(**SHAPE, sliding_window=5)
    policy = policy_of(config)
    engine = TorchEngine(policy, max_rows=8)
    made = engine.generate(requests(3), Sampling(max_tokens=20), policy_version=0)
    assert engine.note == ""
    assert gap_to_own_code(policy, made).max() < 1e-4


def test_a_model_changed_inside_runs_its_own_code(monkeypatch):
    class Other(LlamaForCausalLM):
        pass

    config = FAMILIES["llama"]
    policy = policy_of(config)
    other = replace(policy, model=Other(config).eval())
    engine = TorchEngine(other, max_rows=4)
    engine.generate(requests(1), Sampling(max_tokens=2), policy_version=0)
    assert "the family of Other" in engine.note

    mlp = type(policy.model.model.layers[0].mlp)
    plain = mlp.forward
    monkeypatch.setattr(mlp, "forward", lambda self, x: 2 * plain(self, x))
    engine = TorchEngine(policy, max_rows=4)
    made = engine.generate(requests(2), Sampling(max_tokens=9), policy_version=0)
    assert "computes something else" in engine.note
    assert gap_to_own_code(policy, made).max() < 1e-4


def test_rounding_of_the_size_of_the_logits_is_no_other_code_and_other_code_is_found():
    policy = policy_of(FAMILIES["llama"])
    ids = torch.arange(20, 36)
    network = Network(policy.model)
    with torch.no_grad():
        logits = policy.model(input_ids=ids[None]).logits[0]
        assert agrees(network, ids, logits)
        assert agrees(network, ids, logits + 5)  # a shift is no difference
        assert not agrees(network, ids, logits + 0.01 * logits.std() * torch.randn_like(logits))
        assert agrees(network, ids, logits * float("nan"))  # broken weights are found where tokens are drawn


def count_tokens(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens of every pass through the network."""
    sizes: list[int] = []
    plain = Network.hidden

    def counted(self, ids, positions, attend):
        sizes.append(len(ids))
        return plain(self, ids, positions, attend)

    monkeypatch.setattr(Network, "hidden", counted)
    return sizes


def test_a_prompt_runs_once_for_its_group_and_what_all_begin_with_once_for_all(monkeypatch):
    policy = replace(policy_of(FAMILIES["llama"]), terminators=frozenset({56}))
    head = tuple(range(1, 21))
    asked = requests(4, [(*head, 30), (*head, 31, 32), (*head, 33, 34, 35)])
    sizes = count_tokens(monkeypatch)
    TorchEngine(policy, max_rows=12).generate(asked, Sampling(max_tokens=2), policy_version=0)
    assert sizes[1:] == [20, 6, 12]  # behind the tokens of the first use: the head, the tails, one step
    sizes.clear()
    TorchEngine(policy, max_rows=3).generate(asked, Sampling(max_tokens=2), policy_version=0)
    assert sum(sizes[1:]) == 20 + 6 + 12


@pytest.mark.parametrize("limit", [1, 40, 70, 10_000])
def test_max_cache_tokens_bounds_what_is_held_and_changes_no_completion(monkeypatch, limit):
    policy = replace(policy_of(FAMILIES["qwen2"]), terminators=frozenset({56}))
    sampling = Sampling(max_tokens=10)
    free = TorchEngine(policy, max_rows=64).generate(requests(4), sampling, policy_version=0)
    sizes = count_tokens(monkeypatch)
    tight = TorchEngine(policy, max_rows=64, max_cache_tokens=limit).generate(requests(4), sampling, policy_version=0)
    assert [one.token_ids for one in tight] == [one.token_ids for one in free]
    # Beside a prompt of 20 tokens, rows of 10: 1 + (limit - 20) // 10 rows when that is all.
    most = {1: 1, 40: 3, 70: 6, 10_000: 12}[limit]
    steps = [size for size in sizes[1:] if size not in (3, 8, 20, 11, 28, 31)]
    assert max(steps) <= most


def test_a_prompt_whose_rows_have_left_is_read_again_for_a_longer_request_that_had_to_wait():
    # With 70 tokens: prompts of 12 and 4 count 2 * 12, two rows of 20 the rest. The row of 40 finds no place beside the
    # row of 20, and when that has ended, the row of 4 has taken their common prompt along.
    never = frozenset({10**6})
    policy = replace(policy_of(FAMILIES["llama"]), terminators=never)
    first, short = requests(1, [tuple(range(1, 13))]), requests(2, [(5, 6, 7, 8)])
    asked = [replace(one, max_tokens=most) for one, most in zip([*first, *short], (20, 4, 40), strict=True)]
    tight, free = (
        TorchEngine(policy, max_rows=8, max_cache_tokens=limit).generate(asked, Sampling(), policy_version=0)
        for limit in (70, 10_000)
    )
    assert [len(one.token_ids) for one in tight] == [20, 4, 40]
    assert [one.token_ids for one in tight] == [one.token_ids for one in free]
