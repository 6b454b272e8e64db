"""Problems from files: recognised, freed of duplicates, split without leaks, and refused with the row named."""

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.tasks import TaskSet, TaskSettings, load_tasks, preview, prompt_text
from oncurve.tasks.rows import last_boxed
from oncurve.types import DataError, Message, Task

DATA = Path(__file__).parent / "data"


def load(path: Path, **settings: object) -> TaskSet:
    return load_tasks(TaskSettings(path=path, **settings), seed=0)


def everything(tasks: TaskSet) -> dict[str, Task]:
    return {prompt_text(task.prompt): task for task in (*tasks.train, *tasks.held_out)}


def notes(tasks: TaskSet, kind: str) -> list[tuple[int, str]]:
    return [(note.count, note.text) for note in tasks.notes if note.kind == kind]


def write(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def sums(count: int, **extra: object) -> list[dict[str, object]]:
    return [{"prompt": f"What is {index} + 1?", "answer": str(index + 1), **extra} for index in range(count)]


# ---------------------------------------------------------------------------------------------------------- layouts


def test_trl_rows_take_numbers_as_written_and_keep_other_columns() -> None:
    tasks = load(DATA / "trl.jsonl")
    found = everything(tasks)
    assert len(found) == 8
    assert found["What is half of 9?"].gold == "9/2"
    assert found["Ina walks 2 km and then 5 km. How many km is that?"].gold == "7"
    assert found["What is 10 % of 45?"].gold == "4.5"
    task = found["How many legs do 6 spiders have?"]
    assert task.meta == {"topic": "legs", "where": f"{DATA / 'trl.jsonl'} line 5"}
    assert (task.kind, task.verifier, task.language) == ("trl", "answer", "en")
    ((count, text),) = notes(tasks, "unused_column")
    assert (count, "'topic'" in text) == (1, True)
    assert notes(tasks, "layout") == [(8, "trl.jsonl: 8 rows read as TRL, prompt from 'prompt', gold from 'answer'.")]


def test_gsm8k_gold_stands_after_the_hashes() -> None:
    tasks = load(DATA / "gsm8k.jsonl")
    assert sorted(task.gold for task in everything(tasks).values()) == ["12", "12", "2,500", "30", "36"]
    assert notes(tasks, "gold") == [(5, "gsm8k.jsonl: in 5 rows the gold is after #### of its column.")]


def test_math_gold_is_in_the_last_box_and_the_level_is_the_difficulty() -> None:
    found = everything(load(DATA / "math.jsonl"))
    assert found["Compute $\\frac{1}{3}+\\frac{1}{6}$."].gold == r"\frac{1}{2}"
    assert found["Solve $2x=10$."].gold == "5"
    assert found["Which set holds the digits of 313?"].gold == r"\{1,3\}"
    assert found["Which set holds the digits of 313?"].difficulty == 3.0
    assert found["Which set holds the digits of 313?"].meta["type"] == "Number Theory"
    assert "level" not in found["Which set holds the digits of 313?"].meta
    cube = found["How many edges has a cube?"]
    assert (cube.difficulty, cube.meta["level"]) == (None, "Level ?")


def test_verl_rows_bring_messages_kind_and_split() -> None:
    tasks = load(DATA / "verl.jsonl")
    assert sorted(task.gold for task in tasks.held_out) == ["42", "76"]
    assert sorted(task.gold for task in tasks.train) == ["13", "18", "3", "42"]
    task = next(task for task in tasks.held_out if task.gold == "76")
    assert task.prompt == (
        Message(role="system", content="Answer briefly."),
        Message(role="user", content="What is 6 + 70?"),
    )
    assert task.kind == "toy/sums"
    assert task.meta["extra_info"] == {"split": "test", "index": 5}
    assert any("only 'extra_info.split' is used" in text for _, text in notes(tasks, "unused_column"))


def test_a_conversation_without_answer_column_ends_with_the_gold() -> None:
    found = everything(load(DATA / "messages.jsonl"))
    assert found["[user] Spell three as a digit."].gold == "3"


@pytest.mark.parametrize(
    ("row", "prompt", "gold", "meta"),
    [
        ({"prompt": "P", "answer": "1", "solution": "s"}, "P", "1", {"solution": "s"}),
        ({"prompt": "P", "solution": r"so \boxed{2}"}, "P", "2", {}),
        ({"prompt": "P", "solution": "$3$"}, "P", "$3$", {}),
        ({"prompt": "P", "gold": "4"}, "P", "4", {}),
        ({"question": "P", "gold": "5"}, "P", "5", {}),
        ({"question": "P", "answer": "6"}, "P", "6", {}),
        ({"problem": "P", "answer": "7", "solution": "s"}, "P", "7", {"solution": "s"}),
        ({"messages": [{"role": "user", "content": "P"}], "answer": "8"}, "[user] P", "8", {}),
        ({"messages": [{"role": "user", "content": "P"}], "solution": "9"}, "[user] P", "9", {}),
        ({"messages": [{"role": "user", "content": "P"}], "gold": "10"}, "[user] P", "10", {}),
    ],
)
def test_known_pairs_of_columns(
    tmp_path: Path, row: dict[str, object], prompt: str, gold: str, meta: dict[str, object]
) -> None:
    others = [json.loads(json.dumps(row).replace('"P"', f'"P{index}"')) for index in range(4)]
    task = everything(load(write(tmp_path / "a.jsonl", [row, *others])))[prompt]
    assert task.gold == gold
    assert task.meta == {**meta, "where": f"{tmp_path / 'a.jsonl'} line 1"}


def test_parquet_rows_are_the_same_tasks_as_the_jsonl_rows(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (DATA / "verl.jsonl").read_text().splitlines()]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "verl.parquet")
    from_parquet, from_jsonl = load(tmp_path / "verl.parquet"), load(DATA / "verl.jsonl")
    assert [task.id for task in from_parquet.train] == [task.id for task in from_jsonl.train]
    assert [task.gold for task in from_parquet.held_out] == [task.gold for task in from_jsonl.held_out]
    assert from_parquet.train[0].meta["where"] == f"{tmp_path / 'verl.parquet'} row 1"


