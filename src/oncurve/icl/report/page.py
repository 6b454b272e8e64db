"""The page of a run of the laboratory: one HTML file that opens from disk, without a network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader

from oncurve.icl.probe import PROBE_FILE, Match, ProbeResult
from oncurve.icl.report.build import (
    curve_drawings,
    learning_drawing,
    probe_drawings,
    shift_drawings,
    sweep_drawings,
    trace_drawings,
)
from oncurve.icl.report.drawings import Drawing
from oncurve.icl.report.findings import (
    Finding,
    class_findings,
    curve_findings,
    probe_findings,
    shift_findings,
    sweep_findings,
    trace_finding,
)
from oncurve.icl.report.png import write_pictures
from oncurve.icl.run import read_settings
from oncurve.icl.settings import LabSettings
from oncurve.icl.shift import SHIFT_FILE, Measured, ShiftResult
from oncurve.icl.sweep import SWEEP_FILE, SweepResult
from oncurve.icl.traces import TraceComparison, TraceResult, compare_traces
from oncurve.report import read_evaluations, read_metrics, read_rollouts
from oncurve.report.markup import content_policy, named_texts, page_environment, page_scripts, style
from oncurve.report.storage import write_text

PAGE = "report.html"
PICTURES = "pictures"
TRACES_FILE = "traces.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A section of the page."""

    key: str
    title: str
    lead: str
    findings: Sequence[Finding]
    drawings: Sequence[Drawing]
    table: Sequence[Sequence[str]] = field(default_factory=list)
    """First row: headings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Everything that was measured so far; None where it was not."""

    settings: LabSettings
    metrics: Sequence[dict[str, Any]]
    examination: dict[str, Any] | None
    """The last document of ``eval/``."""
    probe: ProbeResult | None
    shift: ShiftResult | None
    sweep: SweepResult | None
    traces: TraceResult | None


def render_lab_report(run: Path, *, sweep: Path | None = None, rl_run: Path | None = None) -> Path:
    """Write ``report.html`` and ``pictures/*.png`` into the folder of a laboratory run.

    Args:
        run: the folder; what `oncurve icl eval`, `probe` and `shift` wrote there is shown.
        sweep: folder of `oncurve icl sweep`, for the part on sizes.
        rl_run: folder of `oncurve train`, whose rollouts stand beside the laboratory: length against error. The
            comparison is kept as ``traces.json``, and shown again when it is not given.

    Returns:
        The page.

    Raises:
        RunError: a folder is not what it should be.
        StorageError: the disk refused.
        ValueError: no rollout of ``rl_run`` has a verdict.
    """
    if rl_run is not None:
        compare_traces(read_rollouts(rl_run), run=rl_run.resolve().name).write(run / TRACES_FILE)
    results = gather(run, sweep)
    parts = page_parts(results)
    drawings = [drawing for part in parts for drawing in part.drawings]
    write_pictures(drawings, run / PICTURES)
    page = run / PAGE
    write_text(page, _environment().get_template("lab.html.j2").render(_context(run, results, parts, drawings)))
    return page


def gather(run: Path, sweep: Path | None) -> Results:
    """Read what was measured. Raises RunError, StorageError."""
    return Results(
        settings=read_settings(run),
        metrics=list(read_metrics(run)),
        examination=examinations[-1] if (examinations := read_evaluations(run)) else None,
        probe=ProbeResult.read_if_there(run / PROBE_FILE),
        shift=ShiftResult.read_if_there(run / SHIFT_FILE),
        sweep=None if sweep is None else SweepResult.read(sweep / SWEEP_FILE),
        traces=TraceResult.read_if_there(run / TRACES_FILE),
    )


def page_parts(results: Results) -> list[Part]:
    """Return the sections that the results allow."""
    found = [
        _errors_part(results),
        _layers_part(results.probe),
        _shift_part(results.shift),
        _sweep_part(results.sweep),
        _traces_part(results.traces, results.probe),
    ]
    return [part for part in found if part is not None]


def _errors_part(results: Results) -> Part | None:
    drawings, findings = learning_drawing(results.metrics), list[Finding]()
    if (found := results.examination) is not None:
        drawings = [*curve_drawings(found), *drawings]
        findings = _errors_findings(found, results.settings.functions.kind)
    lead = "A prompt holds points of a function that was never seen in training; the network predicts the next one."
    part = Part(key="errors", title="What it learnt in context", lead=lead, findings=findings, drawings=drawings)
    return part if drawings else None


def _errors_findings(found: Mapping[str, Any], kind: str) -> list[Finding]:
    if kind != "linear":
        return class_findings(found, kind)
    best = next(one for one in found["curves"] if one["name"] == found["reference"])
    return curve_findings(found["curves"][0]["errors"], best["errors"], best["name"], found["dimension"])


