"""How the engine runs: what goes through the model, what it refuses, and the distribution it samples from."""

import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from scipy.stats import chisquare
from transformers import BloomConfig, BloomForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from oncurve.learner import LearnerSettings
from oncurve.learner.packing import Row
from oncurve.learner.stepper import Stepper
from oncurve.model import Policy, fresh_embedded_policy
from oncurve.rollout import Request, TorchEngine
from oncurve.rollout.attention import GROUPED_EAGER
from oncurve.rollout.engine import PARTS
from oncurve.rollout.forward import Forward
from oncurve.rollout.jobs import common_length
from oncurve.types import DataError, FinishReason, NumericsError, Sampling, derive_seed

PROMPT = (10, 11, 12)


def requests(prompts: list[tuple[int, ...]], group_size: int) -> list[Request]:
    return [
        Request(task_id=f"t{place}", index=index, prompt_ids=prompt, seed=derive_seed("engine", place, index))
        for place, prompt in enumerate(prompts)
        for index in range(group_size)
    ]


def passes_of(policy: Policy, *, max_rows: int, asked: list[Request], max_tokens: int) -> list[tuple[int, ...]]:
    """Shapes [rows, columns] of the ids that go through the model's own code, which runs because it is watched."""
    shapes: list[tuple[int, ...]] = []
    handle = policy.model.register_forward_pre_hook(
        lambda _module, _args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    engine = TorchEngine(policy, max_rows=max_rows)
    engine.generate(asked[:1], Sampling(max_tokens=1), policy_version=0)  # the first use tries the model out
    shapes.clear()
    engine.generate(asked, Sampling(max_tokens=max_tokens), policy_version=0)
    handle.remove()
    return shapes


def full_pass_logprobs(
    policy: Policy, prompt: tuple[int, ...], tokens: tuple[int, ...], *, temperature: float = 1.0
) -> torch.Tensor:
    ids = torch.tensor([prompt + tokens])
    with torch.no_grad():
        logits = policy.model.eval()(input_ids=ids).logits[0, len(prompt) - 1 : -1].float()
    return (logits / temperature).log_softmax(-1).gather(1, ids[0, len(prompt) :, None]).squeeze(1)


def test_a_distinct_prompt_is_prefilled_once_even_when_its_group_comes_in_waves():
    policy = fresh_embedded_policy(0)
    prompts = [PROMPT, (20, 21), PROMPT]  # the third task asks the first one's question
    shapes = passes_of(policy, max_rows=3, asked=requests(prompts, 4), max_tokens=4)
    assert sum(rows for rows, columns in shapes if columns > 1) == 2
    assert max(rows for rows, columns in shapes if columns == 1) == 3


HEAD = tuple(range(1, 21))


@pytest.mark.parametrize(
    ("prompts", "max_rows", "passes"),
    [
        ([(*HEAD, 30, 31, 32), (*HEAD, 40, 41, 42, 43, 44)], 8, [(1, 20), (2, 5)]),
        ([(*HEAD, 30, 31, 32), (*HEAD, 40, 41, 42, 43, 44)], 1, [(1, 20), (1, 5), (1, 3)]),
        ([HEAD, (*HEAD, 30, 31)], 8, [(1, 19), (2, 3)]),
        ([(*HEAD[:16], 30, 31), (*HEAD[:16], 32, 31)], 8, [(1, 16), (2, 2)]),
        ([(*HEAD[:15], 30, 31), (*HEAD[:15], 32, 31)], 8, [(2, 17)]),
        ([HEAD, HEAD], 8, [(1, 20)]),
    ],
    ids=["once", "once for all waves", "each keeps a token to run", "just enough", "too little", "one prompt"],
)
def test_what_all_prompts_begin_with_goes_through_the_model_once(prompts, max_rows, passes):
    shapes = passes_of(fresh_embedded_policy(0), max_rows=max_rows, asked=requests(prompts, 1), max_tokens=3)
    assert [(rows, columns) for rows, columns in shapes if columns > 1] == passes


def test_without_a_standard_cache_more_prompts_than_one_prefill_takes_come_in_waves():
    torch.manual_seed(0)
    policy = Policy(
        model=BloomForCausalLM(BloomConfig(vocab_size=57, hidden_size=16, n_layer=1, n_head=2, initializer_range=0.3)),
        tokenizer=fresh_embedded_policy(0).tokenizer,
        terminators=frozenset({0}),
        context_length=128,
    )
    prompts = [(1 + place // 50, 1 + place % 50, *(5,) * 118) for place in range(150)]  # 150 * 120 tokens, above 16384
    asked = requests(prompts, 1)
    for completion in TorchEngine(policy, max_rows=200).generate(asked, Sampling(max_tokens=2), policy_version=0):
        expected = full_pass_logprobs(policy, completion.prompt_ids, completion.token_ids)
        torch.testing.assert_close(torch.tensor(completion.old_logprobs), expected, atol=1e-4, rtol=0)


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=5).map(tuple), min_size=1, max_size=4))
def test_the_common_length_is_the_longest_that_leaves_every_prompt_a_token(prompts):
    is_common = [len({p[:n] for p in prompts}) == 1 and all(len(p) > n for p in prompts) for n in range(6)]
    longest = max(n for n in range(6) if is_common[n])
    assert common_length(set(prompts)) == (longest if len(set(prompts)) > 1 else 0)


