"""Real processes of verifiers that are killed, whose parent is killed, or whose disk is full: no verdict is lost."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.disks import fill, small_disk
from tests.processes import descendants, is_running, wait_until

from oncurve.sandbox import SandboxSettings, close_shared_pools
from oncurve.types import Status, Task
from oncurve.verify import (
    AnswerSettings,
    AnswerVerifier,
    Item,
    RewardFunction,
    RewardFunctionSettings,
    RewardSettings,
    Scorer,
)
from oncurve.verify.code import CodeSettings, CodeVerifier

ISOLATION = "namespaces" if shutil.which("bwrap") else "none"
SANDBOX = SandboxSettings.model_validate({"num_workers": 2, "isolation": ISOLATION})
SQUARE = {"mode": "function", "entry_point": "f", "tests": [{"args": [2], "expected": 4}, {"args": [3], "expected": 9}]}


def radicals(number: int, seed: int) -> list[Item]:
    """Answers that only the CAS can compare, every second one wrong."""
    draw = random.Random(seed)
    items = []
    for place in range(number):
        a, b = draw.randrange(2, 10**6), draw.choice([2, 3, 5, 7, 11, 13])
        task = Task(id=str(place), prompt="p", gold=f"{a}\\sqrt{{{b}}}+x", kind="k", verifier="answer")
        wrong = place % 2
        items.append(Item(task=task, text=f"<answer>x+\\sqrt{{{a * a * b + wrong}}}</answer>"))
    return items


def programs(number: int) -> list[Item]:
    """Programs, every second one wrong."""
    task = Task(id="t", prompt="", gold="", kind="k", verifier="code", meta=SQUARE)
    return [Item(task=task, text=f"def f(x): return x * x + {place % 2}  # {place}") for place in range(number)]


def texts(number: int) -> list[Item]:
    task = Task(id="t", prompt="p", gold="g", kind="k", verifier="answer")
    return [Item(task=task, text=str(place)) for place in range(number)]


def alternating(number: int) -> list[Status]:
    return [Status.WRONG if place % 2 else Status.CORRECT for place in range(number)]


# --- a worker is killed in the middle of a batch ----------------------------------------------------------------


def test_killed_processes_of_the_cas_cost_no_verdict():
    verifier = AnswerVerifier(AnswerSettings(num_workers=2))
    verifier.judge(radicals(4, seed=1))
    workers = [pid for pid, _ in descendants(os.getpid()) if is_worker(pid, "answers/cas/child.py")]
    verdicts: list[Status] = []
    judging = threading.Thread(
        target=lambda: verdicts.extend(v.status for v in verifier.judge(radicals(200, seed=2))), daemon=True
    )
    judging.start()
    time.sleep(0.3)
    for pid in workers:  # those of the batch before: a decision meets one of them at most once
        os.kill(pid, signal.SIGKILL)
    judging.join(120)
    assert workers
    assert verdicts == alternating(200)


def is_worker(pid: int, file: str) -> bool:
    """A process that runs the function: its supervisor has the same command line and stands above it."""
    try:
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
        lines = [Path(f"/proc/{each}/cmdline").read_text() for each in (pid, parent)]
    except OSError:
        return False
    return file in lines[0] and lines[0] == lines[1]


def test_a_killed_reward_function_costs_no_verdict(tmp_path: Path):
    (tmp_path / "r.py").write_text(
        "import time\nfrom pathlib import Path\nHERE = Path(__file__).parent\n"
        "def f(completions, **columns):\n"
        "    if '7' in completions and not (HERE / 'ran').exists():\n"
        "        (HERE / 'ran').touch()\n        time.sleep(60)\n"
        "    return [float(text) for text in completions]\n"
    )
    settings = RewardFunctionSettings(num_workers=2, max_batch=3)
    with RewardFunction("r.py:f", settings, timeout_s=100, base_dir=tmp_path) as function:
        verdicts: list[float | None] = []
        judging = threading.Thread(target=lambda: verdicts.extend(v.reward for v in function.judge(texts(20))))
        judging.start()
        assert wait_until((tmp_path / "ran").exists)
        workers = [pid for pid, _ in descendants(os.getpid()) if is_worker(pid, str(tmp_path / "r.py"))]
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        judging.join(60)
    assert workers
    assert verdicts == [float(place) for place in range(20)]


def test_a_killed_sandbox_costs_no_verdict():
    verifier = CodeVerifier(CodeSettings(carrier="text", sandbox=SANDBOX))
    verifier.judge(programs(2))
    verdicts: list[Status] = []
    judging = threading.Thread(target=lambda: verdicts.extend(v.status for v in verifier.judge(programs(60)[2:])))
    judging.start()
    time.sleep(0.2)
    servers = [pid for pid, _ in descendants(os.getpid()) if ppid(pid) == os.getpid() and "oncurve" in cmdline(pid)]
    servers = [pid for pid in servers if "child.py" not in cmdline(pid)]
    os.kill(servers[0], signal.SIGKILL)
    judging.join(120)
    close_shared_pools()
    assert verdicts == alternating(58)


def cmdline(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def ppid(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


# --- the parent is killed while it verifies ---------------------------------------------------------------------

PARENTS = {
    "code": """
        from oncurve.sandbox import SandboxSettings
        from oncurve.verify.code import CodeSettings, CodeVerifier
        sandbox = SandboxSettings(num_workers=2, isolation=sys.argv[1])
        meta = {"mode": "function", "entry_point": "f", "tests": [{"args": [2], "expected": 4}]}
        task = Task(id="t", prompt="", gold="", kind="k", verifier="code", meta=meta)
        sources = ["import subprocess\\ndef f(x):\\n    subprocess.Popen(['sleep', '100'])\\n    while True: pass"]
        items = [Item(task=task, text=sources[0] + f"  # {place}") for place in range(2)]
        CodeVerifier(CodeSettings(carrier="text", timeout_s=100, sandbox=sandbox)).judge(items)
    """,
    "cas": """
        from oncurve.verify import AnswerSettings, AnswerVerifier
        verifier = AnswerVerifier(AnswerSettings(num_workers=2))
        for k in range(2, 10**6):
            golds = [f"{k}\\\\sqrt2", f"{k}\\\\sqrt3"]
            tasks = [Task(id="t", prompt="p", gold=gold, kind="k", verifier="answer") for gold in golds]
            texts = [f"<answer>\\\\sqrt{{{2 * k * k}}}</answer>", f"<answer>\\\\sqrt{{{3 * k * k}}}</answer>"]
            verifier.judge([Item(task=task, text=text) for task, text in zip(tasks, texts)])
    """,
    "function": """
        from oncurve.verify import RewardFunction, RewardFunctionSettings
        settings = RewardFunctionSettings(num_workers=2)
        task = Task(id="t", prompt="p", gold="g", kind="k", verifier="answer")
        function = RewardFunction("r.py:f", settings, timeout_s=100, base_dir=Path(sys.argv[2]))
        function.judge([Item(task=task, text=str(place)) for place in range(8)])
    """,
}
NUM_PROCESSES = {"code": 4 if ISOLATION == "none" else 10, "cas": 4, "function": 8}
"""At least: sandboxes and programs with a child each; supervisors and workers; these with what the function started."""


@pytest.mark.parametrize("kind", PARENTS)
def test_killing_the_parent_leaves_no_process(kind: str, tmp_path: Path):
    (tmp_path / "r.py").write_text(
        "import subprocess, time\ndef f(completions, **columns):\n"
        "    subprocess.Popen(['sleep', '100'])\n    subprocess.Popen(['sleep', '100'], start_new_session=True)\n"
        "    time.sleep(100)\n"
    )
    head = "import sys\nfrom pathlib import Path\nfrom oncurve.types import Task\nfrom oncurve.verify import Item\n"
    body = "\n".join(line.removeprefix(" " * 8) for line in PARENTS[kind].splitlines())
    parent = subprocess.Popen([sys.executable, "-c", head + body, ISOLATION, str(tmp_path)])
    below: set[tuple[int, str]] = set()

    def are_enough() -> bool:
        below.update(descendants(parent.pid))
        return len(set(filter(is_running, below))) >= NUM_PROCESSES[kind]

    try:
        assert wait_until(are_enough, 60), [cmdline(pid) for pid, _ in below]
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    assert wait_until(lambda: not any(map(is_running, below))), [cmdline(pid) for pid, _ in filter(is_running, below)]


# --- the disk is full -------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A disk without a byte left, which is also where temporary files go."""
    with small_disk(tmp_path / "disk", "1m") as disk:
        fill(disk)
        monkeypatch.setenv("TMPDIR", str(disk))
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield disk