def test_what_json_cannot_hold_becomes_text(tmp_path: Path) -> None:
    from datetime import date
    from decimal import Decimal

    odd = {"day": date(2024, 2, 29), "cost": Decimal("1.50"), "image": b"abc", "score": float("nan"), "tags": [b"x"]}
    pq.write_table(pa.Table.from_pylist([row | odd for row in sums(5)]), tmp_path / "a.parquet")
    meta = dict(load(tmp_path / "a.parquet").train[0].meta)
    del meta["where"]
    assert meta == {"day": "2024-02-29", "cost": "1.50", "image": "<3 bytes>", "score": None, "tags": ["<1 bytes>"]}


def test_mapped_columns_win_and_reach_into_nested_ones(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": "not this",
            "answer": "nor this",
            "task": {"ask": f"Q{i}", "key": f"#### {i}"},
            "hard": i,
            "lang": "de",
        }
        for i in range(5)
    ]
    columns = {"prompt": "task.ask", "gold": "task.key", "difficulty": "hard", "language": "lang", "kind": "lang"}
    task = everything(load(write(tmp_path / "a.jsonl", rows), columns=columns))["Q3"]
    assert (task.gold, task.difficulty, task.language, task.kind) == ("3", 3.0, "de", "de")
    assert sorted(task.meta) == ["answer", "prompt", "task", "where"]


def test_a_mapped_gold_goes_with_a_recognised_prompt(tmp_path: Path) -> None:
    rows = [{"problem": f"Q{i}", "solution": "no box", "key": str(i)} for i in range(5)]
    assert everything(load(write(tmp_path / "a.jsonl", rows), columns={"gold": "key"}))["Q3"].gold == "3"


def test_an_empty_mapping_ignores_a_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", sums(5, split="fold 3", data_source="x"))
    with pytest.raises(DataError, match=r"line 1: column 'split' holds 'fold 3'.*tasks.columns.split = ''"):
        load(path)
    task = load(path, columns={"split": "", "kind": ""}).train[0]
    assert (task.kind, task.meta["split"]) == ("a", "fold 3")


def test_a_column_whose_name_holds_a_dot_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"q.text": f"Q{i}", "gold": "1"} for i in range(5)])
    assert "Q2" in everything(load(path, columns={"prompt": "q.text"}))