def test_ended_rows_leave_the_batch_and_waiting_ones_take_their_place():
    policy = fresh_embedded_policy(0)
    policy.terminators = frozenset(range(20))  # 20 of 57 tokens: a row lives for 3 tokens on average
    asked = requests([PROMPT], 64)
    sizes = [rows for rows, columns in passes_of(policy, max_rows=64, asked=asked, max_tokens=30) if columns == 1]
    assert sizes[0] == 64
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] <= 8
    refilled = [rows for rows, columns in passes_of(policy, max_rows=16, asked=asked, max_tokens=30) if columns == 1]
    # 64 rows of about 3 tokens are 192 row-steps, 12 steps of 16 rows if no row ever waited or idled; in waves of 16,
    # each as long as its longest row, they would be about 4 * 8 steps.
    assert len(refilled) < 28


def test_a_long_completion_outgrows_its_first_cache():
    policy = fresh_embedded_policy(1)
    policy.terminators = frozenset({0})
    (long,) = TorchEngine(policy, max_rows=1).generate(
        requests([PROMPT], 1), Sampling(max_tokens=125, temperature=0.3), policy_version=0
    )
    assert len(long.token_ids) > 3 + 64
    expected = full_pass_logprobs(policy, PROMPT, long.token_ids, temperature=0.3)
    torch.testing.assert_close(torch.tensor(long.old_logprobs), expected, atol=1e-4, rtol=0)


def test_first_tokens_follow_the_softmax_of_the_policy():
    policy = fresh_embedded_policy(2)
    policy.model.lm_head.weight.data.mul_(20)  # far from uniform
    num_draws = 20_000
    drawn = TorchEngine(policy, max_rows=num_draws).generate(
        requests([PROMPT], num_draws), Sampling(max_tokens=1, temperature=1.5), policy_version=0
    )
    counts = torch.bincount(torch.tensor([completion.token_ids[0] for completion in drawn]), minlength=57)
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([PROMPT])).logits[0, -1]
    expected = torch.softmax(logits.double() / 1.5, -1) * num_draws
    assert expected.max() > 3 * expected.min()
    assert chisquare(counts.numpy(), expected.numpy()).pvalue > 0.01


def test_dropout_is_off_while_sampling_and_the_mode_is_restored():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=57, n_positions=64, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.5)
    embedded = fresh_embedded_policy(0)
    policy = Policy(
        model=GPT2LMHeadModel(config), tokenizer=embedded.tokenizer, terminators=frozenset({0}), context_length=64
    )
    policy.model.train()
    (completion,) = TorchEngine(policy, max_rows=4).generate(
        requests([PROMPT], 1), Sampling(max_tokens=8), policy_version=0
    )
    assert policy.model.training
    expected = full_pass_logprobs(policy, PROMPT, completion.token_ids)
    torch.testing.assert_close(torch.tensor(completion.old_logprobs), expected, atol=1e-4, rtol=0)


def llama(*, num_key_value_heads: int, attention: str) -> Policy:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=57,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=num_key_value_heads,
        initializer_range=0.3,
        attn_implementation=attention,
    )
    return Policy(
        model=LlamaForCausalLM(config),
        tokenizer=fresh_embedded_policy(0).tokenizer,
        terminators=frozenset({0}),
        context_length=64,
    )


