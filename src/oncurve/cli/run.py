"""Commands that train."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from oncurve.cli.interrupt import Interrupt
from oncurve.cli.view import RunView, legend
from oncurve.config import load_config
from oncurve.model import save_policy
from oncurve.model.precision import bfloat16_speedup
from oncurve.model.threads import use_threads
from oncurve.report import read_evaluations, render_report
from oncurve.train import Session, train
from oncurve.train.supervised import EMBEDDED, starting_policy, warm_start
from oncurve.types import RunError


def train_run(path: Path | None, overrides: Sequence[str]) -> dict[str, Any]:
    """Start a run and follow it to its end."""
    with Session.create(load_config(path, overrides)) as session:
        return _follow(session)


def resume_run(run: Path) -> dict[str, Any]:
    """Continue a run and follow it to its end."""
    with Session.resume(run) as session:
        return _follow(session)


def warm_start_run(path: Path | None, overrides: Sequence[str], to: Path) -> dict[str, Any]:
    """Warm-start a model on worked examples and save it."""
    if to.exists() and any(to.iterdir()):
        raise RunError(f"{to} is not empty: choose another folder with --to")
    config = load_config(path, overrides)
    use_threads(config.threads)
    policy = starting_policy(config)
    started, loss = time.perf_counter(), 0.0
    with RunView(config.sft.steps) as view:
        for step, loss in warm_start(config, policy):
            if step % 25 == 0 or step == config.sft.steps:
                view.line(f"step {step}/{config.sft.steps}  loss {loss:.4f}  {time.perf_counter() - started:.0f} s")
    save_policy(policy, to, dtype="bfloat16" if config.model.path == EMBEDDED else None)
    return {"model": str(to), "steps": config.sft.steps, "loss": loss, "seconds": time.perf_counter() - started}


def _follow(session: Session) -> dict[str, Any]:
    started, goes_on = time.perf_counter(), f"continue with: oncurve resume {session.folder.path}"
    with RunView(session.config.steps, session.step) as view, Interrupt(goes_on) as is_interrupted:
        view.line(f"run folder {session.folder.path}\n\n{session.folder.formula}\n")
        view.line(f"{_arithmetic(session)}\n\n{legend(session.config.method)}\n")
        if session.is_finished:
            view.line(f"all {session.step} steps are done; only the last examination is repeated")
        for event in train(session, should_stop=is_interrupted):
            view.show(event)
        page = render_report(session.folder.path)
        if not session.is_finished:
            view.line(f"stopped after {session.step} steps; {goes_on}")
    return _result(session, time.perf_counter() - started, page)


def _arithmetic(session: Session) -> str:
    """Where and in which precision the run computes."""
    device, dtype = session.policy.model.device, session.config.model.dtype
    where = f"weights in {dtype} on {device.type}, {torch.get_num_threads()} threads"
    if device.type != "cpu":
        return where
    return f"{where}; products in bfloat16 are {bfloat16_speedup():.1f} times as fast as in float32 here"


def _result(session: Session, seconds: float, page: Path) -> dict[str, Any]:
    evaluations = {int(row["step"]): row for row in read_evaluations(session.folder.path)}
    before, after = evaluations.get(0), evaluations.get(session.step) if session.is_finished else None
    return {
        "run_dir": str(session.folder.path),
        "steps": session.step,
        "is_finished": session.is_finished,
        "seconds": round(seconds, 3),
        "eval_before": before,
        "eval_after": after,
        "tokens_per_correct": after["tokens_per_correct"] if after else None,
        "report": str(page),
    }
