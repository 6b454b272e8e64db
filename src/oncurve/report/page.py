"""The report: one HTML file that opens from disk, without a network, in light and dark, on a desk and on a phone.

Text of models and data sets is hostile by assumption. The template escapes it, data for the script is JSON whose
markup characters are spelled out, and the page allows only the two scripts it carries, by their hashes.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment
from scipy.stats import binomtest

from oncurve.report.charts import MAX_POINTS, charts
from oncurve.report.costs import Costs, colour_of, cost_cells, cost_facts, cost_headings, cost_segments, costs_of
from oncurve.report.flame import flame
from oncurve.report.markup import content_policy, named_texts, page_environment, page_scripts, style
from oncurve.report.readers import (
    Run,
    count_rollouts,
    read_document,
    read_evaluations,
    read_events,
    read_metrics,
    read_seconds_after,
    read_text,
    run_path,
)
from oncurve.report.sample import composition, prompt_text, sample_rollouts, shown
from oncurve.report.storage import write_text
from oncurve.report.summary import OFFLINE, summarise

MAX_EVENTS = 150
"""The latest events that the page lists; all of them are counted."""
_MAX_KINDS = 40
_MAX_SETTINGS = 400
_DASH = "–"


def render_report(run_dir: Run) -> Path:
    """Write ``report.html`` into a run folder and return its path. The run may still be going on.

    Raises:
        RunError: the folder is not a run, or a record is damaged.
        StorageError: the disk refused.
    """
    path = run_path(run_dir) / "report.html"
    write_text(path, _environment().get_template("report.html.j2").render(_context(run_path(run_dir))))
    return path


def _environment() -> Environment:
    environment = page_environment()
    environment.filters |= {
        "shown": shown,
        "prompt_text": prompt_text,
        "number": _number,
        "share": _share,
        "signed": _signed,
        "duration": _duration,
        "as_unit": _as_unit,
        "compact_json": _compact_json,
    }
    return environment


def _context(path: Path) -> dict[str, Any]:
    metrics, evaluations, events = list(read_metrics(path)), read_evaluations(path), list(read_events(path))
    summary = summarise(path)
    drawn, not_drawn = charts(metrics, evaluations, summary["method"])
    burnt = flame(metrics, read_seconds_after(path, len(metrics)))
    scripts = page_scripts()
    return {
        "name": path.resolve().name,
        "summary": summary,
        "headline": headline(summary["eval_before"], summary["eval_after"]),
        "certainty": certainty(summary["eval_before"], summary["eval_after"]),
        "measures": measures(summary["eval_before"], summary["eval_after"]),
        "kinds": _kinds(summary["eval_before"], summary["eval_after"]),
        "formula": read_text(path / "formula.txt"),
        "settings": _settings(read_text(path / "config.toml")),
        "machine": named_texts(read_document(path / "environment.json"))[:_MAX_SETTINGS],
        "charts": drawn,
        "not_drawn": not_drawn,
        "flame": burnt,
        "figures": [one.figure() for one in drawn] + ([burnt.figure()] if burnt else []),
        "steps_per_point": -(-len(metrics) // MAX_POINTS),
        "costs": _costs(
            costs_of(metrics, summary["eval_before"], summary["eval_after"], samples=summary["method"] not in OFFLINE)
        ),
        "judge_probes": [event["data"] for event in events if event["kind"] == "judge_probe"],
        "events": events[-MAX_EVENTS:],
        "num_events": len(events),
        "event_kinds": Counter(event["kind"] for event in events).most_common(_MAX_KINDS),
        "samples": sample_rollouts(path),
        "is_offline": summary["method"] in OFFLINE,
        "num_steps_recorded": len(count_rollouts(path)),
        "composition": composition,
        "scripts": scripts,
        "policy": content_policy(scripts),
        "style": style(),
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """One row of the held-out table, in words; ``tracks`` are (lowest, highest, value) in percent of the width."""

    label: str
    before: str
    after: str
    change: str
    tracks: tuple[tuple[str, float, float, float], ...] = ()


def headline(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """Say in one sentence what the held-out evaluation found."""
    start, end = (before or {}).get("greedy"), (after or {}).get("greedy")
    if start is None and end is None:
        return "Not evaluated on held-out tasks yet"
    if start is None or end is None:
        known, when = (end, "after training") if start is None else (start, "before training; no result after it yet")
        return f"Held-out accuracy {_share(known)} {when}"
    direction = "rose" if end > start else "fell" if end < start else "stayed"
    sentence = f"Held-out accuracy {direction} from {_share(start)} to {_share(end)}"
    return sentence if direction != "stayed" else f"Held-out accuracy stayed at {_share(end)}"


def certainty(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """Say how sure the change of greedy accuracy is; nothing when it was not measured.

    On the same tasks the exact sign test over the answers that changed decides; without a record of them, whether the
    two intervals are apart.
    """
    paired = _changed_answers(before or {}, after or {})
    if paired is not None:
        return _sign_test(*paired)
    old, new = (before or {}).get("interval"), (after or {}).get("interval")
    if old is None or new is None:
        return ""
    if old[1] < new[0] or new[1] < old[0]:
        return "The intervals before and after do not overlap."
    return "The intervals before and after overlap: this run alone does not show a change."


def _changed_answers(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[int, int] | None:
    """Tasks that became right and that became wrong; None when the two were not asked the same, or not recorded."""
    if before.get("task_digest") is None or before.get("task_digest") != after.get("task_digest"):
        return None
    old, new = before.get("greedy_correct"), after.get("greedy_correct")
    if old is None or new is None:
        return None
    pairs = list(zip(old, new, strict=True))
    return sum(not int(a) and bool(int(b)) for a, b in pairs), sum(bool(int(a)) and not int(b) for a, b in pairs)


def _sign_test(won: int, lost: int) -> str:
    if won + lost == 0:
        return "No held-out answer changed between right and wrong."
    p = float(binomtest(won, won + lost).pvalue)
    verdict = "chance alone hardly does that" if p < 0.05 else "chance alone may do that"
    return f"{won} held-out tasks became right and {lost} wrong: {verdict} (exact sign test, p {p:.2g})."


def measures(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[Measure]:
    """Return the rows of the held-out table; a number that was not measured is a dash."""
    old, new = before or {}, after or {}
    k = new.get("k", old.get("k", "k"))
    return [
        _share_measure("greedy", old, new, "greedy", "interval"),
        _share_measure("pass@1", old, new, "pass_at_1", "pass_at_1_interval"),
        _share_measure(f"pass@{k}", old, new, "pass_at_k", "pass_at_k_interval"),
        _share_measure("truncated", old, new, "truncated_frac", ""),
        _number_measure("tokens per correct answer", old, new, "tokens_per_correct"),
        _number_measure("tokens per completion", old, new, "mean_tokens"),
        *_reward_measures(old, new),
    ]


def _reward_measures(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Measure]:
    """Each component's mean over the greedy answers, where there are several; and what hostile completions earn."""
    before, after = old.get("components") or {}, new.get("components") or {}
    names = list(dict.fromkeys([*before, *after]))
    found = [_number_measure(f"component {name}, greedy", before, after, name) for name in names if len(names) > 1]
    start, end = ((one.get("adversarial") or {}).get("paid_frac") for one in (old, new))
    if start is None and end is None:
        return found
    paid = Measure(
        label="hostile completions paid", before=_share(start), after=_share(end), change=_points(start, end)
    )
    return [*found, paid]


