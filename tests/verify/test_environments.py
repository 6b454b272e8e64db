"""Environments: what their tools do, what hostile calls cannot do, and what is left of them: nothing."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.processes import wait_until

from oncurve.types import DataError, Episode, Message, Status, Task
from oncurve.verify import Item, RewardSettings, Scorer, check_golds
from oncurve.verify.environments import (
    Call,
    EnvironmentSettings,
    EnvironmentVerifier,
    Scene,
    Stage,
    environment_of,
    judge,
    read_call,
    write_call,
)
from oncurve.verify.environments.known import KNOWN

FILES = {"k": "47", "sub/z": "5"}
TABLE = {"t": {"columns": ["id", "x"], "rows": [[1, 5], [2, 7]]}}


def task(name: str = "files", *, start: object = None, goal: object = None, gold: object = (), **more: object) -> Task:
    start = start if start is not None else FILES if name == "files" else TABLE
    said = {"name": name, "start": start, "goal": {} if goal is None else goal, **more}
    return Task(
        id="t",
        prompt="do it",
        gold=json.dumps(gold),
        kind="tools",
        verifier="environment",
        meta={"environment": said},
    )


@pytest.fixture(scope="module")
def stage():
    with Stage() as made:
        yield made


def play(stage: Stage, name: str, *calls: Call, **more: object) -> Scene:
    spec = environment_of(task(name, **more))
    assert spec is not None
    (scene,) = stage.play([(spec, calls)])
    assert scene.fault is None
    return scene


def sql(query: str) -> Call:
    return Call("sql", {"query": query})


def texts(scene: Scene) -> list[str]:
    return [answer.text for answer in scene.answers]


def test_files_are_listed_read_written_moved_and_deleted(stage):
    scene = play(
        stage,
        "files",
        Call("list", {}),
        Call("read", {"path": "sub/z"}),
        Call("write", {"path": "new/deep/m", "text": "a\r\nü"}),
        Call("move", {"source": "k", "target": "sub/k"}),
        Call("delete", {"path": "sub/z"}),
        Call("read", {"path": "sub/z"}),
    )
    assert texts(scene) == ["k\nsub/z", "5", "ok", "ok", "ok", "error: no file sub/z"]
    assert scene.state == {"new/deep/m": "a\r\nü", "sub/k": "47"}


@pytest.mark.parametrize(
    "path", ["../../etc/passwd", "/etc/passwd", "a/../../b", ".", "..", "", "a//b", "~/x", "a\x00b", "/".join("a" * 9)]
)
@pytest.mark.parametrize("tool", ["read", "write", "delete", "move"])
def test_no_path_leads_out(stage, tool, path):
    arguments = {
        "read": {"path": path},
        "write": {"path": path, "text": "x"},
        "delete": {"path": path},
        "move": {"source": "k", "target": path},
    }[tool]
    scene = play(stage, "files", Call(tool, arguments))
    assert scene.answers[0].is_error
    assert "not a path" in scene.answers[0].text
    assert scene.state == FILES


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (Call("write", {"path": "big", "text": "x" * 65_534}), "at most 65536 bytes"),
        (Call("write", {"path": "sub", "text": "x"}), "sub is a directory"),
        (Call("write", {"path": "k/x", "text": "x"}), "a part of k/x is a file"),
        (Call("move", {"source": "k", "target": "sub/z"}), "sub/z exists"),
        (Call("move", {"source": "k", "target": "sub/z/w"}), "a part of sub/z/w is a file"),
        (Call("read", {"path": "sub"}), "no file sub"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(stage, call, said):
    scene = play(stage, "files", call)
    assert said in scene.answers[0].text
    assert scene.state == FILES


def test_files_and_answers_are_bounded(stage):
    writes = [Call("write", {"path": f"f{n}", "text": "x" * 1001}) for n in range(64)]
    scene = play(stage, "files", *writes, Call("read", {"path": "f0"}))
    assert [answer.is_error for answer in scene.answers] == [*[False] * 62, True, True, False]  # 64 files with the two
    assert scene.answers[-1].text == "x" * 1000 + "... (1001 characters)"


def test_a_database_is_read_and_changed(stage):
    scene = play(
        stage,
        "database",
        sql("select * from t order by x desc"),
        sql("update t set x = x + 1 where id = 2"),
        sql("insert into t values (3, null)"),
        sql("delete from t where id = 1"),
        sql("select max(x), upper('a') from t"),
        sql("with recursive c(n) as (select 1 union all select n + 1 from c limit 3) select count(*) from c"),
    )
    assert texts(scene) == ["2|7\n1|5", "1 rows changed", "1 rows changed", "1 rows changed", "8|A", "3"]
    assert scene.state == {"t": {"columns": ["id", "x"], "rows": [[2, 8], [3, None]]}}


HOSTILE = [
    "attach 'host.db' as h",
    "attach ':memory:' as h",
    "detach main",
    "vacuum into 'stolen.db'",
    "pragma writable_schema = 1",
    "pragma temp_store_directory = '/tmp'",
    "select * from pragma_table_info('t')",
    "select load_extension('libc.so.6')",
    "select readfile('/etc/passwd')",
    "select writefile('x', 'y')",
    "select randomblob(1000000000)",
    "select zeroblob(1000000000)",
    "select printf('%999999999d', 1)",
    "select random()",
    "select current_timestamp",
    "select datetime('now')",
    "create table z (a)",
    "create temp table z (a)",
    "create virtual table z using fts5(a)",
    "create trigger g after insert on t begin delete from t; end",
    "drop table t",
    "alter table t rename to u",
    "delete from sqlite_master",
    "begin",
    "select 1; delete from t",
    "select x from",
    "insert into t values ('" + "x" * 20_000 + "', 1)",
    "with recursive c(n) as (select 1 union all select n + 1 from c) select count(*) from c",
    "with recursive c(n) as (select 1 union all select n + 1 from c) select n from c where n < 0",
    "select count(*) from t a, t b, t c, t d, t e, t f, t g, t h, t i, t j, t k, t l, t m, t n, t o, t p, t q, t r",
    "with recursive c(s) as (select 'xxxxxxxxxx' union all select s || s from c) select length(s) from c",
    "\ud800",
    "",
]


@pytest.mark.parametrize("query", HOSTILE)
def test_a_hostile_statement_is_refused_soon_and_changes_nothing(stage, query):
    began = time.monotonic()
    scene = play(stage, "database", sql(query))
    assert time.monotonic() - began < 5
    assert scene.state == TABLE
    assert scene.answers[0].is_error or texts(scene) == ["ok"]
    assert not list(Path().glob("*.db"))


def test_a_statement_that_is_cut_off_changes_nothing(stage):
    rows = [[n, n] for n in range(60)]
    start = {"t": {"columns": ["id", "x"], "rows": rows}}
    scene = play(stage, "database", sql("insert into t select a.id, b.x from t a, t b, t c, t d"), start=start)
    assert scene.answers[0].text == "error: interrupted"
    assert len(scene.state["t"]["rows"]) == 60


def test_rows_of_an_answer_and_pages_of_a_database_are_bounded(stage):
    start = {"t": {"columns": ["x"], "rows": [[n % 10] for n in range(60)]}}
    scene = play(stage, "database", sql("select x from t"), start=start)
    assert scene.answers[0].text.split("\n") == [*[str(n % 10) for n in range(50)], "..."]
    fill = sql(f"insert into t select '{'y' * 9000}' from t a, t b limit 400")
    scene = play(stage, "database", fill, start=start)
    assert scene.answers[0].text == "error: database or disk is full"
    assert len(scene.state["t"]["rows"]) == 60


def test_episodes_know_nothing_of_each_other(stage):
    spec = environment_of(task("database"))
    other = environment_of(task("files"))
    assert spec is not None
    assert other is not None
    write, read = Call("write", {"path": "m", "text": "1"}), Call("list", {})
    scenes = stage.play([(spec, [sql("delete from t")]), (other, [write]), (other, [read]), (spec, [])])
    assert [scene.state for scene in scenes] == [
        {"t": {"columns": ["id", "x"], "rows": []}},
        {**FILES, "m": "1"},
        FILES,
        TABLE,
    ]


def test_the_same_calls_have_the_same_answers_in_another_process():
    spec = environment_of(task("database"))
    assert spec is not None
    calls = [sql(query) for query in HOSTILE]
    with Stage() as one, Stage() as two:
        assert one.play([(spec, calls)]) == two.play([(spec, calls)])


# --- the state decides --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ({"a": "1", "b": "2"}, Status.CORRECT),
        ({"b": "2", "a": "1"}, Status.CORRECT),
        ({"a": "1"}, Status.WRONG),
        ({"a": "1", "b": "2", "c": ""}, Status.WRONG),
        ({"a": "1", "b": "3"}, Status.WRONG),
        (None, Status.WRONG),
    ],
)
def test_all_of_the_state_counts(state, status):
    spec = environment_of(task(goal={"a": "1", "b": "2"}))
    assert spec is not None
    assert judge(spec, Scene(state=state)).status is status


def test_the_difference_is_named():
    spec = environment_of(task(goal={"a": "1"}))
    assert spec is not None
    assert judge(spec, Scene(state={"a": "2"})).evidence == "a is '2', not '1'"
    assert judge(spec, Scene(state={"a": "1", "b": "2"})).evidence == "b is '2', not missing"


def test_the_verdict_is_that_of_the_episode_and_never_of_the_text():
    said = '<tool_call>{"name": "write", "arguments": {"path": "m", "text": "47"}}</tool_call> done'
    verifier = EnvironmentVerifier(EnvironmentSettings())
    episodes = [
        None,
        Episode(status=Status.WRONG, evidence="m is missing"),
        Episode(status=Status.CORRECT, evidence="", num_calls=2, num_errors=1),
        Episode(status=Status.NO_VERDICT, cause="timeout", evidence="late"),
    ]
    items = [Item(task=task(), text=said, episode=episode) for episode in episodes]
    found = verifier.judge(items)
    assert [(verdict.status, verdict.reward, verdict.cause) for verdict in found] == [
        (Status.NO_VERDICT, None, "no_episode"),
        (Status.WRONG, 0.0, None),
        (Status.CORRECT, 1.0, None),
        (Status.NO_VERDICT, None, "timeout"),
    ]
    with Scorer(RewardSettings()) as scorer:  # the same text with another episode is another item
        assert [verdict.reward for verdict in scorer.score(items)] == [None, 0.0, 1.0, None]


def test_golds_are_carried_out_before_a_run():
    move = {"name": "move", "arguments": {"source": "k", "target": "m"}}
    goal = {"m": "47", "sub/z": "5"}
    problems = check_golds(
        [
            task(goal=goal, gold=[move]),
            task(goal=goal, gold=[]),
            task(goal=FILES, gold=[]),
            task(goal=goal, gold=[{"name": "read", "arguments": {"path": "x"}}]),
            task(goal=goal, gold="m"),
        ]
    )
    assert [problem.reason.split(":")[0] for problem in problems] == [
        "its solution does not reach it",
        "the goal is the start",
        "its solution does not reach it",
        "the gold is no list of calls (TypeError",
    ]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("files", "must be a table"),
        ({"name": "file", "start": {}, "goal": {}}, "no environment 'file'. Did you mean files"),
        ({"name": "files", "start": {}}, "needs start and goal"),
        ({"name": "files", "start": {}, "goal": {}, "gaol": 1}, "no field 'gaol'. Did you mean goal"),
        ({"name": "files", "start": {}, "goal": {}, "syntax": "xml"}, "syntax is 'xml'"),
        ({"name": "files", "start": {}, "goal": {}, "limits": {"byte": 1}}, "no limit 'byte'. Did you mean bytes"),
        ({"name": "files", "start": {"a": {1}}, "goal": {}}, "must be plain data"),
        ({"name": "nowhere.py:World", "start": {}, "goal": {}, "tools": []}, "needs an existing file"),
    ],
)
def test_what_a_task_says_wrongly_is_named(said, message):
    bad = Task(id="t9", prompt="", gold="", kind="k", verifier="environment", meta={"environment": said})
    with pytest.raises(DataError, match=r"task t9: .*" + message.replace(".", r"\.").replace("'", "'")):
        environment_of(bad)


def test_a_task_without_environment_has_none_and_a_chat_calls_in_json():
    plain = Task(id="t", prompt="", gold="", kind="k", verifier="answer")
    assert environment_of(plain) is None
    one = task()
    chat = Task(
        id="t",
        prompt=(Message(role="user", content="go"),),
        gold="",
        kind="k",
        verifier="environment",
        meta=one.meta,
    )
    found, short = environment_of(chat), environment_of(one)
    assert found is not None
    assert short is not None
    assert (found.syntax, found.is_chat, short.syntax, short.is_chat) == ("hermes", True, "short", False)


# --- calls as text ------------------------------------------------------------------------------------------------

TOOLS = KNOWN["files"].tools


@given(
    path=st.text(st.characters(codec="ascii", exclude_characters=",;!\n "), min_size=1),
    text=st.text(st.characters(codec="ascii", exclude_characters=";!")),
)
def test_a_written_call_is_read_back(path, text):
    for syntax in ("hermes", "short"):
        if syntax == "short" and text != text.rstrip():
            continue  # blanks before the closing mark are not kept
        call = read_call(write_call("write", {"path": path, "text": text}, syntax), TOOLS, syntax)
        assert call == Call("write", {"path": path, "text": text})


@pytest.mark.parametrize(
    ("text", "syntax", "expected"),
    [
        ("i read !read k;", "short", Call("read", {"path": "k"})),
        ("!list;", "short", Call("list", {})),
        ("!write m,a,b;", "short", Call("write", {"path": "m", "text": "a,b"})),
        ("!write m,;", "short", Call("write", {"path": "m", "text": ""})),
        ("!read k,l;", "short", Call("read", {"path": "k,l"})),
        ('So <tool_call>{"name": "list", "arguments": {}}</tool_call>', "hermes", Call("list", {})),
    ],
)
def test_calls_are_read(text, syntax, expected):
    assert read_call(text, TOOLS, syntax) == expected


@pytest.mark.parametrize(
    ("text", "syntax", "said"),
    [
        ("read k;", "short", "no call"),
        ("!read k", "short", "no call"),
        ("!read k;!read l;", "short", "no call"),
        ("!fly k;", "short", "no tool"),
        ("!;", "short", "no tool"),
        ("!read;", "short", "read takes 1 arguments, got 0"),
        ("!list k;", "short", "list takes 0 arguments, got 1"),
        ("done", "hermes", "0 calls"),
        ("<tool_call>[]</tool_call>", "hermes", "no JSON object"),
        ('<tool_call>{"name": "read", "arguments": {}}</tool_call>', "hermes", "arguments of read"),
        ('<tool_call>{"name": "read", "arguments": {"path": 3}}</tool_call>', "hermes", "arguments of read"),
        ('<tool_call>{"name": "read", "arguments": {"path": "k", "x": 1}}</tool_call>', "hermes", "arguments of read"),
        ('<think><tool_call>{"name": "list", "arguments": {}}</tool_call>', "hermes", "inside <think>"),
        ("<tool_response>ok</tool_response>", "hermes", "the tool answers"),
        ("<tool_call>" * 20_000, "hermes", "no JSON object"),
    ],
)
def test_what_is_no_call_is_told_to_the_model(text, syntax, said):
    with pytest.raises(ValueError, match=said):
        read_call(text, TOOLS, syntax)


# --- what is left: nothing ----------------------------------------------------------------------------------------


def left() -> set[str]:
    """Processes that play episodes, and directories that they might leave."""
    found = {str(path) for path in Path(tempfile.gettempdir()).glob("oncurve-tools-*")}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes()
        except OSError:
            continue
        if b"environments/inside/play.py" in words:
            found.add(entry.parent.name)
    return found


def gone(before: set[str]) -> bool:
    end = time.monotonic() + 10
    while left() - before and time.monotonic() < end:
        time.sleep(0.05)
    return not left() - before


def test_a_closed_stage_leaves_nothing():
    before = left()
    with Stage() as stage:
        play(stage, "files", Call("write", {"path": "m", "text": "1"}))
        assert left() - before
    assert gone(before)


KILLED = """
import sys
from oncurve.verify.environments import Call, Stage, environment_of
from oncurve.types import Task
import json
said = json.loads(sys.argv[1])
spec = environment_of(Task(id="t", prompt="", gold="", kind="k", verifier="environment", meta={"environment": said}))
stage = Stage(60)
stage.play([(spec, [Call("write", {"path": "m", "text": "1"})])])
print("ready", flush=True)
slow = environment_of(Task(id="t", prompt="", gold="", kind="k", verifier="environment", meta={"environment": {
    **said, "name": sys.argv[2] + ":Slow", "tools": [{"name": "wait", "parameters": {"type": "object"}}]}}))
