"""What every engine must do, on a tiny model of every architecture.

The models have random weights, large enough that their distributions are far from uniform, and five terminators among
57 tokens, so that completions end early and late.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import (
    BloomConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    Lfm2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    RwkvConfig,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from oncurve.model import Policy, fresh_embedded_policy
from oncurve.rollout import Engine, Request, TorchEngine
from oncurve.types import Completion, FinishReason, Sampling, derive_seed

CONTEXT = 64
TERMINATORS = frozenset({0, 7, 13, 22, 40})

SHAPE: dict[str, Any] = {
    "vocab_size": 57,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
ARCHITECTURES: dict[str, PreTrainedConfig] = {
    "gpt2": GPT2Config(vocab_size=57, n_positions=CONTEXT, n_embd=32, n_layer=3, n_head=4, initializer_range=0.3),
    "llama": LlamaConfig(**SHAPE),
    "smollm2": LlamaConfig(
        **SHAPE | {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 36}, tie_word_embeddings=True
    ),
    "llama, eager attention": LlamaConfig(**SHAPE, attn_implementation="eager"),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen3": Qwen3Config(**SHAPE, head_dim=16),
    "gemma2, capped attention logits": Gemma2Config(
        **SHAPE, head_dim=8, sliding_window=6, attn_logit_softcapping=2.0, attn_implementation="eager"
    ),
    "gemma3": Gemma3TextConfig(
        **SHAPE,
        head_dim=8,
        sliding_window=6,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "mistral, every layer a window": MistralConfig(**SHAPE, sliding_window=5),
    "bloom, no position argument": BloomConfig(
        vocab_size=57, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.3
    ),
    "rwkv, a state that cannot be carried": RwkvConfig(
        vocab_size=57, hidden_size=32, attention_hidden_size=32, num_hidden_layers=2, context_length=CONTEXT
    ),
    "lfm2, convolution states": Lfm2Config(
        **SHAPE, layer_types=["conv", "full_attention", "conv"], block_auto_adjust_ff_dim=False
    ),
}
HEAD = tuple(derive_seed("head", i) % 57 for i in range(20))
PROMPTS: dict[str, list[tuple[int, ...]]] = {
    "tails of one length behind a common head": [(*HEAD, 5, 6, 8), (*HEAD, 5, 9, 8), (*HEAD, 11, 6, 8)],
    "tails of many lengths behind a common head": [(*HEAD, 5), (*HEAD, 6, 8, 9, 10), HEAD + tuple(range(30, 55))],
    "one is the beginning of another": [(*HEAD, 5, 6), HEAD, (*HEAD, 9, 10, 11, 12)],
    "nothing in common": [(5, *HEAD), (6, *HEAD), (8, *HEAD[:7])],
    "one prompt": [HEAD, HEAD],
}
ENGINES: dict[str, Callable[[Policy, int], Engine]] = {
    "TorchEngine": lambda policy, max_rows: TorchEngine(policy, max_rows=max_rows),
}


@pytest.fixture(scope="module", params=ARCHITECTURES)
def policy(request: pytest.FixtureRequest) -> Policy:
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(ARCHITECTURES[request.param]).eval()
    tokenizer = fresh_embedded_policy(0).tokenizer
    return Policy(model=model, tokenizer=tokenizer, terminators=TERMINATORS, context_length=CONTEXT)


@pytest.fixture(params=ENGINES)
def make_engine(request: pytest.FixtureRequest) -> Callable[[Policy, int], Engine]:
    return ENGINES[request.param]


def requests(num_prompts: int = 5, group_size: int = 4) -> list[Request]:
    """Prompts of 3, 10, 17, 24, ... tokens."""
    return [
        Request(
            task_id=f"task-{prompt}",
            index=index,
            prompt_ids=tuple(derive_seed("token", prompt, i) % 57 for i in range(3 + 7 * prompt)),
            seed=derive_seed("conformance", prompt, index),
        )
        for prompt in range(num_prompts)
        for index in range(group_size)
    ]


def by_name(completions: list[Completion]) -> dict[tuple[str, int], Completion]:
    return {(completion.task_id, completion.index): completion for completion in completions}


def full_pass_logprobs(policy: Policy, completion: Completion, temperature: float) -> torch.Tensor:
    """The reference: one forward pass over the whole sequence, without cache, batch or padding."""
    ids = torch.tensor([completion.prompt_ids + completion.token_ids])
    with torch.no_grad():
        logits = policy.model(input_ids=ids, use_cache=False).logits[0].float()
    first = len(completion.prompt_ids) - 1
    rows = torch.log_softmax(logits[first:-1] / (temperature or 1.0), dim=-1)
    return rows.gather(1, ids[0, first + 1 :, None]).squeeze(1)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_recorded_logprobs_are_those_of_a_full_forward_pass(make_engine, policy, temperature):
    sampling = Sampling(max_tokens=16, temperature=temperature)
    completions = make_engine(policy, 8).generate(requests(), sampling, policy_version=4)
    for completion in completions:
        expected = full_pass_logprobs(policy, completion, temperature)
        torch.testing.assert_close(torch.tensor(completion.old_logprobs), expected, atol=1e-4, rtol=0)


def test_greedy_is_what_transformers_generates(make_engine, policy):
    asked = requests(group_size=1)
    completions = make_engine(policy, 3).generate(asked, Sampling(max_tokens=20, temperature=0.0), policy_version=0)
    for completion in completions:
        ids = torch.tensor([completion.prompt_ids])
        expected = policy.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=20,
            eos_token_id=sorted(TERMINATORS),
            pad_token_id=0,
        )
        assert completion.token_ids == tuple(expected[0, ids.shape[1] :].tolist())


def test_batching_does_not_change_a_completion(make_engine, policy):
    asked, sampling = requests(), Sampling(max_tokens=16)
    together = by_name(make_engine(policy, 64).generate(asked, sampling, policy_version=0))
    assert len({completion.token_ids for completion in together.values()}) > 10
    order = sorted(asked, key=lambda request: derive_seed("shuffle", request.task_id, request.index))
    one_by_one = [make_engine(policy, 64).generate([request], sampling, policy_version=0)[0] for request in asked[::3]]
    for others in (
        make_engine(policy, 64).generate(order, sampling, policy_version=0),
        make_engine(policy, 7).generate(asked, sampling, policy_version=0),
        make_engine(policy, 1).generate(asked[:6], sampling, policy_version=0),
        one_by_one,
    ):
        for completion in others:
            twin = together[completion.task_id, completion.index]
            assert completion.token_ids == twin.token_ids
            assert completion.finish_reason is twin.finish_reason
            assert completion.old_logprobs == pytest.approx(twin.old_logprobs, abs=1e-4)


@pytest.mark.parametrize("prompts", PROMPTS.values(), ids=PROMPTS)
def test_what_prompts_have_in_common_does_not_change_a_completion(make_engine, policy, prompts):
    asked = [
        Request(task_id=f"task-{place}", index=index, prompt_ids=prompt, seed=derive_seed("alike", place, index))
        for place, prompt in enumerate(prompts)
        for index in range(3)
    ]
    sampling = Sampling(max_tokens=12)
    for max_rows in (64, 2):
        for request, completion in zip(
            asked, make_engine(policy, max_rows).generate(asked, sampling, policy_version=0), strict=True
        ):
            (alone,) = make_engine(policy, 1).generate([request], sampling, policy_version=0)
            assert completion.token_ids == alone.token_ids
            assert completion.old_logprobs == pytest.approx(alone.old_logprobs, abs=1e-4)
            expected = full_pass_logprobs(policy, completion, 1.0)
            torch.testing.assert_close(torch.tensor(completion.old_logprobs), expected, atol=1e-4, rtol=0)


def test_completions_come_in_the_order_of_the_requests_with_their_book_keeping(make_engine, policy):
    asked, sampling = requests()[::-1], Sampling(max_tokens=9, temperature=0.8)
    completions = make_engine(policy, 6).generate(asked, sampling, policy_version=12)
    for request, completion in zip(asked, completions, strict=True):
        assert (completion.task_id, completion.index) == (request.task_id, request.index)
        assert completion.prompt_ids == request.prompt_ids
        assert completion.policy_version == 12
        assert completion.sampling == sampling
        assert completion.text == policy.decode(completion.token_ids)
        assert len(completion.old_logprobs) == len(completion.token_ids) >= 1
        assert completion.seconds > 0


@pytest.mark.parametrize("max_rows", [1, 6, 64])
def test_every_completion_is_announced_once_as_it_is_returned(make_engine, policy, max_rows):
    announced: dict[int, Completion] = {}

    def note(place: int, completion: Completion) -> None:
        assert place not in announced
        announced[place] = completion

    completions = make_engine(policy, max_rows).generate(
        requests()[::-1], Sampling(max_tokens=9), policy_version=0, on_completion=note
    )
    assert [announced[place] for place in range(len(completions))] == completions
    assert len(announced) == len(completions)


def test_a_completion_is_announced_before_the_last_has_started(make_engine, policy):
    seconds: dict[int, float] = {}

    def dawdle(place: int, completion: Completion) -> None:
        if not seconds:
            time.sleep(0.2)
        seconds[place] = completion.seconds

    # One row at a time: whoever ends after the first began after it, and the listener's time is part of its seconds.
    make_engine(policy, 1).generate(requests()[:3], Sampling(max_tokens=3), policy_version=0, on_completion=dawdle)
    first, *others = seconds.values()
    assert min(others) - first >= 0.2


def test_the_first_terminator_ends_a_completion_and_stays_in_it(make_engine, policy):
    completions = make_engine(policy, 16).generate(requests(), Sampling(max_tokens=16), policy_version=0)
    for completion in completions:
        is_end = [token in TERMINATORS for token in completion.token_ids]
        assert not any(is_end[:-1])
        assert is_end[-1] is (completion.finish_reason is FinishReason.STOP)
        assert is_end[-1] or len(completion.token_ids) == 16
    assert len({completion.token_ids[-1] for completion in completions} & TERMINATORS) >= 2


def test_the_context_caps_the_budget(make_engine, policy):
    # Prompts of 61 and 3 tokens in a context of 64: 3 tokens fit behind the first, all 20 behind the others. The long
    # row ends first and stays in the batch while the others go on, at positions that its model does not have.
    long = Request(task_id="long", index=0, prompt_ids=(5,) * 61, seed=1)
    short = [Request(task_id="short", index=index, prompt_ids=(5, 6, 8), seed=index) for index in range(9)]
    endless = replace(policy, terminators=frozenset({56}))
    completions = make_engine(endless, 16).generate([long, *short], Sampling(max_tokens=20), policy_version=0)
    assert len(completions[0].token_ids) <= 3
    assert max(len(completion.token_ids) for completion in completions) > 3
    for completion in completions:
        budget = 3 if completion.task_id == "long" else 20
        assert completion.is_truncated is (56 not in completion.token_ids)
        assert not completion.is_truncated or len(completion.token_ids) == budget
        torch.testing.assert_close(
            torch.tensor(completion.old_logprobs), full_pass_logprobs(policy, completion, 1.0), atol=1e-4, rtol=0
        )


def test_a_request_may_have_a_budget_and_an_end_of_its_own(make_engine, policy):
    asked, sampling = requests(), Sampling(max_tokens=16)
    free = make_engine(policy, 8).generate(asked, sampling, policy_version=0)
    own = [replace(one, max_tokens=1 + place % 5, stop=tuple("aeiou13579")) for place, one in enumerate(asked)]
    ended = 0
    for place, (whole, cut) in enumerate(
        zip(free, make_engine(policy, 8).generate(own, sampling, policy_version=0), strict=True)
    ):
        texts = [policy.spell([whole.token_ids[: n + 1]])[0] for n in range(len(whole.token_ids))]
        ends = [n + 1 for n, text in enumerate(texts) if set("aeiou13579") & set(text)]
        length = min([1 + place % 5, len(whole.token_ids), *ends])
        assert cut.token_ids == whole.token_ids[:length]
        is_ended = length in ends or whole.token_ids[length - 1] in TERMINATORS
        ended += length in ends
        assert cut.finish_reason is (FinishReason.STOP if is_ended else FinishReason.LENGTH)
    assert ended >= 1


def test_a_stop_text_of_the_sampling_ends_every_completion_at_the_token_that_completes_it(make_engine, policy):
    free = make_engine(policy, 7).generate(requests(), Sampling(max_tokens=16), policy_version=0)
    sampling = Sampling(max_tokens=16, stop=("a", "5"))
    ended = 0
    for whole, cut in zip(free, make_engine(policy, 7).generate(requests(), sampling, policy_version=0), strict=True):
        texts = [policy.spell([whole.token_ids[: n + 1]])[0] for n in range(len(whole.token_ids))]
        ends = [n + 1 for n, text in enumerate(texts) if set("a5") & set(text)]
        assert cut.token_ids == whole.token_ids[: min([len(whole.token_ids), *ends])]
        if ends:
            ended += 1
            assert cut.finish_reason is FinishReason.STOP
    assert ended >= 1
