"""Episodes with tools: exact ids and log-probs, seeds, limits, and rewards for deeds alone.

The policy is replaced where a test needs certain words: an engine that says what it is told, token by token.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from oncurve.model import Policy, fresh_embedded_policy
from oncurve.rollout import (
    Announce,
    Collector,
    Request,
    RolloutSettings,
    ToolEngine,
    ToolSettings,
    TorchEngine,
    encode_episode,
)
from oncurve.rollout.dialogue import frame_of
from oncurve.tasks import TaskSettings, load_tasks
from oncurve.types import Completion, FinishReason, Message, ModelError, Sampling, Status, Task, derive_seed, weave
from oncurve.verify import Item, RewardSettings, Scorer
from oncurve.verify.environments import Answer, Stage, environment_of

SAMPLING = Sampling(max_tokens=60)
START = {"k": "47", "z": "5"}


def task(goal: dict[str, str] | None = None, *, prompt: str = "copy k to m\n", **more: object) -> Task:
    environment = {"name": "files", "start": START, "goal": goal or {**START, "m": "47"}, **more}
    return Task(
        id="t", prompt=prompt, gold="[]", kind="files", verifier="environment", meta={"environment": environment}
    )


class Scripted:
    """Samples given texts, one a turn, cut at the stop text and the budget like any engine; log-probs count up."""

    def __init__(self, policy: Policy, *turns: str) -> None:
        self.policy = policy
        self.turns = turns
        self.asked: list[Request] = []

    def seconds(self) -> dict[str, float]:
        return {"prefill": 0.5, "decode": 0.25}

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        policy_version: int,
        on_completion: Announce | None = None,
    ) -> list[Completion]:
        completions = []
        for place, request in enumerate(requests):
            text = self.turns[len([one for one in self.asked if one.index == request.index])]
            ids = self.policy.tokenizer.encode(text, add_special_tokens=False)
            self.asked.append(request)
            end = next((n + 1 for n, i in enumerate(ids) if self.policy.spell([[i]])[0] in request.stop), len(ids))
            ids = ids[: min(end, request.max_tokens or sampling.max_tokens)]
            is_stopped = ids[-1] in self.policy.terminators or self.policy.spell([ids])[0].endswith(";")
            completions.append(
                Completion(
                    task_id=request.task_id,
                    index=request.index,
                    prompt_ids=request.prompt_ids,
                    token_ids=tuple(ids),
                    old_logprobs=tuple(-float(place) for place in range(len(ids))),
                    policy_version=policy_version,
                    finish_reason=FinishReason.STOP if is_stopped else FinishReason.LENGTH,
                    sampling=sampling,
                    text=self.policy.decode(ids),
                )
            )
            if on_completion is not None:
                on_completion(place, completions[-1])
        return completions


def request_of(policy: Policy, one: Task, *, index: int = 0) -> Request:
    return Request(
        task_id=one.id,
        index=index,
        prompt_ids=policy.encode_prompt(one.prompt),
        seed=derive_seed("tools", index),
        environment=environment_of(one),
    )


def say(
    *turns: str, one: Task | None = None, sampling: Sampling = SAMPLING, max_turns: int = 6, context: int = 128
) -> Completion:
    policy = fresh_embedded_policy(0, width=16, num_layers=1, num_heads=1)
    policy.context_length = context
    with ToolEngine(Scripted(policy, *turns), policy, ToolSettings(max_turns=max_turns)) as engine:
        (done,) = engine.generate([request_of(policy, one or task())], sampling, policy_version=3)
    return done


def test_a_job_that_needs_an_answer_is_done_and_its_book_keeping_is_exact():
    done = say("!read k;", "!write m,47;", "<end>")
    encode = fresh_embedded_policy(0, width=16, num_layers=1, num_heads=1).tokenizer.encode
    assert done.token_ids == tuple(encode("!read k;!write m,47;<end>"))
    assert [(part.after, part.token_ids) for part in done.inserted] == [
        (8, tuple(encode(":47\n"))),
        (20, tuple(encode(":ok\n"))),
    ]
    assert weave(done.token_ids, done.inserted).token_ids == tuple(encode("!read k;:47\n!write m,47;:ok\n<end>"))
    assert done.old_logprobs == (*map(float, range(0, -8, -1)), *map(float, range(0, -12, -1)), 0.0)
    assert (done.text, done.policy_version, done.finish_reason) == ("!read k;!write m,47;", 3, FinishReason.STOP)
    assert [part.after_chars for part in done.inserted] == [8, 20]
    assert done.episode is not None
    assert (done.episode.status, done.episode.num_calls, done.episode.num_errors) == (Status.CORRECT, 2, 0)


@pytest.mark.parametrize(
    "turns",
    [
        ("!write m,47<end>",),  # never closed
        ("write m,47;", "<end>"),  # no call
        ("<think>!write m,47</think><answer>done</answer><end>",),
        (":ok\n!done<end>",),  # the environment's answer, made up
        ("!write m,47!list;", "<end>"),  # a call inside a call: the last one counts
        ("!write n,47;", "<end>"),
        ("!write m,47;", "!delete z;", "<end>"),  # what must not change has changed
        ("<end>",),
    ],
)
def test_what_is_only_written_is_worth_nothing(turns):
    done = say(*turns)
    one = task()
    with Scorer(RewardSettings()) as scorer:
        (verdict,) = scorer.score([Item.of(one, done)])
    assert (verdict.status, verdict.reward) == (Status.WRONG, 0.0)


def test_the_text_of_a_right_episode_is_worth_nothing_without_the_deed():
    done = say("!read k;", "!write m,47;", "<end>")
    with Scorer(RewardSettings()) as scorer:
        paid, unpaid = scorer.score([Item.of(task(), done), Item.of(task(), replace(done, episode=None))])
        cheated = say("!read k;!write m,47;", "<end>")  # the stop text cuts after the first call
        (verdict,) = scorer.score([Item.of(task(), cheated)])
    assert paid.reward == 1.0
    assert (unpaid.reward, unpaid.cause) == (None, "no_episode")
    assert verdict.reward == 0.0


def test_errors_are_answered_and_counted():
    done = say("!read q;", "!fly;", "hm;", "!move k;", "<end>", context=1000)
    texts = [part.text for part in done.inserted]
    assert texts[0] == ":error: no file q\n"
    assert texts[3] == ":error: move takes 2 arguments, got 1\n"
    assert all(text.startswith(":error: no ") and text.endswith("\n") for text in texts[:3])
    assert done.episode is not None
    assert (done.episode.num_calls, done.episode.num_errors) == (4, 4)


def test_the_last_turn_is_carried_out_and_not_answered():
    done = say("!read k;", "!write m,47;", max_turns=2)
    assert done.episode is not None
    assert done.episode.status is Status.CORRECT
    assert len(done.inserted) == 1
    assert done.is_truncated
    assert done.token_ids[-1] == fresh_embedded_policy(0).tokenizer.encode(";")[0]


@pytest.mark.parametrize(("max_tokens", "turns"), [(8, 1), (9, 2), (20, 2), (21, 3)])
def test_the_budget_counts_sampled_tokens_of_all_turns(max_tokens, turns):
    done = say("!read k;", "!write m,47;", "<end>", sampling=Sampling(max_tokens=max_tokens))
    assert len(done.token_ids) == min(max_tokens, 21)
    assert len(done.inserted) == turns - 1
    assert done.is_truncated is (max_tokens < 21)


def test_an_answer_that_leaves_no_room_ends_the_episode():
    # 128 positions: a prompt of 12, a call of 8 and an answer of 2 + 105 leave one; with 106 nothing would be left.
    for size, num_inserted in ((105, 1), (106, 0)):
        start = {"k": "5" * size}
        done = say("!read k;", "<end>", one=replace(task(start, start=start), prompt="copy k to m\n"))
        assert len(done.inserted) == num_inserted
        assert done.is_truncated is (num_inserted == 0)


def test_special_tokens_in_an_answer_are_plain_text():
    start = {"k": "5<end>6"}
    done = say("!read k;", "<end>", one=task(start, start=start))
    end = fresh_embedded_policy(0).tokenizer.eos_token_id
    assert end not in done.inserted[0].token_ids
    assert done.token_ids[-1] == end


def test_a_turn_is_asked_for_with_a_seed_of_its_own_and_the_ids_so_far():
    policy = fresh_embedded_policy(0, width=16, num_layers=1, num_heads=1)
    script = Scripted(policy, "!list;", "!list;", "<end>")
    with ToolEngine(script, policy, ToolSettings()) as engine:
        engine.generate([request_of(policy, task())], SAMPLING, policy_version=0)
    seed = derive_seed("tools", 0)
    assert [one.seed for one in script.asked] == [seed, derive_seed("turn", seed, 1), derive_seed("turn", seed, 2)]
    encode = policy.tokenizer.encode
    assert script.asked[1].prompt_ids == tuple(encode("copy k to m\n!list;:k\nz\n"))
    assert [one.max_tokens for one in script.asked] == [60, 54, 48]
    assert {one.stop for one in script.asked} == {(";",)}


def test_plain_requests_pass_through_in_place():
    policy = fresh_embedded_policy(0, width=16, num_layers=1, num_heads=1)
    plain = [replace(request_of(policy, task(), index=index), environment=None) for index in (1, 2)]
    below = TorchEngine(policy, max_rows=8)
    with ToolEngine(below, policy, ToolSettings()) as engine:
        mixed = engine.generate([plain[0], request_of(policy, task()), plain[1]], SAMPLING, policy_version=0)
    alone = below.generate(plain, SAMPLING, policy_version=0)
    assert [mixed[0].token_ids, mixed[2].token_ids] == [done.token_ids for done in alone]
    assert mixed[0].episode is None
    assert mixed[1].episode is not None


def willing(seed: int = 0) -> Policy:
    """Random weights that say ``;`` and ``!`` often, so that calls, broken ones mostly, are closed all the time."""
    policy = fresh_embedded_policy(seed)
    weight = policy.model.transformer.wte.weight
    with torch.no_grad():
        for mark, logit in ((";", 2.5), ("!", 2.0)):
            row = weight[policy.tokenizer.convert_tokens_to_ids(mark)]
            policy.model.transformer.ln_f.bias += logit * row / (row @ row)
    return policy


def rows(policy: Policy, count: int) -> list[Request]:
    return [request_of(policy, task(), index=index) for index in range(count)]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_of_every_turn_are_those_of_one_full_pass(temperature):
    policy = willing()
    sampling = Sampling(max_tokens=40, temperature=temperature)
    with ToolEngine(TorchEngine(policy, max_rows=16), policy, ToolSettings(max_turns=4)) as engine:
        completions = engine.generate(rows(policy, 12), sampling, policy_version=0)
    assert sum(len(done.inserted) >= 2 for done in completions) >= 3
    for done in completions:
        woven = weave(done.token_ids, done.inserted)
        ids = torch.tensor([done.prompt_ids + woven.token_ids])
        with torch.no_grad():
            logits = policy.model(input_ids=ids).logits[0, len(done.prompt_ids) - 1 : -1].float() / temperature
        expected = logits.log_softmax(-1).gather(1, ids[0, len(done.prompt_ids) :, None]).squeeze(1)
        expected = expected[torch.tensor(woven.is_sampled)]
        torch.testing.assert_close(torch.tensor(done.old_logprobs), expected, atol=1e-4, rtol=0)


def test_the_other_requests_change_nothing():
    policy, sampling = willing(), Sampling(max_tokens=40)
    with ToolEngine(TorchEngine(policy, max_rows=16), policy, ToolSettings(max_turns=4)) as engine:
        together = engine.generate(rows(policy, 8), sampling, policy_version=0)
        for place in (5, 2):
            (alone,) = engine.generate([rows(policy, 8)[place]], sampling, policy_version=0)
            assert alone.token_ids == together[place].token_ids
            assert alone.inserted == together[place].inserted
            assert alone.episode == together[place].episode


def test_a_stop_text_ends_a_row_at_the_token_that_completes_it():
    policy = willing()
    asked = [replace(one, environment=None) for one in rows(policy, 20)]
    free = TorchEngine(policy, max_rows=7).generate(asked, SAMPLING, policy_version=0)
    stopped = TorchEngine(policy, max_rows=7).generate(
        [replace(one, stop=("!;", ";;")) for one in asked], SAMPLING, policy_version=0
    )
    num_hits = 0
    for whole, cut in zip(free, stopped, strict=True):
        text = policy.spell([whole.token_ids])[0]
        places = [place for place in (text.find("!;"), text.find(";;")) if place >= 0]
        if places and not text.startswith("<"):
            num_hits += 1
            assert policy.spell([cut.token_ids])[0] == text[: min(places) + 2]
            assert cut.finish_reason is FinishReason.STOP
        assert cut.token_ids == whole.token_ids[: len(cut.token_ids)]
    assert num_hits >= 3


def test_an_episode_is_announced_at_its_end_while_others_go_on():
    policy = fresh_embedded_policy(0, width=16, num_layers=1, num_heads=1)
    policy.context_length = 128
    announced: dict[int, Completion] = {}
    turns: list[int] = []

    class Short(Scripted):
        """Episodes of index 1 end at once; the other calls a tool first."""

        def generate(self, requests: Sequence[Request], sampling: Sampling, **more: object) -> list[Completion]:
            turns.append(len(announced))
            done = super().generate(requests, sampling, **more)
            return [replace(one, token_ids=(0,), old_logprobs=(0.0,)) if one.index == 1 else one for one in done]

    asked = [request_of(policy, task(), index=index) for index in (1, 7, 1)]
    with ToolEngine(Short(policy, "!read k;", "<end>"), policy, ToolSettings()) as engine:
        completions = engine.generate(asked, SAMPLING, policy_version=0, on_completion=announced.__setitem__)
    assert turns == [0, 0, 2]  # plain requests, then the two turns
    assert engine.seconds() == {"prefill": 1.5, "decode": 0.75}  # of three calls
    assert list(announced) == [0, 2, 1]
    assert [announced[place] for place in range(3)] == completions


def test_a_failing_environment_is_no_verdict_with_its_cause(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text(
        "import os, time\n"
        "class World:\n"
        "    def __init__(self, directory, limits): pass\n"
        "    def reset(self, start): pass\n"
        "    def call(self, name, arguments):\n"
        "        if name == 'die': os._exit(3)\n"
        "        if name == 'hang': time.sleep(60)\n"
        "        raise RuntimeError('ours')\n"
        "    def state(self): return {}\n"
    )
    tools = [{"name": name, "parameters": {"type": "object"}} for name in ("die", "hang", "fail")]
    one = task({"a": "b"}, name=f"{file}:World", tools=tools)
    policy = fresh_embedded_policy(0, width=16, num_layers=1, num_heads=1)
    for turn, cause in (("!die;", "crash"), ("!hang;", "timeout"), ("!fail;", "error")):
        script = Scripted(policy, turn, "<end>")
        with ToolEngine(script, policy, ToolSettings(timeout_s=1.0)) as engine:
            sound, broken = engine.generate(
                [request_of(policy, task(), index=1), request_of(policy, one)], SAMPLING, policy_version=0
            )
        assert broken.episode is not None
        assert sound.episode is not None
        assert (broken.episode.status, broken.episode.cause) == (Status.NO_VERDICT, cause)
        assert sound.episode.status is Status.WRONG  # the neighbour is judged


def test_a_group_is_collected_scored_and_described():
    policy = willing()
    settings = RolloutSettings(group_size=4, sampling=Sampling(max_tokens=30))
    engine = ToolEngine(TorchEngine(policy, max_rows=16), policy, settings.tools)
    with engine, Scorer(RewardSettings()) as scorer:
        rollout = Collector(policy, engine, scorer, settings, seed=0).collect([task()], policy_version=0)
    assert all(verdict.status is Status.WRONG for verdict in rollout.groups[0].verdicts)
    assert all(done.episode is not None for done in rollout.groups[0].completions)


@pytest.mark.parametrize("source", ["files", "database"])
def test_the_worked_episode_of_every_job_is_what_the_tools_answer(source):
    policy = fresh_embedded_policy(0, width=16, num_layers=1, num_heads=1)
    jobs = {"files": ["move", "copy", "add"], "database": ["set", "delete", "raise", "largest"]}[source]
    settings = TaskSettings(source=source, options={"jobs": jobs})
    kinds = set()
    stage = Stage()
    for one in load_tasks(settings, seed=0).train[:30]:
        token_ids, inserted = encode_episode(policy, one, stage, end=(0,))
        turns = [policy.spell([token_ids[a.after : b.after]])[0] for a, b in pairwise(inserted)]
        first = policy.spell([token_ids[: inserted[0].after]])[0]
        done = say(first, *turns, "<end>", one=one)
        assert done.episode is not None
        assert done.episode.status is Status.CORRECT
        assert done.inserted == inserted
        assert done.token_ids == token_ids
        assert policy.tokenizer.unk_token_id not in token_ids
        kinds.add(one.kind)
    stage.close()
    assert len(kinds) == len(jobs)


CHAT = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}[a]{% endif %}"
)


def test_in_a_chat_the_answer_is_a_turn_of_the_user():
    policy = fresh_embedded_policy(0, width=16, num_layers=1, num_heads=1)
    policy.tokenizer.chat_template = CHAT
    one = replace(task(), prompt=(Message(role="user", content="go"),))
    spec = environment_of(one)
    assert spec is not None
    assert spec.syntax == "hermes"
    encode = policy.tokenizer.encode
    frame = frame_of(policy, spec)
    assert frame.before == tuple(encode("<end>[user]<tool_response>\n"))
    assert frame.after == tuple(encode("\n</tool_response><end>[a]"))
    part = frame.around(policy, Answer("<end>", is_error=False), [1, 2])
    assert part.token_ids[len(frame.before) : -len(frame.after)] == policy.encode_foreign("<end>")
    assert part.after == 2


def test_a_template_that_loses_turns_is_refused():
    policy = fresh_embedded_policy(0, width=16, num_layers=1, num_heads=1)
    policy.tokenizer.chat_template = "{{ messages[-1].content }}"
    spec = environment_of(replace(task(), prompt=(Message(role="user", content="go"),)))
    assert spec is not None
    with pytest.raises(ModelError, match="environment's answer has no place"):
        frame_of(policy, spec)


def test_a_hermes_call_stops_at_its_closing_tag_and_is_carried_out():
    class Words(Scripted):
        """Says one token a character, of a vocabulary that knows all of them."""

    policy = fresh_embedded_policy(0, width=16, num_layers=1, num_heads=1)
    letters = [chr(code) for code in range(32, 127)] + ["\n"]
    policy.context_length = 1000
    policy.tokenizer.add_tokens([letter for letter in letters if letter not in policy.tokenizer.get_vocab()])
    call = json.dumps({"name": "write", "arguments": {"path": "m", "text": "47"}})
    script = Words(policy, f"I write. <tool_call>{call}</tool_call>", "<end>")
    script.generate = lambda requests, sampling, policy_version, on_completion=None: [  # type: ignore[method-assign]
        replace(done, finish_reason=FinishReason.STOP)
        for done in Scripted.generate(script, requests, sampling, policy_version=policy_version)
    ]
    with ToolEngine(script, policy, ToolSettings()) as engine:
        (done,) = engine.generate(
            [request_of(policy, task(syntax="hermes"))], Sampling(max_tokens=200), policy_version=0
        )
    assert {one.stop for one in script.asked} == {("</tool_call>",)}
    assert done.inserted[0].text == "\n<tool_response>\nok\n</tool_response>\n"
    assert done.episode is not None
    assert done.episode.status is Status.CORRECT


def test_the_code_of_the_page_runs():
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "tools.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) == 2
    scope: dict[str, object] = {}
    for block in blocks:
        exec(block, scope)