stage.play([(slow, [Call("wait", {})])])
"""
SLOW = """
import subprocess, time
class Slow:
    def __init__(self, directory, limits): self.directory = directory
    def reset(self, start): (self.directory / "left").write_text("x")
    def call(self, name, arguments):
        subprocess.Popen(["sleep", "600"])
        print("called", file=open(__file__ + ".called", "w"))
        time.sleep(600)
    def state(self): return {}
"""


def test_a_killed_run_leaves_no_process_and_no_file(tmp_path):
    file = tmp_path / "slow.py"
    file.write_text(SLOW)
    before = left()
    said = json.dumps({"name": "files", "start": FILES, "goal": {}})
    run = subprocess.Popen(
        [sys.executable, "-c", KILLED, said, str(file)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    assert wait_until((tmp_path / "slow.py.called").exists)  # the slow episode holds a file and a grandchild
    assert left() - before
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert gone(before)


def test_a_hanging_environment_is_killed_and_the_stage_goes_on(tmp_path):
    file = tmp_path / "slow.py"
    file.write_text(SLOW)
    tools = [{"name": "wait", "parameters": {"type": "object"}}]
    slow = environment_of(task(f"{file}:Slow", start={}, tools=tools))
    sound = environment_of(task("files"))
    assert slow is not None
    assert sound is not None
    with Stage(timeout_s=1.0) as stage:
        late, fine = stage.play([(slow, [Call("wait", {})]), (sound, [Call("list", {})])])
    assert late.fault is not None
    assert late.fault[0] == "timeout"
    assert texts(fine) == ["k\nsub/z"]
