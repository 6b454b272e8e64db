"""Packed rows: attention along paths, fused parts, and the gradient of the plain way for every family and switch."""

import copy
import gc
import math
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from oncurve.algo import entropy_from_logits, token_logprobs_from_logits
from oncurve.learner import LearnerSettings
from oncurve.learner.fused import _Gated, _Norm, _Rotate
from oncurve.learner.likelihood import add_gradient
from oncurve.learner.packed import PackedModel, packed_model
from oncurve.learner.packing import Row, pack_flat
from oncurve.learner.path_attention import MAX_QUERIES, attend, paths_of
from oncurve.learner.prefix_tree import Sharing, grow
from oncurve.learner.stepper import Stepper
from oncurve.learner.token_statistics import token_statistics
from oncurve.model import LoraSettings, Policy
from oncurve.model.load import freeze_embeddings
from oncurve.model.lora import attach_adapter
from tests.learner.build import FAMILIES, tiny_policy

CPU = torch.device("cpu")
ALWAYS = Sharing(scores_per_token=float("inf"), max_nodes=1000, max_scores=10**6)
HEAD = tuple(range(10, 30))
ROWS = [
    Row((*HEAD, 31), (5, 6, 7, 8)),
    Row((*HEAD, 31), (5, 9, 0)),
    Row((*HEAD, 32, 33), (1, 2, 3, 4, 5)),
    Row((40, 41), (3,)),
    Row((*HEAD, 31), (5, 6, 7, 8)),
]
WEIGHTS = [0.7, -0.4, 0.2, -1.0, 0.3]
EXACT = torch.float64


def random(*shape: int, seed: int = 0, dtype: torch.dtype = EXACT) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=EXACT).to(dtype)


def test_the_pieces_of_two_rows_on_paper():
    # Rows 1 2 3 and 1 2 4 5: nodes 0 1 2 | 3 4. The first row asks for 0 1 2 and reads them; the second asks for 3 4
    # and reads 0 1 3 4. The larger one stands first: its queries have places 0 1, those of the other 3 4 5.
    trees = grow(enumerate([(1, 2, 3), (1, 2, 4, 5)]), ALWAYS)
    paths = paths_of(trees, CPU)
    [block] = paths.blocks
    assert block.keys.tolist() == [[0, 1, 3, 4], [0, 1, 2, 0]]
    assert block.queries.tolist() == [[3, 4, 0], [0, 1, 2]]
    assert block.depths.tolist() == [[2, 3, 0], [0, 1, 2]]
    assert block.is_empty.tolist() == [[False, False, True], [False, False, False]]
    assert block.is_hidden(None)[0].int().tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 1, 1]]
    assert block.is_hidden(2)[0, :2].int().tolist() == [[1, 0, 0, 1], [1, 1, 0, 0]]
    layout = paths.layout(1, 1)
    assert layout.places.tolist() == [3, 4, 5, 0, 1]
    assert layout.first_readers.tolist() == [0, 2, 4, 5, 6]  # nodes 0 and 1 are read twice
    assert layout.readers.tolist() == [0, 4, 1, 5, 6, 2, 3]
    # Two heads of queries on one of keys: the rows of a piece stand head by head, each with its queries.
    assert paths.layout(2, 1).queries[0].tolist() == [6, 8, 0, 7, 9, 1, 0, 2, 4, 1, 3, 5]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7).map(tuple), min_size=1, max_size=9),
    st.booleans(),
    st.sampled_from([None, 1, 3]),
)
def test_attention_along_paths_is_attention_of_each_row_alone(rows, is_shared, window):
    trees = grow(enumerate(rows), ALWAYS if is_shared else None)
    num_tokens = sum(map(len, trees))
    query, key, value = (random(num_tokens, heads, 3, seed=heads).requires_grad_() for heads in (4, 2, 2))
    value = random(num_tokens, 2, 3, seed=9).requires_grad_()
    out = attend(query, key, value, paths_of(trees, CPU), window=window)
    expected, first, seen = torch.zeros_like(out), 0, set()
    for tree in trees:
        for path in tree.paths:
            nodes = torch.tensor(path) + first
            length = len(nodes)
            q, k, v = (part[nodes].transpose(0, 1) for part in (query, key, value))
            scores = q @ k.repeat_interleave(2, 0).transpose(1, 2)
            behind = torch.arange(length)[:, None] - torch.arange(length)
            scores = scores.masked_fill((behind < 0) | (behind >= (window or length)), -math.inf)
            alone = (scores.softmax(-1) @ v.repeat_interleave(2, 0)).transpose(0, 1)
            new = [place for place, node in enumerate(nodes.tolist()) if node not in seen]
            seen |= set(nodes.tolist())
            expected = expected.index_put((nodes[new],), alone[new])
        first += len(tree)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    weights = random(*out.shape, seed=5)
    found = torch.autograd.grad((out * weights).sum(), (query, key, value))
    wanted = torch.autograd.grad((expected * weights).sum(), (query, key, value))
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-11)


