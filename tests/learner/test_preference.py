"""Learning from pairs: the gradient of the loss written out, what must not change it, and stopping and continuing."""

import copy
from math import log
from pathlib import Path

import pytest
import torch

from oncurve.algo import PreferenceSettings, preference_loss
from oncurve.learner import LearnerSettings, PreferenceLearner, PreferencePair, SupervisedLearner, load_state
from oncurve.learner.checkpoint import save_checkpoint
from oncurve.learner.likelihood import add_gradient, drift_metrics
from oncurve.learner.packing import Row
from oncurve.learner.stepper import Stepper
from oncurve.model import LoraSettings, Policy, Reference, reference_of
from oncurve.model.lora import attach_adapter
from oncurve.types import NumericsError, RunError
from tests.learner.build import FAMILIES, gradient_of, gradient_settings, largest_difference, tiny_policy

PAIRS = [
    PreferencePair((5, 6), (7, 8, 9, 0), (7, 10, 0)),
    PreferencePair((5, 6), (11, 0), (12, 13, 14, 15, 0)),  # the same prompt: shared where that pays
    PreferencePair((20, 21, 22, 23, 24), (25, 0), (26, 27)),  # the rejected one is truncated
]
VARIANTS = {
    "sigmoid": PreferenceSettings(beta=0.7, label_smoothing=0.1),
    "ipo": PreferenceSettings(variant="ipo", beta=0.3),
    "hinge": PreferenceSettings(variant="hinge", beta=0.05),
    "sigmoid_norm": PreferenceSettings(variant="sigmoid_norm", beta=2.0),
    "simpo": PreferenceSettings(variant="simpo"),
}


def copy_of(policy: Policy) -> Policy:
    mine = copy.copy(policy)
    mine.model = copy.deepcopy(policy.model)
    return mine


def start_of(family: str, seed: int = 1) -> Reference:
    """A reference that is not the policy, so that no term of the loss vanishes."""
    return reference_of(tiny_policy(family, dtype=torch.float64, seed=seed))


