"""The critic: its values and gradient against slow ones written out, what must not change them, and resuming."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from oncurve.learner import Critic, CriticSettings, LearnerSettings, load_state, save_checkpoint
from oncurve.learner.packing import Row
from oncurve.model import LoraSettings, Policy
from oncurve.model.lora import attach_adapter
from oncurve.types import Completion, NumericsError, RunError
from tests.learner.build import (
    FAMILIES,
    gradient_of,
    gradient_settings,
    largest_difference,
    sample_groups,
    tiny_policy,
)

HEAD = tuple(range(10, 30))
"""What some prompts begin with."""
ByIndex = dict[int, Tensor]


def rollout(policy: Policy, seed: int = 0) -> dict[int, Completion]:
    """Nine completions by place, behind prompts of three lengths that begin alike; one has a single token."""
    groups = sample_groups(policy, [[0.0] * 3] * 3, seed=seed)
    found = [replace(c, prompt_ids=(*HEAD, *c.prompt_ids)) for group in groups for c in group.completions]
    short = replace(found[4], token_ids=found[4].token_ids[:1], old_logprobs=found[4].old_logprobs[:1])
    return dict(enumerate([*found[:4], short, *found[5:]]))


def drawn(completions: Mapping[int, Completion], seed: int, scale: float = 1.0) -> ByIndex:
    generator = torch.Generator().manual_seed(seed)
    return {
        index: scale * torch.randn(len(completion.token_ids), generator=generator, dtype=torch.float64)
        for index, completion in completions.items()
    }


def critic_of(policy: Policy, learner: LearnerSettings | None = None, seed: int = 0, **settings: object) -> Critic:
    return Critic(policy, CriticSettings(**settings), learner or LearnerSettings(), seed=seed)


def model_of(critic: Critic) -> torch.nn.Module:
    return critic._stepper.model


def loud(critic: Critic) -> Critic:
    """With a head so large that values differ visibly from token to token."""
    with torch.no_grad():
        model_of(critic).get_output_embeddings().weight.mul_(100)
    return critic


def constant(critic: Critic, value: float) -> Critic:
    """With a head that says the same everywhere."""
    head = model_of(critic).get_output_embeddings()
    with torch.no_grad():
        head.weight.zero_()
        head.bias.fill_(value)
    return critic


def written_out(model: torch.nn.Module, completions: Mapping[int, Completion]) -> ByIndex:
    """Values from the definition: one completion at a time, a plain forward pass."""
    found = {}
    for index, completion in completions.items():
        ids = torch.tensor([[*completion.prompt_ids, *completion.token_ids]])
        found[index] = model(input_ids=ids).logits[0, len(completion.prompt_ids) - 1 : -1, 0]
    return found


def loss_of(values: ByIndex, returns: ByIndex, old: ByIndex, clip: float) -> Tensor:
    """The token mean of the clipped squared error, token by token."""
    loss, num_tokens = torch.zeros((), dtype=torch.float64), 0
    for index, said in values.items():
        for token, value in enumerate(said):
            before, target = old[index][token].item(), returns[index][token].item()
            clipped = before + max(-clip, min(clip, value.item() - before))
            plain = (value - target) ** 2
            loss = loss + 0.5 * (plain if plain.item() >= (clipped - target) ** 2 else (clipped - target) ** 2)
            num_tokens += 1
    return loss / num_tokens


def step_gradient(
    start: Critic, completions: Mapping[int, Completion], returns: ByIndex, old: ByIndex, **memory: object
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Metrics and gradient of the next step, taken by a critic with the same weights and these memory settings."""
    policy = replace(start._stepper.policy, model=copy.deepcopy(model_of(start)))
    critic = critic_of(policy, gradient_settings(**memory), value_clip=0.3, max_grad_norm=1e12)
    model_of(critic).load_state_dict(model_of(start).state_dict())
    metrics = critic.update(completions, returns, old)
    return metrics, gradient_of(critic)