def test_a_long_row_is_cut_into_pieces_without_consequence():
    length = 2 * MAX_QUERIES + 3
    query, key, value = (random(length, 1, 4, seed=seed) for seed in range(3))
    paths = paths_of(grow([(0, tuple(range(length)))], None), CPU)
    assert sum(len(block.depths) for block in paths.blocks) == 3
    parts = [part.transpose(0, 1)[None] for part in (query, key, value)]
    expected = F.scaled_dot_product_attention(*parts, is_causal=True, scale=1.0)[0].transpose(0, 1)
    torch.testing.assert_close(attend(query, key, value, paths), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropies_are_those_of_their_definitions(temperature):
    logits = 3 * random(400, 700)  # several blocks
    logits[::3, ::5] = -math.inf
    logits = logits.requires_grad_()
    ids = torch.arange(400) % 700 // 5 * 5 + 1
    weights = random(2, 400, seed=1)
    # As impossible, but the definition of the entropy has a gradient there.
    finite = logits.detach().clamp(min=-1e5).requires_grad_()
    mine = token_statistics(logits, ids, temperature)
    theirs = token_logprobs_from_logits(finite, ids, temperature), entropy_from_logits(finite, temperature)
    for found, wanted in zip(mine, theirs, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    for used in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0)):
        sides = []
        for leaf, parts in ((logits, mine), (finite, theirs)):
            chosen = [(part * weight).sum() for part, weight, use in zip(parts, weights, used, strict=True) if use]
            sides.append(torch.autograd.grad(sum(chosen), leaf, retain_graph=True)[0])
        torch.testing.assert_close(*sides, rtol=0, atol=1e-12)


def test_token_statistics_name_what_they_need():
    with pytest.raises(ValueError, match="temperature 0"):
        token_statistics(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), 0.0)
    with pytest.raises(ValueError, match=r"ids \[3\]"):
        token_statistics(torch.zeros(2, 3), torch.zeros(3, dtype=torch.long), 1.0)