@pytest.mark.parametrize(
    ("gold_format", "gold"), [("auto", "3"), ("hash", "3"), ("box", "2"), ("verbatim", r"\boxed{2} #### 1 #### 3")]
)
def test_the_place_of_the_gold_can_be_said(tmp_path: Path, gold_format: str, gold: str) -> None:
    rows = [{"prompt": f"Q{index}", "answer": r"\boxed{2} #### 1 #### 3"} for index in range(5)]
    tasks = load(write(tmp_path / "a.jsonl", rows), gold_format=gold_format)
    assert {task.gold for task in tasks.train} == {gold}


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{1}", "1"),
        (r"\boxed {x^{2}} and more", "x^{2}"),
        (r"\boxed{1} then \fbox{ 2 }", "2"),
        (r"\boxed{\{1\}}", r"\{1\}"),
        (r"\boxed{\\}", "\\\\"),
        (r"\boxed{1} then \boxed{2", None),
        (r"\boxed{}", ""),
        ("boxed{1}", None),
    ],
)
def test_the_last_box_with_balanced_braces(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


# ------------------------------------------------------------------------------------------------------ phrasing


def test_text_rows_become_chat_when_there_is_a_system_prompt() -> None:
    config = {"system_prompt": "Be brief.", "prompt_template": "Q: {prompt}", "answer_format": "box"}
    tasks = everything(load(DATA / "gsm8k.jsonl", **config))
    (task,) = (task for task in tasks.values() if task.gold == "36")
    system, user = task.prompt
    assert system == Message(role="system", content="Be brief.")
    assert user.content == (
        "Q: Mei bakes 4 trays of 9 rolls. How many rolls is that?\nWrite the final answer inside \\boxed{}."
    )


def test_nothing_is_added_to_a_file_by_default() -> None:
    assert "Solve $2x=10$." in everything(load(DATA / "math.jsonl"))


def test_the_system_prompt_replaces_the_one_of_a_row_and_the_template_meets_the_last_turn(tmp_path: Path) -> None:
    turns = [("system", "old"), ("user", "first"), ("assistant", "yes?")]
    rows = [
        {"prompt": [{"role": role, "content": text} for role, text in (*turns, ("user", f"Q{i}"))], "answer": "1"}
        for i in range(5)
    ]
    path = write(tmp_path / "a.jsonl", rows)
    task = load(path, system_prompt="new", prompt_template="<{prompt}>").train[0]
    assert [(m.role, m.content[:2]) for m in task.prompt] == [
        ("system", "ne"),
        ("user", "fi"),
        ("assistant", "ye"),
        ("user", "<Q"),
    ]
    assert load(path).train[0].prompt[0].content == "old"
    with pytest.raises(DataError, match="needs one user message, this prompt has 4"):
        load(path, prompt_style="text")


def test_one_message_can_be_asked_as_text(tmp_path: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": f"Q{i}"}], "answer": "1"} for i in range(5)]
    assert load(write(tmp_path / "a.jsonl", rows), prompt_style="text", prompt_template="{prompt}!").train[
        0
    ].prompt in {f"Q{i}!" for i in range(5)}


# --------------------------------------------------------------------------------------------------------- splits


@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=40), st.floats(0.01, 0.5), st.integers(0, 9)
)
def test_no_prompt_is_in_both_splits_and_none_is_lost(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[str], fraction: float, seed: int
) -> None:
    prompts = [prompt for prompt in prompts if prompt.strip()] + ["one", "two", "three", "four"]
    path = tmp_path_factory.getbasetemp() / "splits.jsonl"
    write(path, [{"prompt": prompt, "answer": "1"} for prompt in prompts])
    tasks = load_tasks(TaskSettings(path=path, held_out_fraction=fraction), seed=seed)
    train, held_out = ([" ".join(task.prompt.split()) for task in part] for part in (tasks.train, tasks.held_out))
    assert not set(train) & set(held_out)
    assert Counter(train + held_out) == Counter({" ".join(prompt.split()) for prompt in prompts})
    assert min(len(train), len(held_out)) >= 2
    assert load_tasks(TaskSettings(path=path, held_out_fraction=fraction), seed=seed + 1) == tasks


def test_more_rows_move_no_problem_from_held_out_to_train(tmp_path: Path) -> None:
    few, many = (load(write(tmp_path / f"{n}.jsonl", sums(n)), held_out_fraction=0.2) for n in (200, 400))
    assert {task.prompt for task in few.held_out} < {task.prompt for task in many.held_out}
    assert 20 <= len(few.held_out) <= 60  # 40 expected, standard deviation 5.7


def test_counts_limit_both_splits_and_say_what_is_left_out(tmp_path: Path) -> None:
    tasks = load(write(tmp_path / "a.jsonl", sums(30)), num_held_out=7, num_train=10)
    assert (len(tasks.train), len(tasks.held_out)) == (10, 7)
    assert notes(tasks, "unused_row") == [(13, "13 rows are left out by tasks.num_train and tasks.num_held_out.")]
    assert len(load(write(tmp_path / "a.jsonl", sums(30)), num_train=100).train) <= 30


