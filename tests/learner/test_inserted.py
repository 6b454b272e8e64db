"""What an environment wrote into a completion is attended to and nothing else."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oncurve.algo import ObjectiveSettings
from oncurve.learner import SupervisedLearner
from oncurve.learner.packing import Row
from oncurve.types import Episode, Group, Inserted, Status, transcript, weave
from tests.learner import slow
from tests.learner.build import SAMPLING, gradient_of, gradient_settings, largest_difference, tiny_policy
from tests.learner.rollouts import fast_step, learner_of, other, policy, recorded, rollout, told


def part(after: int, *ids: int) -> Inserted:
    return Inserted(after=after, token_ids=ids, text="", after_chars=0)


def answered(groups: tuple[Group, ...] = ()) -> tuple[Group, ...]:
    """The rollout with answers of one to five tokens in most of its completions, and log-probs that fit them."""
    changed = []
    for group in groups or rollout():
        completions = []
        for completion in group.completions:
            parts = (part(1, 41), part(2, 42, 43, 44, 45, 40 + completion.index))[: 1 + completion.index % 3]
            fits = tuple(one for one in parts if one.after < len(completion.token_ids) and completion.index < 3)
            with_answers = replace(completion, inserted=fits)
            said, _ = slow.look(policy().model, with_answers, SAMPLING.temperature)
            noise = 0.2 * torch.sin(torch.arange(len(said), dtype=torch.float64))
            completions.append(replace(with_answers, old_logprobs=tuple((said.detach() + noise).tolist())))
        changed.append(replace(group, completions=tuple(completions)))
    return tuple(changed)


@pytest.mark.parametrize(
    "objective",
    [
        ObjectiveSettings(clip_low=0.1, clip_high=0.3, kl_coef=0.1, entropy_coef=0.05),
        ObjectiveSettings(loss="gspo", clip_low=0.05, clip_high=0.1, aggregation="seq-mean-token-mean", kl_coef=0.1),
        ObjectiveSettings(advantage={"estimator": "reinforce_pp", "gamma": 0.9}, zero_variance="keep"),
    ],
    ids=["clip, kl, entropy", "one ratio a completion", "discounted tokens"],
)
@pytest.mark.parametrize("share", ["auto", "never"])
def test_the_gradient_is_that_of_the_sampled_tokens_alone(objective, share):
    groups = answered()
    learner = learner_of(objective, micro_batch_tokens=110, logits_chunk_bytes=4 * 61 * 4, share_prompts=share)
    ref = slow.floats(other().model, recorded(groups), SAMPLING.temperature)
    result, gradient = fast_step(learner, groups)
    loss, expected = slow.step(policy().model, told(groups), objective, ref=ref)
    assert result.metrics["loss/total"] == pytest.approx(loss, abs=1e-9)
    assert largest_difference(gradient, expected) < 1e-8
    assert result.metrics["length/max"] == 6.0  # of the sampled ones
    lengths = sum(len(completion.token_ids) for completion in recorded(groups))
    assert result.metrics["tokens/completion"] == lengths


def test_the_answers_matter_to_the_tokens_behind_them():
    completion = answered()[0].completions[0]
    other_answer = replace(completion, inserted=(part(1, 17),))
    said, changed = (slow.look(policy().model, c, 1.0)[0] for c in (completion, other_answer))
    assert torch.equal(said[:1], changed[:1])
    assert (said[1:] - changed[1:]).abs().min() > 1e-6


def test_supervised_examples_learn_no_answer():
    start = tiny_policy("gpt2", dtype=torch.float64)
    learner = SupervisedLearner(start, gradient_settings())
    parts = (part(2, 40, 41), part(3, 42))
    found = learner.update([((5, 6), (7, 8, 9, 10), parts), ((5, 6), (11, 0))])
    model = tiny_policy("gpt2", dtype=torch.float64).model
    loss = -sum(
        torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0], -1)[place, ids[place + 1]]
        for ids, places in (([5, 6, 7, 8, 40, 41, 9, 42, 10], (1, 2, 5, 7)), ([5, 6, 11, 0], (1, 2)))
        for place in places
    )
    (loss / 6).backward()
    assert found["loss/supervised"] == pytest.approx(loss.item() / 6)
    assert found["tokens/completion"] == 6.0
    expected = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    assert largest_difference(gradient_of(learner), expected) < 1e-8


def test_tools_have_figures_of_their_own():
    group = answered()[0]
    episodes = [Episode(status=Status.WRONG, evidence="", num_calls=n, num_errors=1) for n in (3, 1, 1)]
    done = tuple(replace(c, episode=e) for c, e in zip(group.completions, episodes, strict=True))
    learner = learner_of(ObjectiveSettings())
    plain = learner_of(ObjectiveSettings()).update([group]).metrics
    found = learner.update([replace(group, completions=done)]).metrics
    assert found["tools/calls"] == 5.0
    assert found["tools/error_frac"] == 3 / 5
    assert found["tokens/inserted"] == 1 + (1 + 5) + (1 + 5)
    assert {name: value for name, value in found.items() if name in plain} == plain


def test_rows_and_masks_on_paper():
    parts = (part(1, 50, 51), part(3, 52))
    woven = weave((1, 2, 3, 4), parts)
    assert woven.token_ids == (1, 50, 51, 2, 3, 52, 4)
    assert woven.is_sampled == (True, False, False, True, True, False, True)
    row = Row((9, 8), (1, 2, 3, 4), parts)
    assert row.inputs == (9, 8, 1, 50, 51, 2, 3, 52)
    assert list(row.predictors) == [1, 4, 5, 7]
    assert len(row) == 8
    shown = (Inserted(after=1, token_ids=(5,), text="[x]", after_chars=2),)
    assert transcript("ab", ()) == "ab"
    assert transcript("abc", shown) == "ab[x]c"


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.sets(st.integers(1, 5)), st.integers(1, 3))
def test_weaving_keeps_every_token_in_order(ids, places, size):
    parts = [part(after, *range(100, 100 + size)) for after in sorted(places) if after < len(ids)]
    woven = weave(ids, parts)
    pairs = list(zip(woven.token_ids, woven.is_sampled, strict=True))
    assert [token for token, is_sampled in pairs if is_sampled] == ids
    assert [token for token, is_sampled in pairs if not is_sampled] == [t for p in parts for t in p.token_ids]


@pytest.mark.parametrize("parts", [(part(0, 1),), (part(3, 1),), (part(2, 1), part(1, 1)), (part(1),)])
def test_an_insertion_out_of_place_is_refused(parts):
    with pytest.raises(ValueError, match="between two sampled tokens"):
        weave((1, 2, 3), parts)
