"""Rows that begin alike run once: the trees on paper, and the same log-probs and gradient as separate rows."""

import copy
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)

from oncurve.algo import ObjectiveSettings
from oncurve.learner import Learner
from oncurve.learner.forward import TokenForward
from oncurve.learner.packing import MicroBatch, Row, pack
from oncurve.learner.prefix_tree import Sharing, Tree, grow
from oncurve.learner.tree_attention import SCORE_OVERHEAD, scores_per_token
from oncurve.model import LoraSettings, Policy, reference_of
from oncurve.model.lora import attach_adapter
from oncurve.types import Group
from tests.learner.build import (
    _SIZES,
    FAMILIES,
    SAMPLING,
    gradient_of,
    gradient_settings,
    group_of,
    largest_difference,
    sample_groups,
    tiny_policy,
)

CPU = torch.device("cpu")
WIDE = {
    **FAMILIES,
    "mistral": lambda: MistralForCausalLM(MistralConfig(**_SIZES, sliding_window=40)),
    "gemma3": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**_SIZES, sliding_window=40)),
}
ALWAYS = Sharing(scores_per_token=float("inf"), max_nodes=1000, max_scores=10**6)
HEAD = tuple(range(10, 30))
"""What all prompts begin with."""


def test_a_tree_on_paper():
    # The picture at the head of prefix_tree: a b c x y, a b c z, a b d w as 1 2 3 8 9, 1 2 3 10, 1 2 4 7.
    [tree] = grow(enumerate([(1, 2, 3, 8, 9), (1, 2, 4, 7), (1, 2, 3, 10)]), ALWAYS)
    assert tree.members == [0, 2, 1]
    assert tree.token_ids == [1, 2, 3, 8, 9, 10, 4, 7]
    assert tree.depths == [0, 1, 2, 3, 4, 3, 2, 3]
    assert tree.ends() == [8, 8, 6, 5, 5, 6, 8, 8]
    assert tree.paths == [(0, 1, 2, 3, 4), (0, 1, 2, 5), (0, 1, 6, 7)]


def test_a_micro_batch_of_a_tree_and_a_chain_on_paper():
    # The last token of a row predicts nothing and is not run. Prompt 1 2 with 3 4 and 5 6; prompt 7 with 8.
    rows = [Row((1, 2), (3, 4)), Row((7,), (8,)), Row((1, 2), (5, 6))]
    # 2 lines of 4 columns have 32 scores; rows of 3 tokens within a budget of 11 could have 33, of 10 only 30.
    [batch] = pack(rows, token_budget=11, device=CPU, scores_per_token=9.0)
    assert len(pack(rows, token_budget=10, device=CPU, scores_per_token=9.0)) == 2
    assert batch.input_ids.tolist() == [[1, 2, 3, 5], [7, 0, 0, 0]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 2], [0, 0, 0, 0]]
    assert batch.is_visible()[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]]
    assert batch.is_visible()[1, 0, 0].tolist() == [True, False, False, False]
    assert (batch.members, batch.lengths) == ((0, 2, 1), (2, 2, 1))
    assert batch.predictors.tolist() == [1, 2, 1, 3, 4]
    assert batch.targets.tolist() == [3, 4, 5, 6, 8]
    assert batch.first_predictor == 0


def test_a_row_joins_where_the_tokens_saved_are_worth_more_than_the_scores():
    # 5 nodes and a row of 4 that shares 3: 6 nodes, 36 - 25 - 16 < 0. Sharing 1: 8 nodes, 64 - 41 = 23 more scores.
    tree = Tree(token_ids=[0] * 5)
    assert sharing(0.1).pays(tree, 4, 3)
    assert sharing(23.5).pays(tree, 4, 1)
    assert not sharing(23.0).pays(tree, 4, 1)
    assert not sharing(23.5, max_nodes=7).pays(tree, 4, 1)
    assert not sharing(23.5, max_scores=63).pays(tree, 4, 1)