def _layers_part(probe: ProbeResult | None) -> Part | None:
    if probe is None:
        return None
    by_errors, by_weights = ["Newton iterations", "SimE", "GD steps", "SimE"], ["Newton", "SimW", "GD", "SimW"]
    heads = ["layer", "mean error", *by_errors, *by_weights, "SimE to least squares"]
    matches = (probe.newton.by_errors, probe.descent.by_errors, probe.newton.by_weights, probe.descent.by_weights)
    rows = [
        [
            str(layer),
            f"{error:.3g}",
            *(cell for match in matches for cell in _match_cells(match, layer)),
            f"{probe.reference_similarities[layer]:.3f}",
        ]
        for layer, error in enumerate(probe.mean_layer_errors)
    ]
    return Part(
        key="layers",
        title="Layer by layer",
        lead="The weights do not change while the network reads a prompt. What its layers compute is set against the "
        "iterates of two algorithms; that errors run alike does not show that the network runs either of them.",
        findings=probe_findings(probe),
        drawings=probe_drawings(probe),
        table=[heads, *rows],
    )


def _match_cells(match: Match, layer: int) -> tuple[str, str]:
    return str(match.matched[layer]), f"{max(match.similarities[layer]):.3f}"


def _shift_part(shift: ShiftResult | None) -> Part | None:
    if shift is None:
        return None
    return Part(
        key="shift",
        title="Prompts unlike those of training",
        lead=f"The same network on shifted prompts. Figures of the paper: {shift.paper_source}. Its network is far "
        "larger and was trained far longer, so directions compare and sizes do not.",
        findings=shift_findings(shift),
        drawings=shift_drawings(shift),
        table=[["case", "examples", "error", "90 %", "best linear", "", "paper"], *map(_shift_row, shift.rows)],
    )


def _shift_row(row: Measured) -> list[str]:
    return [
        row.name,
        f"{row.place} = {row.count}",
        f"{row.error:.3g}",
        f"[{row.interval[0]:.3g}, {row.interval[1]:.3g}]",
        f"{row.reference_error:.3g}" if row.reference_error > 1e-6 else "0",
        row.reference_name,
        "" if row.paper is None else f"{row.paper:g}",
    ]


def _sweep_part(sweep: SweepResult | None) -> Part | None:
    if sweep is None or not sweep.cells:
        return None
    missing = f" {sweep.num_missing} cells are still missing." if sweep.num_missing else ""
    heads = ["class", "network", "weights", "seed", "error at the end", "CPU seconds"]
    rows = [
        [
            cell.label,
            cell.network,
            f"{cell.num_weights:,}",
            str(cell.seed),
            f"{cell.errors[-1]:.3g}",
            "–" if cell.cpu_seconds is None else f"{cell.cpu_seconds:.0f}",
        ]
        for cell in sweep.cells
    ]
    return Part(
        key="sizes",
        title="Sizes on harder functions",
        lead=f"Every network took {sweep.settings.steps} steps of {sweep.settings.batch_size} prompts.{missing}",
        findings=sweep_findings(sweep),
        drawings=sweep_drawings(sweep),
        table=[heads, *rows],
    )


def _traces_part(traces: TraceResult | None, probe: ProbeResult | None) -> Part | None:
    if traces is None:
        return None
    return Part(
        key="traces",
        title="A longer trace, or a lower error?",
        lead="Two ways to spend computation on an answer: tokens that everybody can read, and layers that write "
        f"nothing. On the one side the rollouts of {traces.run}, on the other this laboratory. A longer trace is not "
        "a better one; what counts is the error.",
        findings=[trace_finding(traces)],
        drawings=trace_drawings(traces, probe),
        table=_trace_table(traces),
    )


def _trace_table(traces: TraceResult) -> list[list[str]]:
    rows = [("all completions", traces.every)]
    if traces.finished is not None and traces.num_truncated:
        rows.append(("without truncated ones", traces.finished))
    heads = ["", "completions", "groups", "of these tell", "tasks", "mean tokens", "mean error"]
    return [heads, *([name, *_trace_cells(told)] for name, told in rows)]


def _trace_cells(told: TraceComparison) -> list[str]:
    counts = (told.num_completions, told.num_groups, told.num_telling_groups, told.num_tasks)
    return [*(f"{count:,}" for count in counts), f"{told.mean_tokens:.4g}", f"{told.mean_error:.3f}"]


def _environment() -> Environment:
    environment = page_environment()
    ours = PackageLoader("oncurve.icl.report", "templates")
    environment.loader = ours if environment.loader is None else ChoiceLoader([ours, environment.loader])
    return environment


def _context(run: Path, results: Results, parts: Sequence[Part], drawings: Sequence[Drawing]) -> dict[str, Any]:
    scripts = page_scripts()
    network, functions = results.settings.network, results.settings.functions
    findings = [finding for part in parts for finding in part.findings]
    return {
        "name": run.resolve().name,
        "title": f"{functions.kind} functions, d = {functions.dimension}: {network.architecture} with {network.layers} "
        f"layers of width {network.width}",
        "num_agree": sum(finding.agrees is True for finding in findings),
        "num_differ": sum(finding.agrees is False for finding in findings),
        "num_findings": len(findings),
        "parts": parts,
        "numbers": {drawing.key: index for index, drawing in enumerate(drawings)},
        "figures": [drawing.figure() for drawing in drawings],
        "settings": named_texts(results.settings.model_dump(mode="json", exclude_none=True)),
        "scripts": scripts,
        "policy": content_policy(scripts),
        "style": style(),
    }