@pytest.mark.parametrize(
    ("num_key_value_heads", "attention", "in_use"),
    [(2, "eager", GROUPED_EAGER), (2, "sdpa", "sdpa"), (4, "eager", "eager")],
)
def test_only_eager_heads_that_share_keys_get_other_attention_while_sampling(num_key_value_heads, attention, in_use):
    policy = llama(num_key_value_heads=num_key_value_heads, attention=attention)
    seen: set[str] = set()
    policy.model.register_forward_pre_hook(lambda model, _args: seen.add(model.config._attn_implementation))
    TorchEngine(policy, max_rows=2).generate(requests([PROMPT], 2), Sampling(max_tokens=2), policy_version=0)
    assert seen == {in_use}
    assert policy.model.config._attn_implementation == attention


def test_bfloat16_of_shared_heads_rounds_as_the_learner_does():
    policy = llama(num_key_value_heads=2, attention="eager")
    policy.model.to(torch.bfloat16)
    prompts = [(*HEAD, 30, 31, 32), (*HEAD, 40, 41, 42, 43, 44)]
    done = TorchEngine(policy, max_rows=8).generate(requests(prompts, 4), Sampling(max_tokens=12), policy_version=0)
    rows = [Row(completion.prompt_ids, completion.token_ids) for completion in done]
    found = Stepper(policy, LearnerSettings()).forward.logprobs(policy.model, rows, 1.0)
    for index, completion in enumerate(done):
        # Attention that rounds elsewhere is 0.02 off on average; sums in another order flip a last bit now and then.
        assert (torch.tensor(completion.old_logprobs) - found[index]).abs().mean() < 0.01


def test_attention_and_dropout_are_restored_after_an_error():
    policy = llama(num_key_value_heads=2, attention="eager")
    policy.model.train()
    policy.model.model.norm.weight.data[0] = float("nan")
    with pytest.raises(NumericsError):
        TorchEngine(policy, max_rows=2).generate(requests([PROMPT], 2), Sampling(), policy_version=0)
    assert policy.model.config._attn_implementation == "eager"
    assert policy.model.training


def test_only_heads_that_share_keys_get_a_mask_for_rows_without_padding():
    grouped = Forward(llama(num_key_value_heads=2, attention="sdpa").model)
    plain = Forward(llama(num_key_value_heads=4, attention="sdpa").model)
    starts = torch.tensor([0, 0])
    assert torch.equal(grouped.decode_mask(starts, 3), torch.zeros(2, 3))
    assert plain.decode_mask(starts, 3) is None
    assert plain.decode_mask(torch.tensor([0, 1]), 3).tolist() == [[0, 0, 0], [torch.finfo(torch.float32).min, 0, 0]]


def test_an_adapter_takes_part():
    policy = fresh_embedded_policy(0)
    asked = requests([PROMPT], 6)
    plain = TorchEngine(policy, max_rows=8).generate(asked, Sampling(max_tokens=8), policy_version=0)
    torch.manual_seed(0)
    policy.model = get_peft_model(
        policy.model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, fan_in_fan_out=True)
    )
    adapted = TorchEngine(policy, max_rows=8).generate(asked, Sampling(max_tokens=8), policy_version=0)
    assert [completion.token_ids for completion in adapted] != [completion.token_ids for completion in plain]
    for completion in adapted:
        expected = full_pass_logprobs(policy, PROMPT, completion.token_ids)
        torch.testing.assert_close(torch.tensor(completion.old_logprobs), expected, atol=1e-4, rtol=0)


def test_bfloat16_weights_give_float32_logprobs_near_those_of_a_full_pass():
    policy = fresh_embedded_policy(0)
    policy.model.to(torch.bfloat16)
    for completion in TorchEngine(policy, max_rows=8).generate(
        requests([PROMPT, PROMPT[:1]], 4), Sampling(max_tokens=16), policy_version=0
    ):
        expected = full_pass_logprobs(policy, completion.prompt_ids, completion.token_ids)
        gap = (torch.tensor(completion.old_logprobs) - expected).abs()
        assert gap.mean() < 0.01  # bfloat16 keeps 8 bits: logits of size 0.5 are off by about 0.002
        assert gap.max() > 0


def test_the_step_takes_the_live_weights():
    policy = fresh_embedded_policy(0)
    engine = TorchEngine(policy, max_rows=8)
    before = engine.generate(requests([PROMPT], 4), Sampling(max_tokens=8), policy_version=0)
    with torch.no_grad():
        policy.model.transformer.h[0].mlp.c_fc.weight.add_(
            torch.randn_like(policy.model.transformer.h[0].mlp.c_fc.weight)
        )
    after = engine.generate(requests([PROMPT], 4), Sampling(max_tokens=8), policy_version=1)
    assert [completion.old_logprobs for completion in before] != [completion.old_logprobs for completion in after]


