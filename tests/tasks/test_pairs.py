"""Files of pairs and of worked examples: the layouts people have, and errors that name the row."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncurve.tasks import ExampleRow, PairRow, read_examples, read_pairs
from oncurve.types import DataError, Message

ASK = {"role": "user", "content": "2+2?"}
SYSTEM = {"role": "system", "content": "Be brief."}
GOOD, BAD = {"role": "assistant", "content": "4"}, {"role": "assistant", "content": "5"}
CHAT = (Message(role="user", content="2+2?"),)


def written(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"prompt": "2+2=", "chosen": "4", "rejected": "5"}, "2+2="),
        ({"question": "2+2=", "chosen": "4", "rejected": "5", "score": 1}, "2+2="),
        ({"prompt": [ASK], "chosen": [GOOD], "rejected": [BAD]}, CHAT),
        ({"prompt": [ASK], "chosen": "4", "rejected": "5"}, CHAT),
        ({"prompt": "2+2?", "chosen": [GOOD], "rejected": [BAD]}, CHAT),
        ({"prompt": "2+2?", "chosen": [ASK, GOOD], "rejected": [ASK, BAD]}, CHAT),  # the prompt is told twice
        ({"chosen": [ASK, GOOD], "rejected": [ASK, BAD]}, CHAT),
        (
            {"chosen": [SYSTEM, ASK, GOOD], "rejected": [SYSTEM, ASK, BAD]},
            (Message(role="system", content="Be brief."), *CHAT),
        ),
        ({"prompt": None, "chosen": [ASK, GOOD], "rejected": [ASK, BAD]}, CHAT),
    ],
)
def test_every_layout_of_pairs_gives_the_same_pair(row: dict[str, Any], prompt: Any, tmp_path: Path) -> None:
    path = written(tmp_path, row)
    assert read_pairs(path) == [PairRow(prompt=prompt, chosen="4", rejected="5", where=f"{path} line 1")]


@pytest.mark.parametrize(
    ("chosen", "rejected", "prompt", "endings"),
    [
        ("The sky is blue.", "The sky is green.", "The sky is", (" blue.", " green.")),
        ("1 + 1 = 12", "1 + 1 = 13", "1 + 1 =", (" 12", " 13")),  # never inside a word
        ("\n\nHuman: hi\n\nAssistant: I do", "\n\nHuman: hi\n\nAssistant: I don't", "\n\nHuman: hi\n\nAssistant: I",
         (" do", " don't")),
        ("Q: a\nA\n4", "Q: a\nA\n5", "Q: a\nA\n", ("4", "5")),  # a line break stays with the prompt
        ("is it so", "is it so indeed", "is it", (" so", " so indeed")),  # one is the beginning of the other
    ],
)  # fmt: skip
def test_two_texts_without_prompt_share_their_beginning(
    chosen: str, rejected: str, prompt: str, endings: tuple[str, str], tmp_path: Path
) -> None:
    (pair,) = read_pairs(written(tmp_path, {"chosen": chosen, "rejected": rejected}))
    assert (pair.prompt, pair.chosen, pair.rejected) == (prompt, *endings)


@given(prompt=st.text("ab \n", min_size=1), chosen=st.text("abc \n"), rejected=st.text("abc \n"))
def test_nothing_is_lost_when_a_shared_beginning_is_cut_off(
    prompt: str, chosen: str, rejected: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    row = {"chosen": prompt + chosen, "rejected": prompt + rejected}
    try:
        (pair,) = read_pairs(written(tmp_path_factory.mktemp("pairs"), row))
    except DataError:
        return
    assert f"{pair.prompt}{pair.chosen}" == row["chosen"]
    assert f"{pair.prompt}{pair.rejected}" == row["rejected"]


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"prompt": "2+2=", "completion": "4"}, "2+2="),
        ({"prompt": [ASK], "completion": [GOOD]}, CHAT),
        ({"prompt": [ASK], "completion": "4"}, CHAT),
        ({"messages": [ASK, GOOD]}, CHAT),
        ({"messages": [ASK, GOOD], "prompt": "an id"}, CHAT),
    ],
)
def test_every_layout_of_examples_gives_the_same_example(row: dict[str, Any], prompt: Any, tmp_path: Path) -> None:
    path = written(tmp_path, row)
    assert read_examples(path) == [ExampleRow(prompt=prompt, completion="4", where=f"{path} line 1")]


def test_parquet_reads_like_jsonl(tmp_path: Path) -> None:
    rows = [{"chosen": [ASK, GOOD], "rejected": [ASK, BAD]}, {"chosen": [ASK, BAD], "rejected": [ASK, GOOD]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    first, second = read_pairs(tmp_path / "rows.parquet")
    assert (first.prompt, first.chosen, first.rejected) == (CHAT, "4", "5")
    assert (second.chosen, second.where) == ("5", f"{tmp_path / 'rows.parquet'} row 2")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "2+2=", "chosen": "4", "rejcted": "5"}, "no column 'rejected'. Did you mean rejcted"),
        ({"prompt": "2+2=", "chosen": "4", "rejected": None}, "no column 'rejected'"),
        ({"prompt": "2+2=", "chosen": "4", "rejected": [BAD]}, "both text, or both lists of messages"),
        ({"prompt": " ", "chosen": "4", "rejected": "5"}, "column 'prompt' holds ' '. It is blank"),
        ({"prompt": "2+2=", "chosen": "", "rejected": "5"}, "column 'chosen' holds ''. It is blank"),
        ({"prompt": "2+2=", "chosen": "4", "rejected": "\n"}, "column 'rejected' holds '\\\\n'. It is blank"),
        ({"prompt": "2+2=", "chosen": "4", "rejected": "\ud800"}, "half of a surrogate pair"),
        ({"chosen": "yes", "rejected": "no"}, "does not begin like 'rejected'"),
        ({"chosen": [GOOD], "rejected": [BAD]}, "A conversation begins with a prompt"),
        ({"chosen": [ASK], "rejected": [ASK]}, "Its last message is the assistant's"),
        ({"chosen": [ASK, GOOD], "rejected": [SYSTEM, ASK, BAD]}, "must answer the same prompt"),
        ({"prompt": "3+3?", "chosen": [ASK, GOOD], "rejected": [ASK, BAD]}, "must say what column 'prompt' says"),
        ({"prompt": [ASK, GOOD], "chosen": [GOOD], "rejected": [BAD]}, "A prompt ends before the assistant speaks"),
        ({"prompt": [ASK], "chosen": [{"role": "asistant", "content": "4"}], "rejected": [BAD]},
         "Known roles: .*Did you mean assistant"),
        ({"prompt": [ASK], "chosen": [{"role": "assistant", "content": None}], "rejected": [BAD]}, "A message is"),
        ({"prompt": 7, "chosen": "4", "rejected": "5"}, "column 'prompt' holds 7. It is text, or a list"),
    ],
)  # fmt: skip
def test_a_row_that_is_no_pair_is_named_with_the_reason(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    good = {"prompt": "1+1=", "chosen": "2", "rejected": "3"}
    with pytest.raises(DataError, match=rf"rows\.jsonl line 2.*{message}"):
        read_pairs(written(tmp_path, good, row))


def test_a_row_that_is_no_example_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1 has no column 'completion'.*Known layouts: prompt \+ completion"):
        read_examples(written(tmp_path, {"prompt": "2+2=", "answer": "4"}))
    with pytest.raises(DataError, match="Without a prompt column it must be a conversation"):
        read_examples(written(tmp_path, {"completion": "4"}))


def test_a_missing_file_names_its_setting(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is a folder, dpo\.pairs names one file"):
        read_pairs(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b")
    with pytest.raises(DataError, match=r"sft\.examples is read from \.jsonl"):
        read_examples(tmp_path / "rows.csv")