def test_a_split_column_is_honoured_and_its_leaks_are_reported(tmp_path: Path) -> None:
    rows = [row | {"split": "test" if index < 3 else "train"} for index, row in enumerate(sums(8))]
    leak = {"prompt": "What is  0 +\n1?", "answer": "1", "split": "train"}
    tasks = load(write(tmp_path / "a.jsonl", [*rows, leak]))
    assert [task.gold for task in sorted(tasks.held_out, key=lambda task: task.gold)] == ["1", "2", "3"]
    assert [task.gold for task in tasks.train] == ["4", "5", "6", "7", "8"]
    text = "1 training rows ask a held-out problem and were dropped from training: a.jsonl line 9."
    assert notes(tasks, "leak") == [(1, text)]
    with pytest.raises(DataError, match="asks for 4 held-out problems, but there are only 3"):
        load(tmp_path / "a.jsonl", num_held_out=4)


def test_a_split_column_that_says_train_everywhere_is_set_aside(tmp_path: Path) -> None:
    tasks = load(write(tmp_path / "a.jsonl", sums(20, split="train")), num_held_out=5)
    assert (len(tasks.train), len(tasks.held_out)) == (15, 5)
    assert notes(tasks, "split")[0][0] == 20


def test_a_second_file_is_held_out_whole(tmp_path: Path) -> None:
    train = write(tmp_path / "train.jsonl", sums(10))
    test = write(
        tmp_path / "test.jsonl", [{"question": "New?", "gold": "1"}, {"question": "What is 3 + 1?", "gold": "4"}]
    )
    tasks = load(train, held_out_path=test)
    assert [len(tasks.train), len(tasks.held_out)] == [9, 2]
    ((count, text),) = notes(tasks, "leak")
    assert count == 1
    assert text.endswith("train.jsonl line 4.")
    assert {task.split for task in tasks.held_out} == {"held_out"}


# ----------------------------------------------------------------------------------------------------- duplicates


def test_exact_duplicates_are_dropped_and_counted(tmp_path: Path) -> None:
    spaced = {"prompt": "  What is 2\t+ 1? ", "answer": " 3"}
    tasks = load(write(tmp_path / "a.jsonl", [*sums(6), spaced, sums(1)[0]]))
    assert len(everything(tasks)) == 6
    text = "2 rows repeat an earlier row's prompt and gold and were dropped: a.jsonl line 8, a.jsonl line 7."
    assert notes(tasks, "duplicate") == [(2, text)]


def test_one_prompt_with_two_golds_is_refused_by_row_or_dropped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*sums(6), {"prompt": "What is 2 + 1?", "answer": "4"}])
    with pytest.raises(
        DataError, match=r"a.jsonl line 3 says '3', a.jsonl line 7 says '4'.*conflicting_golds = 'drop'"
    ):
        load(path)
    tasks = load(path, conflicting_golds="drop")
    assert len(everything(tasks)) == 5
    ((count, text),) = notes(tasks, "conflict")
    assert (count, "1 prompts" in text) == (2, True)