@pytest.mark.parametrize("memory", [{}, {"micro_batch_tokens": 30, "logits_chunk_bytes": 12}])
@pytest.mark.parametrize("share", ["auto", "never"])
@pytest.mark.parametrize("family", FAMILIES)
def test_values_are_those_of_a_plain_forward_pass(family, share, memory):
    policy = tiny_policy(family, dtype=torch.float64)
    completions = rollout(policy)
    critic = loud(critic_of(policy, LearnerSettings(share_prompts=share, **memory)))
    found = critic.values(completions)
    with torch.no_grad():
        expected = written_out(model_of(critic), completions)
    assert found.keys() == completions.keys()
    for index, values in found.items():
        assert values.shape == (len(completions[index].token_ids),)
        assert not values.requires_grad
        assert torch.allclose(values, expected[index], rtol=0, atol=1e-6)
    assert torch.cat(list(found.values())).std() > 0.1


def test_the_value_of_the_first_token_judges_the_prompt_alone():
    policy = tiny_policy("gpt2")
    critic = loud(critic_of(policy))
    completion = rollout(policy)[0]
    other = replace(completion, token_ids=(33, 34, 35), old_logprobs=(0.0,) * 3)
    values = critic.values({0: completion, 1: other})
    assert values[0][0].item() == pytest.approx(values[1][0].item(), abs=1e-6)
    assert abs(values[0][1] - values[1][1]) > 1e-3


def test_completions_keep_their_places_and_empty_ones_are_left_out():
    policy = tiny_policy("gpt2")
    critic = loud(critic_of(policy))
    completions = rollout(policy)
    empty = replace(completions[0], token_ids=(), old_logprobs=())
    found = critic.values({7: completions[3], 2: empty, 5: completions[0]})
    assert found.keys() == {7, 5}
    assert torch.allclose(found[7], critic.values(completions)[3], atol=1e-6)
    assert critic.values({}) == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradient_are_those_of_the_formula(family):
    policy = tiny_policy(family, dtype=torch.float64)
    completions = rollout(policy)
    critic = loud(critic_of(policy))
    returns, shift = drawn(completions, 1), drawn(completions, 2, scale=0.5)
    model = copy.deepcopy(model_of(critic))
    values = written_out(model, completions)
    old = {index: said.detach() + shift[index] for index, said in values.items()}
    expected = loss_of(values, returns, old, clip=0.3)
    expected.backward()
    metrics, gradient = step_gradient(critic, completions, returns, old, micro_batch_tokens=60)
    assert metrics["critic/loss"] == pytest.approx(expected.item(), abs=1e-6)
    assert 0.05 < metrics["critic/clip_frac"] < 0.95
    expected_gradient = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert gradient.keys() == expected_gradient.keys()
    assert largest_difference(gradient, expected_gradient) < 1e-5
    norm = torch.cat([part.flatten() for part in expected_gradient.values()]).norm().item()
    assert metrics["critic/grad_norm"] == pytest.approx(norm, rel=1e-5)


def test_the_gradient_is_that_of_finite_differences():
    policy = tiny_policy("gpt2", dtype=torch.float64)
    completions = rollout(policy)
    critic = loud(critic_of(policy))
    returns = drawn(completions, 1)
    old = {index: values + 0.1 for index, values in critic.values(completions).items()}
    _, gradient = step_gradient(critic, completions, returns, old)
    step = 1e-6
    for name, parameter in model_of(critic).named_parameters():
        place = gradient[name].abs().flatten().argmax()  # where a mistake would be largest
        losses = []
        for move in (step, -2 * step):
            with torch.no_grad():
                parameter.view(-1)[place] += move
                losses.append(loss_of(critic.values(completions), returns, old, clip=0.3).item())
        with torch.no_grad():
            parameter.view(-1)[place] += step
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(gradient[name].view(-1)[place].item(), abs=1e-6)


@pytest.mark.parametrize(
    "memory",
    [
        {"micro_batch_tokens": 1, "logits_chunk_bytes": 12},
        {"micro_batch_tokens": 80},
        {"logits_chunk_bytes": 1},
        {"share_prompts": "never"},
        {"micro_batch_tokens": 80, "share_prompts": "never"},
    ],
    ids=["row by row", "few rows", "token by token", "no sharing", "few rows, no sharing"],
)
@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "gemma2"])
def test_memory_settings_leave_the_gradient_alone(family, memory):
    policy = tiny_policy(family, dtype=torch.float64)
    policy.model.config.sliding_window = 40  # a narrower one than the rows would keep Gemma 2 from sharing
    completions = rollout(policy)
    critic = loud(critic_of(policy))
    rows = [Row(completion.prompt_ids, completion.token_ids) for completion in completions.values()]
    batches = critic._stepper.forward.pack(rows)
    assert any(batch.paths is not None or batch.subtree_ends is not None for batch in batches)
    returns, old = drawn(completions, 1), drawn(completions, 2)
    whole_metrics, whole = step_gradient(critic, completions, returns, old)
    metrics, gradient = step_gradient(critic, completions, returns, old, **memory)
    rounding = 1e-11 if family == "gpt2" else 2e-6  # the others have float32 inside
    assert metrics == pytest.approx(whole_metrics, rel=rounding, abs=rounding)
    assert largest_difference(gradient, whole) < rounding