def test_no_request_gives_no_completion():
    assert TorchEngine(fresh_embedded_policy(0), max_rows=2).generate([], Sampling(), policy_version=0) == []


@pytest.mark.parametrize(("prompt_length", "num_sampled"), [(126, 2), (127, 1)], ids=["room for two", "room for one"])
def test_a_prompt_that_nearly_fills_the_context_leaves_the_rest(prompt_length, num_sampled):
    policy = fresh_embedded_policy(0)
    policy.terminators = frozenset({56})
    (completion,) = TorchEngine(policy, max_rows=2).generate(
        requests([(5,) * prompt_length], 1), Sampling(max_tokens=9), policy_version=0
    )
    assert len(completion.token_ids) == num_sampled
    assert completion.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("prompt_length", [128, 500])
def test_a_prompt_that_fills_the_context_is_named_with_lengths_and_remedy(prompt_length):
    engine = TorchEngine(fresh_embedded_policy(0), max_rows=2)
    asked = requests([PROMPT, (5,) * prompt_length], 1)
    with pytest.raises(DataError, match=rf"task t1.* {prompt_length} tokens.*context of 128.*at most 127.*Shorten"):
        engine.generate(asked, Sampling(), policy_version=0)


def test_an_empty_prompt_is_named():
    with pytest.raises(DataError, match="task t0: the prompt has no tokens"):
        TorchEngine(fresh_embedded_policy(0), max_rows=2).generate(requests([()], 1), Sampling(), policy_version=0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_broken_weights_are_an_error_that_names_the_task(value):
    policy = fresh_embedded_policy(0)
    policy.model.transformer.ln_f.bias.data[0] = value
    with pytest.raises(NumericsError, match=r"NaN or inf in 2 of 2 rows, first in completion 0 of task t0.*learner.lr"):
        TorchEngine(policy, max_rows=2).generate(requests([PROMPT], 2), Sampling(), policy_version=0)


def test_max_rows_is_at_least_one():
    with pytest.raises(ValueError, match="max_rows must be at least 1, got 0"):
        TorchEngine(fresh_embedded_policy(0), max_rows=0)


def test_a_model_without_a_cache_samples_the_same_and_says_so():
    policy = fresh_embedded_policy(0)

    class NoCache(GPT2LMHeadModel):
        def forward(self, input_ids):
            return super().forward(input_ids)

    slow = replace(policy, model=NoCache(policy.model.config))
    slow.model.load_state_dict(policy.model.state_dict())
    asked, sampling = requests([PROMPT, (20, 21)], 5), Sampling(max_tokens=9)
    engine = TorchEngine(slow, max_rows=4)
    ours = engine.generate(asked, sampling, policy_version=0)
    assert "NoCache takes no key/value cache" in engine.note
    fast = TorchEngine(policy, max_rows=4)
    for one, twin in zip(ours, fast.generate(asked, sampling, policy_version=0), strict=True):
        assert one.token_ids == twin.token_ids
        assert one.old_logprobs == pytest.approx(twin.old_logprobs, abs=1e-4)
    assert fast.note == ""


def test_reused_memory_does_not_leak_into_padding():
    policy = fresh_embedded_policy(0)
    prompts = [PROMPT, (4,) * 20, (6,) * 11]
    torch.use_deterministic_algorithms(True)  # fills fresh memory with NaN
    try:
        completions = TorchEngine(policy, max_rows=5).generate(
            requests(prompts, 4), Sampling(max_tokens=12), policy_version=0
        )
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(completions) == 12


def test_the_parts_cover_a_call_and_each_call_is_counted_from_nothing():
    engine = TorchEngine(fresh_embedded_policy(0), max_rows=8)
    started = time.perf_counter()
    engine.generate(requests([PROMPT, (20, 21)], 16), Sampling(max_tokens=40), policy_version=0)
    spent = time.perf_counter() - started
    seconds = engine.seconds()
    assert set(seconds) == set(PARTS)
    assert 0.8 * spent < sum(seconds.values()) <= spent
    engine.generate(requests([PROMPT], 1), Sampling(max_tokens=1), policy_version=0)
    assert set(engine.seconds()) == set(PARTS) - {"decode"}  # the prompt's own logits give the only token
    assert engine.seconds()["sample"] < seconds["sample"]
    engine.generate([], Sampling(), policy_version=0)
    assert engine.seconds() == {}
