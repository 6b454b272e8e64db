"""The commands. Each one parses, calls, prints; what it does lives below."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from oncurve import __version__
from oncurve.cli.icl import finish as finish_lab
from oncurve.cli.icl import finish_run as finish_lab_run
from oncurve.cli.icl import icl
from oncurve.cli.interrupt import STOPPED
from oncurve.cli.words import is_laboratory_run, split_words

Words = Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON object on stdout.")]

app = App(
    name="oncurve",
    help="Reinforcement learning with verifiable rewards, graded on the curve of each completion's own group.",
    version=__version__,
    suppress_keyboard_interrupt=False,
    help_epilogue="Settings of the TOML file can follow any command that takes one: --learner.lr 1e-4 --seed 3",
)

app.command(icl)


@app.command
def train(*words: Words, as_json: Json = False) -> None:
    """Train: [CONFIG.toml] [--setting value ...]. Without a file: GRPO on the embedded default, in minutes."""
    from oncurve.cli.run import train_run

    path, overrides = split_words(words)
    _finish_run(train_run(path, overrides), as_json)


@app.command
def resume(run: Path, *, as_json: Json = False) -> None:
    """Continue the run in a folder from its last checkpoint; the result equals an uninterrupted run."""
    if is_laboratory_run(run):
        from oncurve.cli.icl_run import resume_lab

        finish_lab_run(resume_lab(run), as_json)
        return
    from oncurve.cli.run import resume_run

    _finish_run(resume_run(run), as_json)


@app.command(name="eval")
def evaluate(*words: Words, as_json: Json = False) -> None:
    """Examine a policy on held-out tasks: [RUN | CONFIG.toml] [--model.path DIR ...]. A run: its last checkpoint."""
    path, overrides = split_words(words)
    if path is not None and is_laboratory_run(path):
        from oncurve.cli.icl_run import eval_lab

        if overrides:
            raise ValueError(f"{path} is a run of the laboratory: oncurve icl eval {path} --prompts N")
        finish_lab(eval_lab(path, None), as_json)
        return
    from oncurve.cli.inspect import evaluate_target

    _finish(evaluate_target(path, overrides), as_json)


@app.command
def sft(*words: Words, to: Path = Path("starting-model"), as_json: Json = False) -> None:
    """Warm-start a model on worked examples: [CONFIG.toml] [--to DIR] [--setting value ...].

    Parameters
    ----------
    to:
        Folder for the trained model.
    """
    from oncurve.cli.run import warm_start_run

    path, overrides = split_words(words)
    _finish(warm_start_run(path, overrides, to), as_json)


@app.command
def explain(*words: Words, as_json: Json = False) -> None:
    """Say what a run would do: settings, formula, tokens, memory, time. [CONFIG.toml] [--setting value ...]."""
    from oncurve.cli.inspect import explain_config

    path, overrides = split_words(words)
    found = explain_config(path, overrides)
    print(json.dumps(found.data, indent=2, ensure_ascii=False) if as_json else found.text)


@app.command
def check(*words: Words, as_json: Json = False) -> None:
    """Look at the tasks of a config: rendered prompts, golds, what was ignored, golds that reject themselves."""
    from oncurve.cli.inspect import check_tasks

    path, overrides = split_words(words)
    found = check_tasks(path, overrides)
    print(json.dumps(found.data, indent=2, ensure_ascii=False) if as_json else found.text)
    if found.data["rejected_golds"]:
        sys.exit(1)


@app.command(name="import")
def import_(
    trainer: Literal["trl", "verl"],
    file: Path,
    *,
    to: Path | None = None,
    processes: int = 1,
    as_json: Json = False,
) -> None:
    """Read the configuration of another trainer: TOML, its formula, and what became of every key.

    Parameters
    ----------
    trainer:
        Whose configuration it is.
    file:
        TRL: a GRPOConfig as YAML or JSON, or the YAML of its script. verl: YAML, a list of overrides, a shell script.
    to:
        Where the TOML goes. Without it: to stdout, and everything else to stderr.
    processes:
        TRL: how many processes train; its batch size is that of one.
    """
    from oncurve.cli.migrate import import_file

    found = import_file(trainer, file, to=to, processes=processes)
    if as_json:
        print(json.dumps(found.as_dict(), ensure_ascii=False))
    else:
        if to is None:
            print(found.toml, end="")
        print(found.report(), file=sys.stderr if to is None else sys.stdout)


@app.command
def verify(what: str, *words: Words, as_json: Json = False) -> None:
    """Judge completions: FILE [CONFIG.toml, whose reward is used]; or known cases: {math,code,format} CASES.jsonl.

    A file prints one JSON verdict a line. Its answers are read from `<answer>...</answer>`; from `\\boxed{...}`
    with `--reward.components.correct.options.answer.carrier box`, and from wherever the reward of a CONFIG.toml says.

    Cases print a table, and with --json one JSON object a line: id, status, reward, evidence, cause, seconds. Answers
    of math are read from `\\boxed{...}`, unless the row says "carrier": tag, hash, text, last_line or json.

    A file that is named like a kind is reached with ./math.

    Parameters
    ----------
    what:
        The file, or the kind of the cases.
    """
    from oncurve.cli.cases import KINDS, judge_kind
    from oncurve.cli.judge import judge_file

    if what in KINDS:
        for row in judge_kind(what, words):
            print(json.dumps(row) if as_json else f"{row['status']:<10}  {row['id']}  {row['evidence']}", flush=True)
        return
    path, overrides = split_words(words)
    for verdict in judge_file(Path(what), path, overrides):
        print(json.dumps(verdict, ensure_ascii=False))


@app.command
def audit(
    *words: Words,
    tasks: Path | None = None,
    exploits: Path = Path("exploits"),
    families: str = "",
    num_tasks: int = 24,
    paid_at: float = 0.5,
    max_false_accepts: int = 0,
    max_false_refusals: float = 0.1,
    max_no_verdicts: float = 0.05,
    max_mutants: float = 0.25,
    timeout: float = 10.0,
    as_json: Json = False,
) -> None:
    """Attack a reward function before a policy does: [CONFIG.toml | FILE.py:function | module:Rubric].

    A function has TRL's or verl's signature. Exit code 1 when wrong completions are paid, right ones refused, or there
    is no verdict, beyond the limits. Without a target: the reward of the embedded default.

    Parameters
    ----------
    tasks:
        Your rows, JSONL or parquet, for a function; of a config they are its held-out tasks.
    exploits:
        Folder of the exploits that were found before (`oncurve review`); each is tried again.
    families:
        Which attacks, separated by commas: corpus, metamorphic, policy, program, regression. Without it: all.
    num_tasks:
        Rows that are attacked.
    paid_at:
        Share of the honest reward from which a completion counts as paid.
    max_false_accepts:
        Most wrong completions that may be paid.
    max_false_refusals:
        Most of the right completions that may be refused, as a share.
    max_no_verdicts:
        Most completions without a verdict, as a share.
    max_mutants:
        Most mutants of reference solutions that may pass, as a share.
    timeout:
        Seconds for one call of a function.
    """
    from oncurve.cli.audit import audit_target, read_audit_settings, show_audit

    settings = read_audit_settings(
        families=families,
        num_tasks=num_tasks,
        paid_at=paid_at,
        max_false_accepts=max_false_accepts,
        max_false_refusal_frac=max_false_refusals,
        max_no_verdict_frac=max_no_verdicts,
        max_mutants_passed_frac=max_mutants,
    )
    path, overrides = split_words(words)
    target = None if path is None else str(path)
    found = audit_target(target, overrides, tasks=tasks, settings=settings, exploits=exploits, timeout_s=timeout)
    if as_json:
        print(json.dumps(found.as_dict(), ensure_ascii=True))
    else:
        show_audit(found)
    if not found.passed:
        sys.exit(1)


@app.command
def review(
    run: Path,
    *,
    as_list: Annotated[bool, Parameter(name="--list", negative="")] = False,
    mark: tuple[str, Literal["exploit", "fine"]] | None = None,
    why: str = "",
    second: str = "",
    exploits: Path = Path("exploits"),
    limit: int = 50,
    as_json: Json = False,
) -> None:
    """Look at well paid completions of a run that seem wrong, one by one; an exploit is tried in every later audit.

    Queued are completions that a second verifier would not pay, texts that were paid for different golds, rewards far
    above what the prompt earned otherwise, lengths unlike the others, and one of each common template.

    Parameters
    ----------
    run:
        The run folder.
    as_list:
        Print the queue and ask nothing.
    mark:
        Decide on one entry without being asked: --mark s12-g3-i7 exploit (or fine).
    why:
        With --mark: what you saw.
    second:
        Second opinion: a component of the run's reward, a verifier or FILE.py:function. Without it: the verifier that
        the tasks name, where the run's primary component is another one.
    exploits:
        Folder of the cases; `oncurve audit` reads the same.
    limit:
        Most entries of the queue.
    """
    from oncurve.cli.review import Review, as_row, key_reader, list_suspects, review_in_terminal
    from oncurve.report.review import ReviewSettings

    found = Review(run, second=second, exploits=exploits, settings=ReviewSettings(limit=limit))
    if mark is not None:
        suspect = found.find(mark[0])
        _finish({"marked": mark[1], "id": mark[0], "case": str(found.mark(suspect, mark[1], why))}, as_json)
    elif as_json:
        print(json.dumps({"queue": [as_row(suspect) for suspect in found.suspects]}, ensure_ascii=True))
    elif as_list or not found.suspects:
        list_suspects(found)
    else:
        _finish(review_in_terminal(found, key_reader()), as_json)


@app.command
def report(run: Path, *, as_json: Json = False) -> None:
    """Write report.html for a run: one file that opens from disk, without a network."""
    from oncurve.report import render_report, summarise

    page = render_report(run)
    _finish({"report": str(page), **summarise(run)} if as_json else {"report": str(page)}, as_json)


@app.command
def compare(
    *words: Words,
    rollouts: Path | None = None,
    step: int | None = None,
    objectives: str = "",
    evaluate: int | None = None,
    to: Path | None = None,
    as_json: Json = False,
) -> None:
    """Compare whole runs: CONFIG.toml [--setting value ...]; or objectives on one rollout: --rollouts RUN ...

    A file makes every run it lists, continues what was interrupted, and writes one table and plot. With --rollouts RUN
    --step N --objectives run,grpo,dr_grpo nothing is trained but one step of each objective.

    Parameters
    ----------
    rollouts:
        Folder of the run that recorded it.
    step:
        Which step, counted from 0.
    objectives:
        Names of presets, `run` for the run's own, .toml files, or inline tables, separated by commas.
    evaluate:
        Held-out tasks asked after one optimiser step of each; 0 for none. Without it: as many as the run asked.
    to:
        Folder for comparison.html and comparison.json. With a file, and without this: the folder of its runs.
    """
    path, overrides = split_words(words)
    if path is not None and rollouts is None:
        if step is not None or objectives or evaluate is not None:
            raise ValueError(f"--step, --objectives and --evaluate belong to --rollouts RUN, not to the file {path}")
        _compare_runs(path, overrides, to, as_json)
        return
    from oncurve.cli.compare import compare_rollout, refuse_words, show_comparison

    if rollouts is None:
        raise ValueError(
            "compare makes the runs of a file: oncurve compare examples/compare.toml; or looks at a recorded rollout: "
            "oncurve compare --rollouts RUN --step N --objectives a,b"
        )
    refuse_words([*([str(path)] if path else []), *overrides])
    found = compare_rollout(rollouts, step, objectives, evaluate)
    if as_json:
        print(json.dumps(found.as_dict(), ensure_ascii=False))
    else:
        show_comparison(found)
    if to is not None:
        from oncurve.report.comparison import render_comparison

        print(f"open this page: {render_comparison(found, to)}", file=sys.stderr)


def _compare_runs(path: Path, overrides: list[str], to: Path | None, as_json: bool) -> None:
    from oncurve.cli.arms import compare_config, show_arms
    from oncurve.report.arms_page import render_arms

    found, folder = compare_config(path, overrides)
    if found is None:
        sys.exit(STOPPED)
    page = render_arms(found, to or folder)
    if as_json:
        print(json.dumps(found.as_dict(), ensure_ascii=False))
    else:
        show_arms(found)
    print(f"open this page: {page}", file=sys.stderr)


def _finish_run(result: Mapping[str, Any], as_json: bool) -> None:
    """The JSON object, or what a person wants to know last: the figures stand above already."""
    shown = {"run folder": result["run_dir"], "steps": result["steps"], "seconds": result["seconds"]}
    _finish(result if as_json else {**shown, "open this page": result["report"]}, as_json)
    if not result["is_finished"]:
        sys.exit(STOPPED)  # it has said so and how it goes on; a script sees it by the exit code


def _finish(result: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
        return
    for name, value in result.items():
        print(f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
