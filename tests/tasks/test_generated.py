"""Generated sources: solvable, true, disjoint, and different for every seed."""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations, product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from oncurve.tasks import SOURCES, UNBOUNDED, GeneratedTasks, TaskSettings, load_tasks, worked_example
from oncurve.tasks.countdown import CountdownOptions, countdown, expression, left_to_right
from oncurve.tasks.generated import distinct
from oncurve.tasks.language import NumberListOptions, largest
from oncurve.types import ConfigError, DataError, Message, Task

CHARACTERS = set("0123456789+-*/=()., :;?!abcdefghijklmnopqrstuvwxyz\n")
SIMPLE = ["countdown", "largest", "count_even", "sum", "next_term", "letter_count"]
OPTIONS = st.builds(
    CountdownOptions,
    num_numbers=st.integers(2, 4),
    max_number=st.integers(2, 30),
    operators=st.sets(st.sampled_from("+-*/"), min_size=1).map(lambda found: "".join(sorted(found))),
    max_result=st.sampled_from([30, 99, 500]),
)


def values_by_precedence(numbers: tuple[int, ...], operators: tuple[str, ...]) -> Iterator[Fraction]:
    """Every value that brackets can give to this order of numbers and operators."""
    if not operators:
        yield Fraction(numbers[0])
    for cut, operator in enumerate(operators):
        for left in values_by_precedence(numbers[: cut + 1], operators[:cut]):
            for right in values_by_precedence(numbers[cut + 1 :], operators[cut + 1 :]):
                if operator == "+":
                    yield left + right
                elif operator == "-":
                    yield left - right
                elif operator == "*":
                    yield left * right
                elif right != 0:
                    yield left / right


def is_solvable(numbers: tuple[int, ...], target: int, operators: str) -> bool:
    return any(
        target in values_by_precedence(order, signs)
        for order in set(permutations(numbers))
        for signs in product(operators, repeat=len(numbers) - 1)
    )


@given(OPTIONS, st.integers(0, 2**64 - 1))
def test_a_countdown_gold_reaches_its_target_with_each_number_once(options: CountdownOptions, seed: int) -> None:
    try:
        problem = countdown(Random(seed), options)
    except ConfigError:  # four numbers multiplied rarely stay within 30
        return
    numbers, target = problem.meta["numbers"], problem.meta["target"]
    # Python reads the gold with its own precedence: a second opinion on where brackets are needed.
    assert eval(re.sub(r"\d+", r"Fraction(\g<0>)", problem.gold)) == target
    assert sorted(map(int, re.findall(r"\d+", problem.gold))) == sorted(numbers)
    assert set(re.findall(r"[-+*/]", problem.gold)) <= set(options.operators)
    assert 0 <= target <= options.max_result
    assert len(numbers) == options.num_numbers
    assert all(1 <= number <= options.max_number for number in numbers)


@settings(max_examples=40)
@given(st.integers(0, 2**64 - 1))
def test_a_search_over_all_expressions_finds_every_countdown_solvable(seed: int) -> None:
    problem = countdown(Random(seed), CountdownOptions(num_numbers=3, operators="+-*/"))
    assert is_solvable(problem.meta["numbers"], problem.meta["target"], "+-*/")


def test_brackets_stand_only_where_precedence_would_change_the_value() -> None:
    assert expression([4, 5, 2], ["+", "+"]) == "4+5+2"
    assert expression([4, 5, 2], ["*", "-"]) == "4*5-2"
    assert expression([4, 5, 2], ["-", "*"]) == "(4-5)*2"
    assert expression([8, 2, 1, 3, 3], ["/", "-", "*", "/"]) == "(8/2-1)*3/3"
    assert expression([1, 2, 3, 4, 5], ["+", "*", "-", "*"]) == "((1+2)*3-4)*5"


def test_results_on_the_way_stay_whole_and_in_range() -> None:
    assert left_to_right([4, 5, 2], ["+", "-"], max_result=9) == [9, 7]
    assert left_to_right([4, 5, 2], ["+", "-"], max_result=8) is None
    assert left_to_right([4, 5, 2], ["-", "+"]) is None  # 4 - 5 = -1
    assert left_to_right([5, 2], ["/"]) is None
    assert left_to_right([6, 2], ["/"]) == [3]
    assert left_to_right([2, 2], ["-"], max_result=9) == [0]
    assert left_to_right([6, 0], ["/"]) is None