def _share_measure(label: str, old: Mapping[str, Any], new: Mapping[str, Any], name: str, interval: str) -> Measure:
    pairs = (("before", old), ("after", new))
    return Measure(
        label=label,
        before=_with_interval(old, name, interval),
        after=_with_interval(new, name, interval),
        change=_points(old.get(name), new.get(name)),
        tracks=tuple((when, *_track(found, name, interval)) for when, found in pairs if found.get(name) is not None),
    )


def _track(found: Mapping[str, Any], name: str, interval: str) -> tuple[float, float, float]:
    value = found[name]
    low, high = found.get(interval) or (value, value)
    return round(100 * low, 2), round(100 * high, 2), round(100 * value, 2)


def _with_interval(found: Mapping[str, Any], name: str, interval: str) -> str:
    value, bounds = found.get(name), found.get(interval)
    if value is None:
        return _DASH
    return _share(value) if bounds is None else f"{_share(value)} [{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]"


def _number_measure(label: str, old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> Measure:
    start, end = old.get(name), new.get(name)
    change = _DASH if not start or end is None else _minus(f"{100 * (end - start) / start:+.0f} %")
    return Measure(label=label, before=_number(start), after=_number(end), change=change)


def _points(start: float | None, end: float | None) -> str:
    return _DASH if start is None or end is None else _minus(f"{100 * (end - start):+.1f} points")


def _kinds(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[tuple[str, str, str, str]]:
    old, new = (before or {}).get("by_kind") or {}, (after or {}).get("by_kind") or {}
    rows = [(kind, _accuracy(old.get(kind)), _accuracy(new.get(kind))) for kind in sorted({*old, *new})]
    return [(kind, _share(start), _share(end), _points(start, end)) for kind, start, end in rows[:_MAX_KINDS]]


def _accuracy(found: Any) -> float | None:
    value = found.get("greedy", found.get("pass_at_1")) if isinstance(found, Mapping) else found
    return value if isinstance(value, int | float) else None


def _settings(config_toml: str) -> list[tuple[str, str]]:
    try:
        config = tomllib.loads(config_toml)
    except tomllib.TOMLDecodeError:
        return [("config.toml", config_toml)]
    return named_texts(config)[:_MAX_SETTINGS]


def _compact_json(value: Any) -> str:
    return shown(json.dumps(value, ensure_ascii=False), 240)


def _costs(costs: Costs) -> dict[str, Any]:
    return {
        "headings": cost_headings(),
        "rows": cost_cells(costs),
        "segments": cost_segments(costs),
        "phases": [(phase, colour_of(phase)) for phase in costs.seconds],
        "facts": cost_facts(costs),
    }


def _number(value: float | None) -> str:
    if value is None:
        return _DASH
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def _as_unit(value: float, unit: str) -> str:
    if unit == "share":
        return f"{100 * value:.3g} %"
    return _duration(value) if unit == "seconds" else _number(value)


def _share(value: float | None) -> str:
    return _DASH if value is None else f"{100 * value:.1f} %"


def _signed(value: float) -> str:
    return "0" if value == 0 else _minus(f"{value:+.2f}")


def _minus(number: str) -> str:
    return number.replace("-", "−")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