def test_the_gradient_of_a_step_is_the_mean_over_its_tokens():
    # Two halves of n and m tokens: n / (n + m) and m / (n + m) of their gradients, whoever pads whom.
    policy = tiny_policy("gpt2", dtype=torch.float64)
    completions = rollout(policy)
    critic = loud(critic_of(policy))
    returns, old = drawn(completions, 1), drawn(completions, 2)
    halves = [{i: c for i, c in completions.items() if (i < 3) == side} for side in (True, False)]
    sizes = [sum(len(c.token_ids) for c in half.values()) for half in halves]
    assert sizes[0] != sizes[1]
    (_, left), (_, right) = (step_gradient(critic, half, returns, old) for half in halves)
    metrics, together = step_gradient(critic, dict(reversed(completions.items())), returns, old)
    expected = {name: (sizes[0] * left[name] + sizes[1] * right[name]) / sum(sizes) for name in left}
    assert largest_difference(together, expected) < 1e-10
    assert metrics["critic/lr"] == 1e-5


def one_token(policy: Policy, count: int) -> dict[int, Completion]:
    first = rollout(policy)[0]
    return {i: replace(first, token_ids=(31 + i,), old_logprobs=(0.0,), index=i) for i in range(count)}


def each(*values: float) -> ByIndex:
    return {index: torch.tensor([value]) for index, value in enumerate(values)}