def test_a_worked_example_shows_true_steps() -> None:
    task = Task(
        id="t",
        prompt="4,5,2:11=",
        gold="(4+5)*2-7",
        kind="countdown",
        verifier="countdown",
        meta={"generator": "countdown", "answer_format": "tag"},
    )
    assert worked_example(task) == "<think>4+5=9;9*2=18;18-7=11</think><answer>(4+5)*2-7</answer>"


@given(st.integers(0, 10_000))
def test_each_step_of_a_worked_countdown_is_true_and_leads_to_the_target(index: int) -> None:
    tasks = GeneratedTasks(TaskSettings(options={"operators": "+-*/"}), seed=3, split="train")
    task = tasks[index]
    steps = worked_example(task).removeprefix("<think>").partition("</think>")[0].split(";")
    totals = []
    for step in steps:
        left, _, right = step.partition("=")
        assert Fraction(eval(left.replace("/", "*Fraction(1,") + (")" if "/" in left else ""))) == int(right)
        totals.append(right)
    assert [re.match(r"\d+", step).group() for step in steps[1:]] == totals[:-1]
    assert int(totals[-1]) == task.meta["target"]
    assert len(steps) == 2
    assert worked_example(task).endswith(f"</think><answer>{task.gold}</answer>")


def test_the_compact_prompt_fits_the_character_model() -> None:
    task = load_tasks(TaskSettings(), seed=0).train[5]
    numbers = ",".join(map(str, task.meta["numbers"]))
    assert task.prompt == f"{numbers}:{task.meta['target']}="
    assert set(task.prompt) | set(task.gold) <= CHARACTERS
    assert (task.kind, task.verifier, task.split) == ("countdown", "countdown", "train")


def test_numbers_are_shown_in_an_order_that_does_not_give_the_gold_away() -> None:
    tasks = GeneratedTasks(TaskSettings(options={"max_number": 1000, "max_result": 10_000}), seed=0, split="train")
    in_order = sum(tuple(map(int, re.findall(r"\d+", task.gold))) == task.meta["numbers"] for task in tasks[:600])
    assert 60 <= in_order <= 140  # 1 of the 3! orders: 100 expected, standard deviation 9.1


def test_countdown_difficulty_counts_steps_and_those_that_are_no_addition() -> None:
    for task in GeneratedTasks(TaskSettings(), seed=0, split="train")[:50]:
        assert task.difficulty == 2 + task.gold.count("-")


def test_options_that_leave_no_problem_are_named() -> None:
    with pytest.raises(ConfigError, match="Raise max_result"):
        countdown(Random(0), CountdownOptions(num_numbers=8, max_number=1000, operators="*", max_result=1))


@pytest.mark.parametrize("source", SIMPLE)
def test_train_and_held_out_problems_are_disjoint_whatever_the_seeds(source: str) -> None:
    config = TaskSettings(source=source)
    trained = {task.id for seed in (0, 1) for task in load_tasks(config, seed=seed).train[:1500]}
    held_out = {task.id for seed in (0, 1, 2) for task in load_tasks(config, seed=seed).held_out}
    assert not trained & held_out


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 10**9), st.floats(0.01, 0.5), st.integers(2, 4))
def test_one_problem_never_falls_into_both_splits(first: int, second: int, fraction: float, num_numbers: int) -> None:
    config = TaskSettings(options={"num_numbers": num_numbers, "max_number": 9}, held_out_fraction=fraction)
    train = {_content(task) for task in GeneratedTasks(config, seed=first, split="train")[:60]}
    held_out = {_content(task) for task in GeneratedTasks(config, seed=second, split="held_out")[:60]}
    assert not train & held_out


def _content(task: Task) -> tuple[object, ...]:
    return (tuple(sorted(task.meta["numbers"])), task.meta["target"])


def test_neighbouring_seeds_share_no_more_than_chance() -> None:
    config = TaskSettings(options={"num_numbers": 5, "max_number": 999, "max_result": 5000})
    first, second = ({_content(task) for task in load_tasks(config, seed=seed).train[:500]} for seed in (42, 43))
    # About 999**5 / 5! problems, 8e12: an expected 500 * 500 / 8e12 common ones. With seed + index it would be 499.
    assert not first & second
    held = [{task.id for task in load_tasks(config, seed=seed).held_out} for seed in (42, 43)]
    assert not held[0] & held[1]


