"""The warm start: what it learns from, that it learns, and what the shipped model is."""

from collections import Counter

import pytest

from oncurve.config import load_config
from oncurve.evaluate import evaluate_policy
from oncurve.model import ModelSettings, fresh_embedded_policy, load_policy
from oncurve.rollout import TorchEngine
from oncurve.tasks import TaskSettings, guessed_example, load_tasks, worked_example
from oncurve.train.supervised import warm_start
from oncurve.verify import Item, Scorer

SHORT = ("--sft.steps", "6", "--sft.batch_size", "8", "--learner.micro_batch_tokens", "4096")


def test_the_loss_falls() -> None:
    config = load_config(None, list(SHORT))
    losses = [loss for _, loss in warm_start(config, fresh_embedded_policy(0))]
    assert len(losses) == 6
    assert losses[-1] < losses[0]


def test_guesses_are_right_in_form_and_use_each_number_once() -> None:
    for task in load_tasks(TaskSettings(), seed=0).train[:50]:
        guess = guessed_example(task, seed=0)
        assert guess.startswith("<think>guess</think><answer>")
        answer = guess.removeprefix("<think>guess</think><answer>").removesuffix("</answer>")
        numbers = [int(number) for number in answer.replace("-", "+").split("+")]
        assert Counter(numbers) == Counter(task.meta["numbers"])
        assert guess == guessed_example(task, seed=0)


def test_guesses_are_right_by_luck_only_and_worked_examples_always() -> None:
    tasks = load_tasks(TaskSettings(), seed=0).train[:200]
    with Scorer(load_config(None).reward) as scorer:
        guessed = scorer.score([Item(task=task, text=guessed_example(task, seed=0)) for task in tasks])
        worked = scorer.score([Item(task=task, text=worked_example(task)) for task in tasks])
    assert all(verdict.status == "correct" for verdict in worked)
    # Two free signs, each order equally likely: about one sign pattern in four fits the target.
    assert 0.1 < sum(verdict.status == "correct" for verdict in guessed) / 200 < 0.4


def test_the_share_of_guesses_is_what_the_setting_says(monkeypatch) -> None:
    seen: list[str] = []
    config = load_config(None, ["--sft.steps", "4", "--sft.batch_size", "50", "--sft.guess_frac", "0.3"])
    policy = fresh_embedded_policy(0)
    encode = policy.tokenizer.encode
    monkeypatch.setattr(policy.tokenizer, "encode", lambda text, **words: seen.append(text) or encode(text, **words))
    for _ in warm_start(config, policy):
        pass
    completions = [text for text in seen if text.startswith("<think>")]
    assert len(completions) == 4 * 50
    # 200 draws at 0.3: standard deviation 0.032, so 0.2 to 0.4 is three of them.
    assert 0.2 < sum("guess" in text for text in completions) / 200 < 0.4


def test_a_source_without_worked_examples_says_so(tmp_path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f'{{"prompt": "{n}+1=", "answer": "{n + 1}"}}\n' for n in range(40)))
    config = load_config(None, list(SHORT)).model_copy(update={"tasks": TaskSettings(path=path)})
    with pytest.raises(ValueError, match="has no worked example: only generated sources"):
        next(warm_start(config, fresh_embedded_policy(0)))


def test_the_shipped_model_is_what_the_documents_say() -> None:
    config = load_config(None)
    policy = load_policy(ModelSettings(path="embedded"), seed=0)
    assert 0.5e6 < sum(parameter.numel() for parameter in policy.model.parameters()) < 3e6
    with Scorer(config.reward) as scorer:
        examined = evaluate_policy(
            TorchEngine(policy, max_rows=256),
            scorer,
            load_tasks(config.tasks, seed=0).held_out[:128],
            policy.encode_prompt,
            sampling=config.rollout.sampling,
            num_samples=2,
            k=2,
            seed=0,
            step=0,
        )
    assert 0.05 < examined.greedy < 0.3  # it guesses
    assert examined.pass_at_k is not None
    assert examined.pass_at_k > examined.greedy  # it knows more than it does
    assert examined.truncated_frac < 0.02