def sharing(worth: float, *, max_nodes: int = 8, max_scores: int = 64) -> Sharing:
    return Sharing(scores_per_token=worth, max_nodes=max_nodes, max_scores=max_scores)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1), st.lists(st.integers(0, 1), max_size=6)), max_size=12),
    st.integers(1, 60),
    st.sampled_from([1.0, 10.0, float("inf")]),
)
def test_a_token_sees_what_precedes_it_in_its_row_and_nothing_else(drawn, budget, worth):
    rows = [Row(tuple(prompt), tuple(completion)) for prompt, completion in drawn]
    longest = max((len(row) for row in rows if row.token_ids), default=0)
    seen = {}
    for batch in pack(rows, token_budget=budget, device=CPU, scores_per_token=worth):
        height, width = batch.input_ids.shape
        assert batch.input_ids.numel() <= budget or len(batch.members) == 1
        assert height * width**2 <= budget * longest or len(batch.members) == 1
        visible = batch.is_visible()
        if visible is None:
            visible = torch.ones(width, width, dtype=torch.bool).tril().expand(height, 1, width, width)
        targets = batch.targets.split(list(batch.lengths))
        predictors = batch.predictors.split(list(batch.lengths))
        for member, columns, wanted in zip(batch.members, predictors, targets, strict=True):
            row = rows[member]
            seen[member] = tuple(wanted.tolist())
            for offset, predictor in enumerate(columns.tolist()):
                line, column = divmod(predictor, width)
                before = batch.input_ids[line][visible[line, 0, column]]
                assert tuple(before.tolist()) == (*row.prompt_ids, *row.token_ids[:offset])
                if batch.position_ids is not None:
                    positions = batch.position_ids[line][visible[line, 0, column]]
                    assert positions.tolist() == list(range(len(before)))
    assert seen == {index: row.token_ids for index, row in enumerate(rows) if row.token_ids}


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6).map(tuple), min_size=1, max_size=12))
def test_a_tree_holds_each_beginning_once(rows):
    trees = grow(enumerate(rows), ALWAYS)
    assert sum(map(len, trees)) == len({row[:end] for row in rows for end in range(1, len(row) + 1)})
    firsts = [tree.token_ids[0] for tree in trees]
    assert all(left < right for left, right in pairwise(firsts))  # strangers from the first token never meet


def prompted(policy: Policy, groups: list[Group], prompts: list[tuple[int, ...]]) -> list[Group]:
    """The same completions behind other prompts."""
    return [
        group_of(group.task.id, [replace(c, prompt_ids=prompt) for c in group.completions], group.rewards)
        for group, prompt in zip(groups, prompts, strict=True)
    ]


def some_groups(policy: Policy) -> list[Group]:
    """Four groups behind prompts of three lengths that begin alike, one of them twice; one completion has 1 token."""
    groups = sample_groups(policy, [[1.0, 0.0, 0.0], [0.25, 1.0, 0.5], [1.0, 0.0], [0.0, 1.0, None]])
    groups = prompted(policy, groups, [(*HEAD, 31, 32), (*HEAD, 33), (*HEAD, 31, 32), (*HEAD, 31, 32, 33, 34)])
    first = groups[0].completions[0]
    short = replace(first, token_ids=first.token_ids[:1], old_logprobs=first.old_logprobs[:1])
    return [group_of("t0", [short, *groups[0].completions[1:]], groups[0].rewards), *groups[1:]]