def test_a_held_out_seed_examines_runs_of_all_seeds_on_the_same_problems() -> None:
    config = TaskSettings(held_out_seed=7)
    assert load_tasks(config, seed=0).held_out == load_tasks(config, seed=1).held_out
    assert load_tasks(config, seed=0).train[:5] != load_tasks(config, seed=1).train[:5]


def test_an_endless_source_gives_any_index_alone() -> None:
    tasks = load_tasks(TaskSettings(), seed=5).train
    assert len(tasks) == UNBOUNDED
    assert tasks[10**12] == load_tasks(TaskSettings(), seed=5).train[10**12]
    assert tasks[3:6] == (tasks[3], tasks[4], tasks[5])
    with pytest.raises(IndexError):
        tasks[-1]


def test_a_fixed_pool_has_exactly_the_asked_different_problems() -> None:
    tasks = load_tasks(TaskSettings(num_train=300, num_held_out=40), seed=0)
    assert tasks.num_train == len(tasks.train) == len({task.id for task in tasks.train}) == 300
    assert len(tasks.held_out) == len({task.id for task in tasks.held_out}) == 40
    assert {task.split for task in tasks.train} == {"train"}
    assert {task.split for task in tasks.held_out} == {"held_out"}


def test_too_few_different_problems_name_what_there_is() -> None:
    # Numbers 1 and 2, one addition: the problems are 1+1, 1+2 and 2+2.
    options = {"num_numbers": 2, "max_number": 2, "operators": "+"}
    with pytest.raises(DataError, match=r"num_train asks for 10 different problems, .* leave only [123]\b"):
        load_tasks(TaskSettings(options=options, num_train=10, held_out_fraction=0.5), seed=0)
    with pytest.raises(DataError, match="num_held_out asks for 50"):
        load_tasks(TaskSettings(options=options, num_held_out=50, held_out_fraction=0.5), seed=0)


def test_a_small_source_holds_out_all_it_can_by_default() -> None:
    tasks = load_tasks(TaskSettings(source="letter_count"), seed=0)
    assert 50 < len(tasks.held_out) < 256
    (note,) = tasks.notes
    assert note.kind == "duplicate"
    assert str(note.count) in note.text


@pytest.mark.parametrize("source", SIMPLE[1:])
def test_language_questions_have_the_answer_that_python_finds(source: str) -> None:
    expected = {
        "largest": lambda task: sorted(map(int, re.findall(r"\d+", _question(task))))[-1],
        "count_even": lambda task: len(re.findall(r"\d*[02468]\b", _question(task))),
        "sum": lambda task: eval(_question(task).removeprefix("What is ").removesuffix("?")),
        "next_term": lambda task: 2 * _numbers(task)[-1] - _numbers(task)[-2],
        "letter_count": lambda task: len(re.findall(re.findall('"(.+?)"', _question(task))[0], task.meta["word"])),
    }
    for task in load_tasks(TaskSettings(source=source), seed=1).train[:200]:
        assert task.gold == str(expected[source](task)), task
        assert task.verifier == "answer"
        assert task.kind == source


def _question(task: Task) -> str:
    return task.prompt[-1].content.splitlines()[0]


def _numbers(task: Task) -> list[int]:
    return list(map(int, re.findall(r"\d+", _question(task))))


def test_lists_of_numbers_are_one_problem_in_any_order_and_reach_both_ends() -> None:
    options = NumberListOptions(num_numbers=2, min_number=10, max_number=12)
    assert {largest(Random(seed), options).canonical for seed in range(100)} == {"10, 11", "10, 12", "11, 12"}


def test_the_search_for_different_problems_ends_after_200_fruitless_draws_in_a_row() -> None:
    def tasks(order: list[int]) -> list[Task]:
        return [Task(id=str(index), prompt="", gold="1", kind="toy", verifier="answer") for index in order]

    found, repeats = distinct(tasks([0] * 150 + [1] + [0] * 150 + [2]), 3)
    assert ([task.id for task in found], repeats) == (["0", "1", "2"], 299)
    assert len(distinct(tasks([0] * 201 + [1]), 2)[0]) == 1
    assert len(distinct(tasks([0] * 200 + [1]), 2)[0]) == 2


def test_letter_counting_is_not_always_one() -> None:
    golds = [task.gold for task in load_tasks(TaskSettings(source="letter_count"), seed=1).train[:500]]
    assert golds.count("1") < 350


