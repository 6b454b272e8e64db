"""Commands of the in-context laboratory that measure a trained network, or many."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from oncurve.cli.interrupt import SAME_COMMAND, Interrupt
from oncurve.config.load import override, read_table, validated
from oncurve.icl.probe import PROBE_FILE, ProbeSettings, run_probe
from oncurve.icl.report.findings import Finding, probe_findings, shift_findings, sweep_findings
from oncurve.icl.shift import SHIFT_FILE, ShiftSettings, run_shift
from oncurve.icl.sweep import SWEEP_FILE, Cell, SweepSettings, run_sweep
from oncurve.types import Settings

_S = TypeVar("_S", bound=Settings)


def probe_lab(run: Path, words: Sequence[str]) -> dict[str, Any]:
    """Probe the layers of a run."""
    found = run_probe(run, _settings(ProbeSettings, None, words))
    return found.model_dump(mode="json") | _findings(probe_findings(found), run / PROBE_FILE)


def shift_lab(run: Path, words: Sequence[str]) -> dict[str, Any]:
    """Measure a run on prompts unlike those of its training."""
    found = run_shift(run, _settings(ShiftSettings, None, words))
    return found.model_dump(mode="json") | _findings(shift_findings(found), run / SHIFT_FILE)


def sweep_lab(path: Path | None, overrides: Sequence[str], folder: Path) -> dict[str, Any]:
    """Make the cells of a sweep that are missing, telling on stderr which are done."""
    settings = _settings(SweepSettings, path, overrides)
    with Interrupt(SAME_COMMAND) as is_interrupted:
        found = run_sweep(folder, settings, should_stop=is_interrupted, on_cell=_tell)
    if found.num_missing:
        _say(f"{found.num_missing} cells are missing; {SAME_COMMAND}")
    data = found.model_dump(mode="json") | {"is_finished": not found.num_missing}
    return data | _findings(sweep_findings(found), folder / SWEEP_FILE)


def _settings(model: type[_S], path: Path | None, overrides: Sequence[str]) -> _S:
    table = {} if path is None else read_table(path)
    override(table, overrides, model)
    return validated(model, table, "the default" if path is None else str(path), overrides)


def _findings(found: Iterable[Finding], written: Path) -> dict[str, Any]:
    rows = [
        {"text": one.text, "condition": one.condition, "verdict": one.verdict, "source": one.source} for one in found
    ]
    return {"findings": rows, "written": str(written)}


def _tell(cell: Cell) -> None:
    _say(f"{cell.label}  {cell.network}  seed {cell.seed}  E at the end {cell.errors[-1]:.3f}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