def wide_policy(family: str, **options: object) -> Policy:
    policy = tiny_policy(family, dtype=torch.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        policy.model = WIDE[family]().to(torch.float64)
    if family == "gemma2":
        policy.model.config.sliding_window = 40
    policy.model.set_attn_implementation(options.get("attention", policy.model.config._attn_implementation))
    return policy


def learned(
    policy: Policy,
    groups: list[Group],
    share: str,
    objective: ObjectiveSettings | None = None,
    reference: Policy | None = None,
    **settings: object,
) -> tuple[dict[str, float], dict[str, torch.Tensor], list[MicroBatch]]:
    """Metrics and gradient of one step on a copy of the policy, and its micro-batches."""
    mine = copy.deepcopy(policy)
    mine.model.train(False)
    learner = Learner(
        mine,
        gradient_settings(share_prompts=share, max_logprob_gap=1e3, **settings),
        objective or ObjectiveSettings(entropy_coef=0.05),
        sampling=SAMPLING,
        reference=reference_of(reference) if reference else None,
    )
    rows = [Row(c.prompt_ids, c.token_ids) for group in groups for c in group.completions]
    batches = learner._forward.pack(rows)
    metrics = learner.update(groups).metrics
    return metrics, gradient_of(learner), batches


def assert_sharing_changes_nothing(policy: Policy, groups: list[Group], **options: object) -> None:
    metrics, gradient, shared = learned(policy, groups, "auto", **options)
    expected, expected_gradient, separate = learned(policy, groups, "never", **options)
    assert any(batch.subtree_ends is not None or batch.paths is not None for batch in shared)
    assert all(batch.subtree_ends is None for batch in separate)
    assert sum(batch.input_ids.numel() for batch in shared) < sum(batch.input_ids.numel() for batch in separate)
    # GPT-2 is float64 throughout; the others compute rotary angles and RMS norms in float32 even so.
    rounding = 1e-12 if policy.model.config.model_type == "gpt2" else 2e-6
    assert metrics == pytest.approx(expected, rel=rounding, abs=rounding)
    assert largest_difference(gradient, expected_gradient) < rounding


@pytest.mark.parametrize("way", ["packed", "padded"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", WIDE)
def test_every_family_gives_the_same_gradient(family, attention, way, monkeypatch):
    if way == "padded":
        monkeypatch.setattr("oncurve.learner.forward.packed_model", lambda model: None)
    if family == "gemma2" and attention == "sdpa":
        pytest.skip("Gemma 2 caps its scores, which sdpa refuses")
    policy = wide_policy(family, attention=attention)
    assert_sharing_changes_nothing(policy, some_groups(policy))


@pytest.mark.parametrize("tokens", [30, 50, 90])
def test_a_budget_that_splits_groups_gives_the_same_gradient(tokens):
    policy = wide_policy("llama")
    assert_sharing_changes_nothing(
        policy, some_groups(policy), micro_batch_tokens=tokens, logits_chunk_bytes=4 * 61 * 5
    )


def test_the_reference_and_recomputed_logprobs_are_the_same():
    policy, reference = wide_policy("qwen3"), wide_policy("qwen3")
    with torch.no_grad():
        for parameter in reference.model.parameters():
            parameter.mul_(1.1)
    options = {"objective": ObjectiveSettings(kl_coef=0.3), "reference": reference}
    groups = some_groups(reference)
    assert learned(policy, groups, "auto", **options)[0]["loss/kl"] > 0.01
    assert_sharing_changes_nothing(policy, groups, **options)
    assert_sharing_changes_nothing(policy, groups, **options, old_logprobs="recompute", updates_per_rollout=2)


@pytest.mark.parametrize("is_shared", [True, False])
def test_logprobs_are_those_of_each_completion_alone(is_shared):
    policy = wide_policy("gpt2")
    rows = [Row(c.prompt_ids, c.token_ids) for group in some_groups(policy) for c in group.completions]
    forward = forward_of(policy.model, share_prompts=is_shared)
    found = forward.logprobs(policy.model, rows, 0.7)
    for index, row in enumerate(rows):
        ids = torch.tensor([[*row.prompt_ids, *row.token_ids]])
        with torch.no_grad():
            alone = torch.log_softmax(policy.model(input_ids=ids).logits[0] / 0.7, -1)[len(row.prompt_ids) - 1 : -1]
        expected = alone[range(len(row.token_ids)), list(row.token_ids)]
        assert torch.allclose(found[index], expected, rtol=0, atol=1e-10)


def forward_of(model: PreTrainedModel, **options: bool) -> TokenForward:
    return TokenForward(model, micro_batch_tokens=4096, logits_chunk_bytes=10**6, use_bfloat16=False, **options)


def test_an_adapter_gets_the_same_gradient():
    policy = wide_policy("llama")
    groups = some_groups(policy)
    policy.adapter = attach_adapter(policy.model, LoraSettings(rank=2), seed=0)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(0))
    assert_sharing_changes_nothing(policy, groups)


def test_gradient_checkpointing_gives_the_same_gradient():
    policy = wide_policy("llama")
    groups = some_groups(policy)
    policy.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    assert_sharing_changes_nothing(policy, groups)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_bfloat16_arithmetic_gives_the_same_gradient_up_to_its_rounding(attention):
    policy = wide_policy("llama", attention=attention)
    groups = some_groups(policy)
    policy.model.float()
    results = [learned(policy, groups, share, compute_dtype="bfloat16") for share in ("auto", "never")]
    exact = learned(policy, groups, "never")
    rounding = largest_difference(results[1][1], exact[1])
    assert rounding > 1e-4
    assert largest_difference(results[0][1], exact[1]) < 3 * rounding


def test_prompts_without_a_common_token_share_within_their_group_only():
    policy = wide_policy("gpt2")
    groups = sample_groups(policy, [[1.0, 0.0], [1.0, 0.0]])
    groups = prompted(policy, groups, [tuple(range(10, 30)), tuple(range(30, 50))])
    _, _, [batch] = learned(policy, groups, "auto")
    assert [int((batch.position_ids == depth).sum()) for depth in (0, 19)] == [2, 2]  # each prompt lies there once
    assert_sharing_changes_nothing(policy, groups)


def test_padded_rows_longer_than_a_window_run_separately(monkeypatch):
    monkeypatch.setattr("oncurve.learner.forward.packed_model", lambda model: None)
    policy = wide_policy("gemma3")
    forward = forward_of(policy.model, share_prompts=True)
    for num_tokens, is_shared in ((40, True), (41, False)):  # the window is 40; the last token is not run
        row = Row(tuple(range(1, num_tokens)), (5, 6))
        [batch] = forward.pack([row, row])
        assert (batch.subtree_ends is not None) == is_shared


def test_a_token_is_worth_its_matrix_operations():
    # GPT-2, width 16: 12 * 16 * 16 weights a layer; 2 * 3072 / (4 * 16) = 96 scores, before the overhead.
    assert scores_per_token(tiny_policy("gpt2").model) == 96 / SCORE_OVERHEAD


def test_a_model_that_carries_a_state_runs_separately():
    model = MambaForCausalLM(MambaConfig(vocab_size=61, hidden_size=16, num_hidden_layers=1)).eval()
    assert scores_per_token(model) == 0.0


def test_a_model_that_overlooks_the_mask_runs_separately():
    model = tiny_policy("llama").model
    forward = model.base_model.forward

    def overlook(attention_mask=None, position_ids=None, **arguments):
        return forward(attention_mask=torch.ones_like(arguments["input_ids"]), **arguments)

    model.base_model.forward = overlook
    assert scores_per_token(model) == 0.0