def test_the_reasoning_of_worked_examples_is_true() -> None:
    def task(generator: str, gold: str, **meta: object) -> Task:
        return Task(
            id="t",
            prompt="",
            gold=gold,
            kind=generator,
            verifier="answer",
            meta={"generator": generator, "answer_format": "last_line", **meta},
        )

    assert worked_example(task("largest", "71", numbers=(31, 71, 12))) == "71 > 31, 71 > 12\n71"
    assert worked_example(task("count_even", "2", numbers=(30, 71, 12))) == "Even: 30, 12\n2"
    assert worked_example(task("count_even", "0", numbers=(31, 71))) == "None is even\n0"
    assert worked_example(task("sum", "114", numbers=(31, 71, 12))) == "31 + 71 = 102, 102 + 12 = 114\n114"
    assert worked_example(task("next_term", "11", numbers=(3, 5, 7, 9))) == "9 - 7 = 2, 9 + 2 = 11\n11"
    assert worked_example(task("letter_count", "2", word="sees", letter="e")) == "s, e yes, e yes, s\n2"


@pytest.mark.parametrize(
    ("answer_format", "place"),
    [("tag", "</think><answer>{}</answer>"), ("box", "\n\\boxed{{{}}}"), ("hash", "\n#### {}"), ("last_line", "\n{}")],
)
def test_the_prompt_asks_for_the_answer_where_the_worked_example_puts_it(answer_format: str, place: str) -> None:
    task = load_tasks(TaskSettings(source="largest", answer_format=answer_format), seed=0).train[0]
    asked = {"tag": "<answer></answer>", "box": r"\boxed{}", "hash": "####", "last_line": "last line"}
    assert asked[answer_format] in task.prompt[-1].content
    assert worked_example(task).endswith(place.format(task.gold))
    assert task.meta["answer_format"] == answer_format


def test_a_chat_prompt_has_its_system_message_and_template() -> None:
    config = TaskSettings(
        source="sum",
        system_prompt="Think first.",
        prompt_template="Q: {prompt} (a set is {1})",
        options={"num_numbers": 2},
    )
    system, user = load_tasks(config, seed=0).train[0].prompt
    assert system == Message(role="system", content="Think first.")
    assert re.fullmatch(r"Q: What is \d\d \+ \d\d\?\n.*<answer></answer>\. \(a set is \{1\}\)", user.content)


def test_examples_are_turns_before_the_question_phrased_like_it() -> None:
    example = {"question": "What is 10 + 11?", "answer": "<answer>21</answer>"}
    config = TaskSettings(source="sum", examples=[example], system_prompt="Add.", prompt_template="Q: {prompt}")
    system, asked, answered, user = load_tasks(config, seed=0).train[0].prompt
    assert [turn.role for turn in (system, asked, answered, user)] == ["system", "user", "assistant", "user"]
    assert asked.content.startswith("Q: What is 10 + 11?\n")
    assert asked.content.partition("\n")[2] == user.content.partition("\n")[2]  # the same sentence on where to answer
    assert answered.content == "<answer>21</answer>"


def test_countdown_can_be_asked_in_words() -> None:
    task = load_tasks(TaskSettings(prompt_style="text"), seed=0).train[0]
    first, second, third = task.meta["numbers"]
    assert isinstance(task.prompt, str)
    assert f"{first}, {second} and {third}" in task.prompt
    assert f"equals {task.meta['target']}." in task.prompt
    assert task.prompt.endswith("<answer></answer>.")
    (message,) = load_tasks(TaskSettings(prompt_style="chat"), seed=0).train[0].prompt
    assert message == Message(role="user", content=task.prompt)


def test_the_verifier_can_be_chosen() -> None:
    assert load_tasks(TaskSettings(source="sum", verifier="mine"), seed=0).train[0].verifier == "mine"