# --------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"prompt": "Q"}], r"line 1: no known pair.*Found: prompt\. Known pairs: .*question \+ answer"),
        ([{}], "Found: none"),
        ([{"prompt": "Q", "completion": "A"}], r'named by sft\.examples = ".*bad\.jsonl", with method = "sft"'),
        ([{"prompt": "Q", "chosen": "A", "rejected": "B"}], r'named by dpo\.pairs = ".*", with method = "dpo"'),
        ([*sums(1), {"prompt": "Q", "anwser": "1"}], "line 2 has no column 'answer'.*Found: prompt, anwser"),
        ([*sums(1), {"prompt": 5, "answer": "1"}], r"line 2: column 'prompt' holds 5\. A prompt is text"),
        ([{"prompt": " \n", "answer": "1"}], "line 1: column 'prompt' holds .* not blank"),
        ([{"prompt": [], "answer": "1"}], "A prompt is text, or a list of messages"),
        ([{"prompt": ["Hi"], "answer": "1"}], "A message is"),
        ([{"prompt": [{"role": "user"}], "answer": "1"}], "A message is"),
        ([{"prompt": [{"role": "user", "content": [{"text": "x"}]}], "answer": "1"}], "A message is"),
        ([{"prompt": [{"role": "usr", "content": "x"}], "answer": "1"}], "Did you mean user"),
        ([{"prompt": [{"role": "user", "content": " "}], "answer": "1"}], "not blank"),
        ([{"prompt": [{"role": "assistant", "content": "x"}], "answer": "1"}], "before the assistant speaks"),
        ([{"messages": [{"role": "assistant", "content": "x"}]}], "two or more messages is the assistant's"),
        ([{"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}]}], "is the assistant's"),
        ([{"messages": "hello"}], "Without an answer column it must be a list"),
        ([{"prompt": "Q", "answer": "  "}], r"line 1: column 'answer' holds '  '\. The gold answer is empty"),
        ([{"prompt": "Q", "answer": None}], "holds None. The gold answer is empty"),
        ([{"prompt": "Q", "answer": True}], "holds True. A gold answer is text"),
        ([{"prompt": "Q", "answer": ["1"]}], "A gold answer is text"),
        ([{"question": "Q", "answer": "work ####  "}], "The gold answer is empty"),
        ([{"problem": "Q", "solution": "It is 5."}], r"no \\boxed\{answer\}.*gold_format = 'verbatim'"),
        ([{"problem": "Q", "solution": r"\boxed{}"}], "The gold answer is empty"),
        ([{"prompt": "Q\ud800", "answer": "1"}], "surrogate"),
        ([{"prompt": "Q", "answer": "\ud800"}], "surrogate"),
        (sums(1) * 9, "9 rows hold 1 different prompts.*by heart.*Add problems"),
        (sums(3), "3 rows hold 3 different prompts, 1 to train on and 2 held out"),
    ],
)
def test_a_bad_row_is_named_with_its_column_value_and_remedy(tmp_path: Path, rows: list[object], message: str) -> None:
    path = write(tmp_path / "bad.jsonl", rows)
    with pytest.raises(DataError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n  \n", "is empty"),
        (b'{"prompt": "Q", "answer": "1"}\n{"prompt": \n', "line 2 is not JSON"),
        (b"prompt,answer\n", "line 1 is not JSON: .*It reads 'prompt,answer'"),
        (b"[\n", "looks like one JSON array"),
        (b'[{"prompt": "Q"}]\n', "is an array, not a JSON object.*one object a line"),
        (b"3\n", "is a number, not a JSON object"),
        (b"null\n", "is null, not"),
        (b'{"prompt": "Q", "answer": NaN}\n', "NaN is no JSON value"),
        (b'{"prompt": "Q", "answer": 1e999}\n', "finite number"),
        (b"[" * 200_000 + b"\n", "line 1 is not JSON"),
        ('{"prompt": "Zähle", "answer": "1"}\n'.encode("latin-1"), "line 1 is not UTF-8: byte 0xe4 at position 13"),
        ('{"prompt": "Q"}\n'.encode("utf-16"), "is UTF-16"),
    ],
)
def test_a_file_that_is_no_jsonl_says_where_and_why(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_byte_order_mark_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", sums(5))
    path.write_bytes(b"\xef\xbb\xbf\n" + path.read_bytes())
    tasks = load(path)
    assert len(everything(tasks)) == 5
    assert {task.meta["where"][-6:] for task in everything(tasks).values()} == {f"line {n}" for n in range(2, 7)}


def test_a_missing_or_unfit_path_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path / "problems.jsonl", sums(5))
    with pytest.raises(DataError, match=r"no file .*problem.jsonl. Did you mean problems.jsonl\?"):
        load(tmp_path / "problem.jsonl")
    with pytest.raises(DataError, match=r"is a folder.*It holds problems\.jsonl"):
        load(tmp_path)
    with pytest.raises(DataError, match="nowhere does not exist either"):
        load(tmp_path / "nowhere" / "a.jsonl")
    (tmp_path / "a.csv").write_text("prompt,answer\n")
    with pytest.raises(DataError, match=r"not from \.csv"):
        load(tmp_path / "a.csv")
    (tmp_path / "a.parquet").write_text("PAR1 not really")
    with pytest.raises(DataError, match="not a readable parquet file"):
        load(tmp_path / "a.parquet")


def test_a_mapped_column_that_is_missing_names_the_nearest() -> None:
    with pytest.raises(
        DataError, match=r"no column 'question', which tasks.columns.prompt names.*Found: prompt, answer"
    ):
        load(DATA / "trl.jsonl", columns={"prompt": "question"})
    with pytest.raises(DataError, match="Did you mean topic"):
        load(DATA / "trl.jsonl", columns={"kind": "topics"})


# -------------------------------------------------------------------------------------------------------- preview


def test_a_preview_shows_three_tasks_and_the_counts() -> None:
    seen = preview(TaskSettings(path=DATA / "trl.jsonl"))
    tasks = load(DATA / "trl.jsonl")
    assert seen.samples == tasks.train[:3]
    assert (seen.num_train, seen.num_held_out) == (len(tasks.train), len(tasks.held_out))
    assert seen.notes == tasks.notes
    endless = preview(TaskSettings(source="sum"), seed=4)
    assert (endless.source, endless.num_train, endless.num_held_out, len(endless.samples)) == ("sum", None, 256, 3)