def test_verifiers_do_not_need_the_disk(full_disk: Path):
    # Fresh processes, so that they are started on the full disk too.
    answers = AnswerVerifier(AnswerSettings(num_workers=3))
    assert [verdict.status for verdict in answers.judge(radicals(20, seed=3))] == alternating(20)
    code = CodeVerifier(CodeSettings(carrier="text", sandbox=SANDBOX.model_copy(update={"num_workers": 1})))
    assert [verdict.status for verdict in code.judge(programs(10))] == alternating(10)
    close_shared_pools()


def test_a_function_that_cannot_write_has_no_verdict_and_the_rest_has_one(full_disk: Path, tmp_path: Path):
    (tmp_path / "r.py").write_text(
        "import os\nfrom pathlib import Path\ndef f(completions, **columns):\n"
        "    if '3' in completions:\n        Path(os.environ['TMPDIR'], 'notes').write_bytes(b'x' * 10**5)\n"
        "    return [float(text) for text in completions]\n"
    )
    parts = {"r": {"verifier": "r.py:f", "options": {"max_batch": 1}}}
    before = descendants(os.getpid())
    with Scorer(RewardSettings.model_validate({"components": parts}), base_dir=tmp_path) as scorer:
        verdicts = scorer.score(texts(8))
        assert descendants(os.getpid()) > before
    assert Counter(verdict.status is Status.NO_VERDICT for verdict in verdicts) == {False: 7, True: 1}
    assert [verdict.reward for verdict in verdicts] == [0.0, 1.0, 2.0, None, 4.0, 5.0, 6.0, 7.0]
    assert verdicts[3].cause == "error"
    assert "No space left on device" in verdicts[3].evidence
    assert wait_until(lambda: descendants(os.getpid()) <= before)