def test_reasoning_gym_items_are_seeded_by_the_hash_and_carry_the_answer() -> None:
    pytest.importorskip("reasoning_gym")
    config = TaskSettings(
        source="reasoning_gym",
        options={"dataset": "chain_sum", "params": {"min_terms": 6, "max_terms": 6, "min_digits": 4}},
        num_held_out=20,
    )
    first, second = (load_tasks(config, seed=seed) for seed in (42, 43))
    assert not {task.id for task in first.train[:300]} & {task.id for task in second.train[:300]}
    for task in first.train[:20]:
        sums = re.search(r"problem: ([-+ \d]+) =", task.prompt[-1].content).group(1)
        assert len(re.findall(r"\d+", sums)) == 6
        assert eval(sums) == int(task.gold)
        assert (task.kind, task.verifier) == ("chain_sum", "answer")
    with pytest.raises(ValueError, match="no worked example"):
        worked_example(first.train[0])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"dataset": "chain_sums"}, ConfigError, "Did you mean chain_sum"),
        ({"dataset": "chain_sum", "params": {"terms": 3}}, ConfigError, "chain_sum refuses .*terms"),
        ({"dataset": "chain_sum", "params": {"min_terms": 0}}, ConfigError, "min_terms must be positive"),
        ({"dataset": "graph_color"}, DataError, "states no single answer"),
    ],
)
def test_reasoning_gym_mistakes_are_named(options: dict[str, object], error: type[Exception], message: str) -> None:
    pytest.importorskip("reasoning_gym")
    with pytest.raises(error, match=message):
        load_tasks(TaskSettings(source="reasoning_gym", options=options), seed=0)


def test_a_missing_reasoning_gym_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "reasoning_gym.factory", None)
    with pytest.raises(ConfigError, match=r"pip install 'oncurve\[tasks\]'"):
        load_tasks(TaskSettings(source="reasoning_gym", options={"dataset": "chain_sum"}), seed=0)


@pytest.mark.parametrize(
    ("given_settings", "message"),
    [
        ({"source": "countdwn"}, "Did you mean countdown"),
        ({"source": "data.jsonl"}, "For a file, set path"),
        ({"source": "file"}, "needs path"),
        ({"options": {"num_numbrs": 3}}, "countdown has no option num_numbrs. Did you mean num_numbers"),
        ({"options": {"num_numbers": 1}}, "option num_numbers: .*greater than or equal to 2, got 1"),
        ({"options": {"operators": "+%"}}, "option operators"),
        ({"options": {"operators": "++"}}, "each operator stands once"),
        ({"source": "largest", "options": {"min_number": 10, "max_number": 12}}, "holds 3 numbers, too few"),
        ({"source": "letter_count", "options": {"min_length": 10, "max_length": 9}}, "no word has 10 to 9 letters"),
        ({"source": "reasoning_gym"}, "reasoning_gym needs the option dataset"),
        ({"source": "reasoning_gym", "options": {"dataset": "gcd", "params": {"seed": 1}}}, "seed cannot be set"),
        ({"source": "file", "path": "a.jsonl", "options": {"max_number": 3}}, "a file has none"),
        ({"source": "sum", "path": "a.jsonl"}, "path is for source = 'file', but source is 'sum'"),
        ({"gold_format": "box"}, "gold_format is for source = 'file'"),
        ({"source": "sum", "prompt_style": "compact"}, "does not exist for sum"),
        ({"path": "a.jsonl", "prompt_style": "compact"}, "exists for countdown, files and database only"),
        ({"path": "a.jsonl", "held_out_seed": 1}, "a file is split by a hash"),
        ({"path": "a.jsonl", "verifier": "code", "gold_format": "hash"}, "taken whole: remove gold_format"),
        ({"answer_format": "box"}, "has no effect"),
        ({"system_prompt": "Hi."}, "Set prompt_style = 'chat'"),
        (
            {"examples": [{"question": "1,1:2=", "answer": "1+1"}]},
            "examples are turns of a chat, but prompts are compact",
        ),
        ({"prompt_template": "Q: {question}"}, "holds {prompt}"),
        ({"num_train": 1}, "greater than or equal to 2"),
    ],
)
def test_settings_refuse_what_would_have_no_effect(given_settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TaskSettings(**given_settings)


def test_settings_are_recorded_whole_and_read_back_equal() -> None:
    config = TaskSettings(options={"max_number": 15})
    assert config.options == {"num_numbers": 3, "max_number": 15, "operators": "+-", "max_result": 99}
    assert TaskSettings.model_validate(config.model_dump(mode="json", exclude_none=True)) == config
    file = TaskSettings(path="x.jsonl")
    assert file.source == "file"
    assert TaskSettings.model_validate(file.model_dump(mode="json", exclude_none=True)) == file


def test_every_source_is_registered_under_its_name() -> None:
    assert list(SOURCES) == [*SIMPLE, "files", "database", "mini_code", "human_eval", "reasoning_gym"]
    assert all(name == source.name for name, source in SOURCES.items())