def test_the_metrics_on_paper():
    # V = .5 everywhere, clip .2. Errors: .5 - 1 from .1, clipped to .3: .49; .5 - 0 from .4: .25; .5 - 0 from .9,
    # clipped to .7: .49. Half of their mean is .205. What is constant explains nothing.
    policy = tiny_policy("gpt2")
    critic = constant(critic_of(policy, lr=0.01), 0.5)
    metrics = critic.update(one_token(policy, 3), each(1, 0, 0), each(0.1, 0.4, 0.9))
    assert metrics["critic/loss"] == pytest.approx(0.5 * (0.49 + 0.25 + 0.49) / 3)
    assert metrics["critic/clip_frac"] == pytest.approx(2 / 3)
    assert metrics["critic/explained_variance"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["critic/lr"] == 0.01
    # AdamW moves the bias by its learning rate, down: only the token with a gradient of (.5 - 0) / 3 counts.
    assert model_of(critic).get_output_embeddings().bias.item() == pytest.approx(0.49, abs=1e-6)
    assert critic.num_steps == 1


def test_where_every_token_is_clipped_nothing_moves():
    policy = tiny_policy("gpt2")
    critic = constant(critic_of(policy), 0.5)
    before = copy.deepcopy(model_of(critic).state_dict())
    metrics = critic.update(one_token(policy, 2), each(1, 1), each(0, 0))
    assert metrics["critic/grad_norm"] == 0.0
    assert metrics["critic/clip_frac"] == 1.0
    assert metrics["critic/loss"] == pytest.approx(0.5 * 0.8**2)
    assert "critic/explained_variance" not in metrics  # all returns are equal
    assert all(torch.equal(value, before[name]) for name, value in model_of(critic).state_dict().items())


def test_without_a_clip_the_same_tokens_do_move():
    policy = tiny_policy("gpt2")
    critic = constant(critic_of(policy, value_clip=None, lr=0.01), 0.5)
    metrics = critic.update(one_token(policy, 2), each(1, 1), each(0, 0))
    assert metrics["critic/clip_frac"] == 0.0
    assert metrics["critic/loss"] == pytest.approx(0.5 * 0.5**2)
    assert model_of(critic).get_output_embeddings().bias.item() == pytest.approx(0.51, abs=1e-6)


def test_the_critics_own_settings_replace_those_of_the_learner():
    policy = tiny_policy("gpt2")
    learner = LearnerSettings(lr=0.5, warmup_steps=10, decay_steps=20, max_grad_norm=9.0, beta1=0.0)
    completions = one_token(policy, 2)
    metrics, moments = [], []
    for limit in (1e12, 1e-3):
        critic = constant(critic_of(policy, learner, lr=0.02, max_grad_norm=limit), 0.5)
        metrics.append(critic.update(completions, each(1, 1), each(0.5, 0.5)))
        moments.append(torch.cat([part.flatten() for part in gradient_of(critic).values()]).norm().item())
    assert [found["critic/lr"] for found in metrics] == [0.02, 0.02]
    assert moments == pytest.approx([metrics[0]["critic/grad_norm"], 1e-3], rel=1e-4)
    assert metrics[1]["critic/grad_norm"] == metrics[0]["critic/grad_norm"] > 0.5  # measured before clipping


def test_it_learns_which_prompts_are_hard_and_leaves_the_policy_alone():
    policy = tiny_policy("gpt2")
    weights = copy.deepcopy(policy.model.state_dict())
    completions = rollout(policy)
    by_prompt = {i: float(len(c.prompt_ids) > len(HEAD) + 4) for i, c in completions.items()}
    returns = {i: torch.full((len(completions[i].token_ids),), value) for i, value in by_prompt.items()}
    critic = critic_of(policy, lr=0.01)
    found = [critic.update(completions, returns, critic.values(completions)) for _ in range(40)]
    assert abs(found[0]["critic/explained_variance"]) < 0.1
    assert found[-1]["critic/explained_variance"] > 0.9
    assert all(torch.equal(value, weights[name]) for name, value in policy.model.state_dict().items())
    assert not model_of(critic).training


def start(kind: str) -> Policy:
    policy = tiny_policy("llama", dtype=torch.bfloat16 if kind == "bfloat16" else torch.float32)
    if kind == "lora":
        policy.adapter = attach_adapter(policy.model, LoraSettings(rank=2, dropout=0.5), seed=0)
    return policy


def run(critic: Critic, completions: Mapping[int, Completion], seeds: range) -> list[object]:
    """Metrics of every step and the values after it."""
    found: list[object] = []
    for seed in seeds:
        found.append(critic.update(completions, drawn(completions, seed), critic.values(completions)))
        found.append([values.tolist() for values in critic.values(completions).values()])
    return found


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "lora"])
def test_two_steps_a_checkpoint_and_two_steps_equal_four_steps(kind: str, tmp_path: Path):
    completions = rollout(tiny_policy("llama"))
    torch.manual_seed(1)
    straight = critic_of(start(kind), lr=0.01)
    expected = run(straight, completions, range(4))

    first = critic_of(start(kind), lr=0.01)
    before = run(first, completions, range(2))
    save_checkpoint(tmp_path, 2, start(kind), {"critic": first.state_dict()})

    torch.manual_seed(99)  # the global random state of the new process is another one
    resumed = critic_of(start(kind), lr=0.01, seed=5)  # and its head is drawn anew
    resumed.load_state_dict(load_state(tmp_path / "step_000002")["critic"])
    assert resumed.num_steps == 2
    assert before + run(resumed, completions, range(2, 4)) == expected
    expected_weights = model_of(straight).state_dict()
    assert all(torch.equal(value, expected_weights[name]) for name, value in model_of(resumed).state_dict().items())


def test_a_state_of_another_model_is_refused():
    state = critic_of(tiny_policy("gpt2")).state_dict()
    with pytest.raises(RunError, match="does not fit this model"):
        critic_of(tiny_policy("llama")).load_state_dict(state)
    with pytest.raises(RunError, match="lacks num_steps, optimizer"):
        critic_of(tiny_policy("llama")).load_state_dict({})


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("what", ["returns", "old values"])
def test_numbers_that_are_not_finite_are_refused_and_the_step_is_not_taken(what, number):
    policy = tiny_policy("gpt2")
    critic = critic_of(policy)
    completions = rollout(policy)
    given = {"returns": drawn(completions, 1), "old values": drawn(completions, 2)}
    given[what][4] = torch.tensor([number])
    before = copy.deepcopy(model_of(critic).state_dict())
    name = f"{completions[4].task_id}\\[{completions[4].index}\\]"
    with pytest.raises(NumericsError, match=f"critic step 0: {what} .* in 1 completions, first {name} .*critic.lr"):
        critic.update(completions, given["returns"], given["old values"])
    assert critic.num_steps == 0
    assert all(torch.equal(value, before[key]) for key, value in model_of(critic).state_dict().items())