def step(
    policy: Policy, pairs: list[PreferencePair], preference: PreferenceSettings, start: Reference, **settings: object
) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradient of a first step, on a copy of the policy."""
    learner = PreferenceLearner(copy_of(policy), gradient_settings(**settings), preference, reference=start)
    return learner.update(pairs)["loss/total"], gradient_of(learner)  # type: ignore[arg-type]


def sequence_logprob(model: torch.nn.Module, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> torch.Tensor:
    distribution = torch.log_softmax(model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0], -1)
    return sum(distribution[len(prompt) - 1 + offset, token] for offset, token in enumerate(tokens))  # type: ignore


def written_out(
    policy: Policy, pairs: list[PreferencePair], preference: PreferenceSettings, start: Reference
) -> tuple[float, dict[str, torch.Tensor]]:
    """The same from the definition: one completion at a time, all logits, one graph over the whole batch."""
    model = copy.deepcopy(policy.model)

    def both(model: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        return (
            torch.stack([sequence_logprob(model, pair.prompt_ids, pair.chosen_ids) for pair in pairs]),
            torch.stack([sequence_logprob(model, pair.prompt_ids, pair.rejected_ids) for pair in pairs]),
        )

    chosen, rejected = both(model)
    with torch.no_grad():
        ref_chosen, ref_rejected = both(start.model)
    loss = preference_loss(
        preference,
        chosen=chosen,
        rejected=rejected,
        ref_chosen=ref_chosen,
        ref_rejected=ref_rejected,
        len_chosen=torch.tensor([len(pair.chosen_ids) for pair in pairs]),
        len_rejected=torch.tensor([len(pair.rejected_ids) for pair in pairs]),
    ).loss.mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_gradient_are_those_of_the_formula(variant: str) -> None:
    policy, start = tiny_policy("gpt2", dtype=torch.float64), start_of("gpt2")
    loss, gradient = step(policy, PAIRS, VARIANTS[variant], start, micro_batch_tokens=12, logits_chunk_bytes=4 * 61 * 3)
    expected_loss, expected = written_out(policy, PAIRS, VARIANTS[variant], start)
    assert loss == pytest.approx(expected_loss, abs=1e-10)
    assert largest_difference(gradient, expected) < 1e-9


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_the_gradient_of_the_formula(family: str) -> None:
    policy, start = tiny_policy(family, dtype=torch.float64), start_of(family)
    loss, gradient = step(policy, PAIRS, VARIANTS["sigmoid"], start)
    expected_loss, expected = written_out(policy, PAIRS, VARIANTS["sigmoid"], start)
    assert loss == pytest.approx(expected_loss, abs=1e-6)  # llama normalises in float32 whatever its weights are
    assert largest_difference(gradient, expected) < 1e-6


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "memory",
    [{"micro_batch_tokens": 1}, {"micro_batch_tokens": 9}, {"logits_chunk_bytes": 1}, {"share_prompts": "never"}],
    ids=["row by row", "few rows", "token by token", "no sharing"],
)
def test_memory_settings_leave_the_gradient_alone(variant: str, memory: dict[str, object]) -> None:
    policy, start = tiny_policy("gpt2", dtype=torch.float64), start_of("gpt2")
    whole_loss, whole = step(policy, PAIRS, VARIANTS[variant], start)
    loss, gradient = step(policy, PAIRS, VARIANTS[variant], start, **memory)
    assert loss == pytest.approx(whole_loss, abs=1e-12)
    assert largest_difference(gradient, whole) < 1e-10


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_is_the_mean_over_its_pairs(variant: str) -> None:
    # Also with two and with three workers: each takes its share of the pairs, weighed by their number.
    policy, start = tiny_policy("gpt2", dtype=torch.float64), start_of("gpt2")
    _, whole = step(policy, PAIRS, VARIANTS[variant], start)
    parts = [step(policy, [pair], VARIANTS[variant], start)[1] for pair in PAIRS]
    mean = {name: sum(part[name] for part in parts) / 3 for name in whole}
    assert largest_difference(mean, whole) < 1e-10  # type: ignore[arg-type]


def test_at_the_start_nothing_is_preferred_and_nothing_has_drifted() -> None:
    metrics = PreferenceLearner(tiny_policy(), LearnerSettings(), PreferenceSettings()).update(PAIRS)
    assert metrics["loss/total"] == pytest.approx(log(2))
    assert (metrics["dpo/margin"], metrics["dpo/accuracy"], metrics["drift/kl"]) == (0.0, 0.0, 0.0)
    assert metrics["tokens/completion"] == 4 + 3 + 2 + 5 + 2 + 2


def test_a_few_steps_turn_every_pair_the_right_way_round() -> None:
    policy = tiny_policy()
    learner = PreferenceLearner(policy, LearnerSettings(lr=0.01), PreferenceSettings(beta=1.0))
    seen = [learner.update(PAIRS) for _ in range(8)]
    assert seen[-1]["dpo/accuracy"] == 1.0
    assert seen[-1]["loss/total"] < seen[0]["loss/total"]
    assert seen[-1]["dpo/margin"] > 1.0
    assert seen[-1]["drift/kl"] > 0.0
    for metrics in seen:
        assert metrics["dpo/margin"] == pytest.approx(metrics["dpo/chosen_reward"] - metrics["dpo/rejected_reward"])
    moved = seen[-1]["dpo/chosen_logprob"] - seen[0]["dpo/chosen_logprob"]
    assert seen[-1]["dpo/chosen_reward"] == pytest.approx(moved, abs=1e-4)  # beta 1: nats moved since the start
    assert not policy.model.training


def test_simpo_without_watching_holds_no_reference() -> None:
    learner = PreferenceLearner(tiny_policy(), LearnerSettings(watch_kl_completions=0), VARIANTS["simpo"])
    metrics = learner.update(PAIRS)
    assert "drift/kl" not in metrics
    assert metrics["dpo/chosen_reward"] == pytest.approx(2.0 * metrics["dpo/chosen_logprob"])
    assert "reference" not in learner.seconds()
    watched = PreferenceLearner(tiny_policy(), LearnerSettings(), VARIANTS["simpo"])
    assert "drift/kl" in watched.update(PAIRS)
    assert watched.seconds()["reference"] > 0


def test_lora_drops_the_same_units_in_both_passes() -> None:
    policy = tiny_policy("llama")
    policy.adapter = attach_adapter(policy.model, LoraSettings(rank=2, dropout=0.5), seed=0)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.3)
    stepper, rows = Stepper(policy, LearnerSettings()), [Row(pair.prompt_ids, pair.chosen_ids) for pair in PAIRS]
    with stepper.training():
        first = stepper.forward.logprobs(stepper.model, rows, 1.0)
    with stepper.training():
        second = add_gradient(stepper, rows, [1.0] * 3)
    dropped = stepper.forward.logprobs(stepper.model, rows, 1.0)
    assert all(torch.allclose(first[index], second[index], atol=1e-6) for index in range(3))
    assert not torch.allclose(first[0], dropped[0], atol=1e-3)


def test_the_drift_is_the_mean_over_tokens_of_an_estimate_of_kl() -> None:
    # d = 0.5 and -0.3: exp(d) - 1 - d = 0.148721 and 0.040818
    found = drift_metrics({0: torch.tensor([-1.0]), 2: torch.tensor([-0.8]), 5: torch.tensor([9.0])},
                          {0: torch.tensor([-1.5]), 2: torch.tensor([-0.5])})  # fmt: skip
    assert found == {"drift/kl": pytest.approx((0.148721 + 0.040818) / 2, abs=1e-6)}
    assert drift_metrics({0: torch.tensor([-1.0])}, {}) == {}


def test_supervised_learning_measures_its_drift_on_some_examples() -> None:
    policy = tiny_policy()
    examples = [(pair.prompt_ids, pair.chosen_ids) for pair in PAIRS]
    settings = LearnerSettings(lr=0.01, watch_kl_completions=2)
    learner = SupervisedLearner(policy, settings, reference=reference_of(policy))
    first, second = learner.update(examples), learner.update(examples)
    assert first["drift/kl"] == pytest.approx(0.0, abs=1e-10)
    assert second["drift/kl"] > 1e-6
    assert "drift/kl" not in SupervisedLearner(policy, settings).update(examples)
    unwatched = SupervisedLearner(policy, LearnerSettings(watch_kl_completions=0), reference=reference_of(policy))
    assert "drift/kl" not in unwatched.update(examples)


def start(kind: str) -> Policy:
    policy = tiny_policy("llama", dtype=torch.bfloat16 if kind == "bfloat16" else torch.float32)
    if kind == "lora":
        policy.adapter = attach_adapter(policy.model, LoraSettings(rank=2, dropout=0.5), seed=0)
    return policy


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "lora"])
def test_two_steps_a_checkpoint_and_two_steps_equal_four_steps(kind: str, tmp_path: Path) -> None:
    def learner_of(policy: Policy) -> PreferenceLearner:
        return PreferenceLearner(policy, LearnerSettings(lr=0.01, warmup_steps=3), PreferenceSettings())

    straight_policy, first_policy, policy = start(kind), start(kind), start(kind)
    straight, first, resumed = learner_of(straight_policy), learner_of(first_policy), learner_of(policy)
    expected = [straight.update(PAIRS) for _ in range(4)]
    before = [first.update(PAIRS) for _ in range(2)]
    save_checkpoint(tmp_path, 2, first_policy, {"learner": first.state_dict()})
    torch.manual_seed(99)  # the global random state of the new process is another one
    resumed.load_state_dict(load_state(tmp_path / "step_000002")["learner"])
    assert before + [resumed.update(PAIRS) for _ in range(2)] == expected
    assert resumed.num_steps == 4
    for mine, theirs in zip(policy.model.parameters(), straight_policy.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_what_cannot_be_learned_is_refused() -> None:
    learner = PreferenceLearner(tiny_policy(), LearnerSettings(), PreferenceSettings())
    with pytest.raises(ValueError, match="at least one pair"):
        learner.update([])
    with pytest.raises(ValueError, match="pair 1 has a completion without tokens"):
        learner.update([PAIRS[0], PreferencePair((5,), (6, 0), ())])
    with pytest.raises(RunError, match="lacks num_steps"):
        learner.load_state_dict({})


def test_a_loss_that_is_not_finite_takes_no_step() -> None:
    policy = tiny_policy()
    learner = PreferenceLearner(policy, LearnerSettings(), PreferenceSettings())
    weight = next(policy.model.parameters())
    with torch.no_grad():
        weight[5] = float("nan")
    with pytest.raises(NumericsError, match=r"preference step 0: the loss of \d of 3 pairs is NaN or inf"):
        learner.update(PAIRS)
    assert learner.num_steps == 0