def rotate_half(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat((-right, left), -1) * sin[:, None]


def llama_norm(x, w):
    """As transformers defines it: the division in float32, the scale in the dtype of the model."""
    wide = x.float()
    return w * (wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt()).to(x.dtype)


ANGLES = random(900, 4, seed=7).repeat(1, 2)
PARTS = {
    "norm": (
        lambda x, w: _Norm.apply(x, w, 0.0, 1e-5),
        llama_norm,
        (random(900, 96), random(96, seed=1)),
    ),
    "gated": (_Gated.apply, lambda gate, up: F.silu(gate) * up, (random(900, 96), random(900, 96, seed=1))),
    "rotate": (
        lambda x: _Rotate.apply(x, ANGLES.cos().to(x.dtype), ANGLES.sin().to(x.dtype)),
        lambda x: rotate_half(x, ANGLES.cos().to(x.dtype), ANGLES.sin().to(x.dtype)),
        (random(900, 12, 8),),
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_fused_parts_are_their_formulas(part):
    fused, plain, values = PARTS[part]
    found = [value_and_gradients(function, values, EXACT) for function in (fused, plain)]
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-11)
    exact = found[1]
    rounded, usual = (value_and_gradients(function, values, torch.bfloat16) for function in (fused, plain))
    for mine, theirs, truth in zip(rounded, usual, exact, strict=True):
        assert mine.dtype is torch.bfloat16
        error, usual_error = ((value.double() - truth).abs().mean() for value in (mine, theirs))
        assert error <= 1.1 * usual_error


def value_and_gradients(function, values, dtype):
    leaves = [value.to(dtype).requires_grad_() for value in values]
    out = function(*leaves)
    return out, *torch.autograd.grad(out, leaves, random(*out.shape, seed=3).to(dtype))


def plain_gradient(policy: Policy) -> dict[str, torch.Tensor]:
    """One row after the other through transformers, log_softmax, autograd."""
    model = copy.deepcopy(policy.model)
    for row, weight in zip(ROWS, WEIGHTS, strict=True):
        ids = torch.tensor([[*row.prompt_ids, *row.token_ids]])
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, len(row.prompt_ids) - 1 : -1]
        said = torch.log_softmax(logits, -1)[range(len(row.token_ids)), list(row.token_ids)]
        torch.autograd.backward(weight * said.sum())
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def learner_gradient(policy: Policy, **changes: object) -> dict[str, torch.Tensor]:
    mine = copy.copy(policy)
    mine.model = copy.deepcopy(policy.model)
    stepper = Stepper(mine, LearnerSettings.model_validate(changes))
    with stepper.training():
        add_gradient(stepper, ROWS, WEIGHTS)
        return {name: found.clone() for name, found in stepper.gradient().items()}


def assert_close(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    """Within 1e-5 of the largest entry: float32."""
    assert found.keys() == wanted.keys()
    scale = max(value.abs().max().item() for value in wanted.values())
    for name, value in wanted.items():
        assert (found[name] - value).abs().max().item() < 1e-5 * scale, name


def checkpointed(policy: Policy) -> None:
    policy.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def adapted(policy: Policy) -> None:
    attach_adapter(policy.model, LoraSettings(rank=2), seed=0)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.add_(0.1)


SWITCHES = {
    "packed": (lambda policy: None, {}),
    "unshared": (lambda policy: None, {"share_prompts": "never"}),
    "small micro-batches and chunks": (
        lambda policy: None,
        {"micro_batch_tokens": 30, "logits_chunk_bytes": 4 * 61 * 3},
    ),
    "checkpointing": (checkpointed, {}),
    "frozen embeddings": (lambda policy: freeze_embeddings(policy.model), {}),
    "frozen and checkpointed": (lambda policy: [freeze_embeddings(policy.model), checkpointed(policy)], {}),
    "lora": (adapted, {}),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("switch", SWITCHES)
def test_every_switch_leaves_the_gradient_to_that_of_the_plain_way(family, switch):
    prepare, changes = SWITCHES[switch]
    policy = tiny_policy(family)
    if switch == "lora":
        adapted(policy)
    wanted_policy = copy.deepcopy(policy)
    if "frozen" in switch:
        freeze_embeddings(wanted_policy.model)
    if switch != "lora":
        prepare(policy)
    assert_close(learner_gradient(policy, **changes), plain_gradient(wanted_policy))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_attention_of_the_model_does_not_matter(attention):
    policy = tiny_policy("qwen3")
    policy.model.set_attn_implementation(attention)
    assert_close(learner_gradient(policy), plain_gradient(policy))
    assert policy.model.config._attn_implementation == attention


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen2", "qwen3", "mistral", "gemma3"])
def test_hidden_states_are_the_same_with_and_without_fused_parts(family, is_fused):
    model = tiny_policy(family, dtype=EXACT).model
    [batch] = pack_flat(ROWS, token_budget=1000, device=CPU, is_shared=True)
    with torch.no_grad(), PackedModel(model, is_fused=is_fused).running(batch) as arguments:
        found = model.base_model(**arguments, use_cache=False).last_hidden_state[0][batch.predictors]
    for member, states in zip(batch.members, found.split(list(batch.lengths)), strict=True):
        row = ROWS[member]
        with torch.no_grad():
            alone = model.base_model(torch.tensor([row.inputs]), use_cache=False).last_hidden_state[0]
        torch.testing.assert_close(states, alone[-len(row.token_ids) :], rtol=0, atol=1e-6)


def test_known_families_run_fused_and_capped_scores_are_left_to_transformers():
    fused = {family: packed_model(tiny_policy(family).model) for family in FAMILIES if family != "gemma2"}
    with pytest.warns(match=r"Gemma2ForCausalLM is trained on padded rows, which is slower: .* no soft-capping"):
        assert packed_model(tiny_policy("gemma2").model) is None
    assert all(found is not None and found.is_fused and found.follows_windows for found in fused.values())


def test_fused_parts_that_compute_something_else_are_left_out_and_named(monkeypatch):
    policy = tiny_policy("llama")
    mlp = type(policy.model.model.layers[0].mlp)
    plain = mlp.forward
    monkeypatch.setattr(mlp, "forward", lambda self, x: 2 * plain(self, x))
    with pytest.warns(match=r"LlamaForCausalLM is trained without fused parts, which is slower: packed, its hidden"):
        found = packed_model(policy.model)
    assert found is not None
    assert not found.is_fused
    assert_close(learner_gradient(policy), plain_gradient(policy))


def test_a_window_that_the_layers_do_not_ask_for_is_not_followed():
    policy = tiny_policy("llama")
    policy.model.config.sliding_window = 4  # Llama looks nowhere but into its mask, which has no window
    policy.model.config.layer_types = ["sliding_attention"] * 2
    forward = Stepper(policy, LearnerSettings()).forward
    for num_tokens, is_packed in ((4, True), (5, False)):  # the last token is not run
        row = Row((1, 2), (3,) * (num_tokens - 1))
        assert [batch.paths is not None for batch in forward.pack([row])] == [is_packed]
    assert_close(learner_gradient(policy), plain_gradient(policy))


def test_bfloat16_log_probs_are_as_near_to_float32_as_those_of_transformers():
    errors: dict[str, list[float]] = {"packed": [], "transformers": []}
    for family in ("gpt2", "llama", "qwen3"):
        rounded = tiny_policy(family, dtype=torch.bfloat16)
        rounded.model.set_attn_implementation("eager")  # what `auto` takes in bfloat16
        exact = copy.deepcopy(rounded.model).float()
        stepper = Stepper(rounded, LearnerSettings())
        rows = [Row(tuple(range(1 + place, 12 + place)), tuple(range(30, 50))) for place in range(20)]
        found = stepper.forward.logprobs(rounded.model, rows, 1.0)
        for place, row in enumerate(rows):
            ids = torch.tensor([[*row.prompt_ids, *row.token_ids]])
            with torch.no_grad():
                truth, usual = (
                    token_logprobs_from_logits(model(input_ids=ids).logits[0, 10:-1], ids[0, 11:], 1.0)
                    for model in (exact, rounded.model)
                )
            errors["packed"].append((found[place] - truth).abs().mean().item())
            errors["transformers"].append((usual - truth).abs().mean().item())
    packed, transformers = (sum(values) / len(values) for values in errors.values())
    assert 0 < packed < 1.1 * transformers


def test_a_model_that_was_run_once_is_not_kept():
    policy = tiny_policy("llama")
    forward = Stepper(policy, LearnerSettings()).forward
    other = copy.deepcopy(policy.model)
    expected = forward.logprobs(policy.model, ROWS, 1.0)
    found = forward.logprobs(other, ROWS, 1.0)
    assert torch.equal(found[0], expected[0])
    left = weakref.ref(other)
    del other
    gc.collect()
    assert left() is None


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_in_bfloat16_the_sum_over_the_layers_is_float32_and_what_a_norm_makes_of_it_is_not(family):
    model = tiny_policy(family, dtype=torch.bfloat16).model
    row = [Row((1, 2, 3), (4, 5))]
    [batch] = pack_flat(row, token_budget=100, device=CPU, is_shared=True)
    packed = packed_model(model)
    assert packed is not None
    with torch.no_grad(), packed.running(batch) as arguments:
        states = model.base_model(**arguments, use_cache=False, output_hidden_states=True).hidden_states
    assert {state.dtype for state in states[:-1]} == {torch.float32}
    assert states[-1].dtype is torch.bfloat16