# --- several threads --------------------------------------------------------------------------------------------


def test_a_scorer_is_used_by_several_threads(tmp_path: Path):
    (tmp_path / "r.py").write_text("def f(completions, **columns): return [len(text) / 8 for text in completions]")
    parts = {"correct": {"options": {"answer": {"num_workers": 2}}}, "length": {"verifier": "r.py:f", "weight": 0.5}}
    settings = RewardSettings.model_validate({"components": parts})
    batches = [radicals(12, seed) for seed in (10, 11, 12, 10, 11, 12)]  # the same ones twice, at the same time
    with Scorer(settings, base_dir=tmp_path) as scorer:
        alone = [scorer.score([item])[0].reward for batch in batches[:3] for item in batch]
    results: dict[int, list[float | None]] = {}

    def score(scorer: Scorer, place: int) -> None:
        results[place] = [verdict.reward for verdict in scorer.score(batches[place])]

    with Scorer(settings, base_dir=tmp_path) as scorer:
        threads = [threading.Thread(target=score, args=(scorer, place)) for place in range(len(batches))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert [reward for place in range(3) for reward in results[place]] == alone
    assert [results[place] for place in (3, 4, 5)] == [results[place] for place in (0, 1, 2)]


# --- once -------------------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the decisions that the processes made."""
    from oncurve.verify.answers import Cas

    counted: list[int] = []
    ask: Callable[..., object] = Cas.ask
    monkeypatch.setattr(Cas, "ask", lambda *words, **options: (counted.append(1), ask(*words, **options))[1])
    return counted


def test_equal_answers_to_equal_golds_are_compared_once(asked: list[int]):
    task = Task(id="a", prompt="p", gold=r"2\sqrt2", kind="k", verifier="answer")
    other = Task(id="b", prompt="q", gold=r"2\sqrt2", kind="k", verifier="answer")
    strict = Task(id="c", prompt="q", gold=r"2\sqrt2", kind="k", verifier="answer", meta={"comparison": {"unit": "cm"}})
    verifier = AnswerVerifier(AnswerSettings(num_workers=2))
    batch = [Item(task=task, text=f"{steps} <answer>\\sqrt8</answer>") for steps in ("one", "two", "three")]
    assert [v.status for v in verifier.judge([*batch, Item(task=other, text=batch[0].text)])] == [Status.CORRECT] * 4
    once = len(asked)
    assert once == 1
    assert verifier.judge(batch)[0].status is Status.CORRECT
    assert len(asked) == once  # remembered from the call before
    verifier.judge([Item(task=strict, text=batch[0].text)])
    assert len(asked) == once + 1  # other settings: another question
    AnswerVerifier(AnswerSettings(num_workers=2)).judge(batch)
    assert len(asked) == once + 2


def test_what_nobody_knows_is_not_remembered(monkeypatch: pytest.MonkeyPatch):
    from oncurve.sandbox import Outcome
    from oncurve.verify.answers import Cas

    task = Task(id="a", prompt="p", gold=r"2\sqrt2", kind="k", verifier="answer")
    item = Item(task=task, text=r"<answer>\sqrt8</answer>")
    verifier = AnswerVerifier(AnswerSettings(num_workers=2))
    with monkeypatch.context() as patched:
        patched.setattr(Cas, "ask", lambda *_, **__: Outcome(cause="memory", detail="MemoryError"))
        (unknown,) = verifier.judge([item])
    assert (unknown.status, unknown.cause) == (Status.NO_VERDICT, "memory")
    assert verifier.judge([item])[0].status is Status.CORRECT


def test_plain_answers_start_no_process():
    before = descendants(os.getpid())
    task = Task(id="a", prompt="p", gold=r"\frac{1}{2}", kind="k", verifier="answer")
    verifier = AnswerVerifier(AnswerSettings(num_workers=7))
    verdicts = verifier.judge([Item(task=task, text=f"<answer>{text}</answer>") for text in ("0.5", "2/4", "3", "7/9")])
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT] * 2 + [Status.WRONG] * 2
    assert descendants(os.getpid()) <= before