def test_a_damaged_critic_says_so_instead_of_judging():
    policy = tiny_policy("gpt2")
    critic = constant(critic_of(policy), float("nan"))
    completions = one_token(policy, 2)
    with pytest.raises(NumericsError, match="values of the critic are NaN or inf in 2 completions"):
        critic.values(completions)
    with pytest.raises(NumericsError, match="values of the critic are NaN or inf in 2 completions"):
        critic.update(completions, each(1, 0), each(0, 0))
    assert critic.num_steps == 0


def test_a_gradient_that_overflows_is_refused():
    policy = tiny_policy("gpt2")
    critic = critic_of(policy)
    before = copy.deepcopy(model_of(critic).state_dict())
    with pytest.raises(NumericsError, match=r"critic step 0: the gradient is not finite .* lower critic.lr"):
        critic.update(one_token(policy, 1), each(3e38), each(0))
    assert all(torch.equal(value, before[key]) for key, value in model_of(critic).state_dict().items())
    metrics = critic.update(one_token(policy, 1), each(1), each(0))  # nothing of it is left in the next step
    assert metrics["critic/grad_norm"] < 100


def test_what_does_not_fit_is_refused():
    policy = tiny_policy("gpt2")
    critic = critic_of(policy)
    completions = one_token(policy, 2)
    with pytest.raises(ValueError, match=r"returns of completion 1 of task t0 must be \[1\], one a token, got nothing"):
        critic.update(completions, each(1), each(0, 0))
    with pytest.raises(ValueError, match=r"old values of completion 0 .* got \[2\]"):
        critic.update(completions, each(1, 1), {0: torch.ones(2), 1: torch.ones(1)})
    empty = {0: replace(completions[0], token_ids=(), old_logprobs=())}
    with pytest.raises(ValueError, match="without a single token"):
        critic.update(empty, {}, {})


def test_empty_completions_change_nothing():
    policy = tiny_policy("gpt2", dtype=torch.float64)
    critic = loud(critic_of(policy))
    completions = rollout(policy)
    returns, old = drawn(completions, 1), drawn(completions, 2)
    with_empty = {99: replace(completions[0], token_ids=(), old_logprobs=()), **completions}
    metrics, gradient = step_gradient(critic, with_empty, returns, old)
    expected_metrics, expected = step_gradient(critic, completions, returns, old)
    assert metrics == expected_metrics
    assert all(torch.equal(gradient[name], expected[name]) for name in expected)


def test_bfloat16_arithmetic_gives_values_that_are_not_rounded_to_it():
    policy = tiny_policy("llama")
    completions = rollout(policy)
    exact = loud(critic_of(policy)).values(completions)
    found = loud(critic_of(policy, LearnerSettings(compute_dtype="bfloat16"))).values(completions)
    gap = max((found[index] - values).abs().max().item() for index, values in exact.items())
    assert 1e-5 < gap < 0.2
    joined = torch.cat(list(found.values()))
    assert joined.dtype == torch.float32
    assert not torch.equal(joined, joined.bfloat16().float())


def test_gradients_of_bfloat16_weights_are_summed_over_micro_batches_in_float32():
    policy = tiny_policy("llama", dtype=torch.bfloat16)
    completions = rollout(policy)
    wide = replace(policy, model=copy.deepcopy(policy.model).float())
    returns, old = drawn(completions, 1), drawn(completions, 2)
    found, exact = (
        step_gradient(loud(critic_of(mine)), completions, returns, old, micro_batch_tokens=40)[1]
        for mine in (policy, wide)
    )
    assert all(part.dtype == torch.float32 for part in found.values())
    assert 1e-4 < largest_difference(found, exact) < 0.1


def test_the_policy_waits_for_its_critic_at_the_start_only():
    settings = CriticSettings(warmup_rollouts=2)
    assert [settings.is_warmup(rollout) for rollout in range(4)] == [True, True, False, False]
    assert not CriticSettings(warmup_rollouts=0).is_warmup(0)
