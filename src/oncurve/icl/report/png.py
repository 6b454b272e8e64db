"""Drawings as PNG files."""

import re
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from oncurve.icl.report.drawings import Bars, Drawing, Heat, Lines
from oncurve.report.charts import Curve
from oncurve.report.markup import style
from oncurve.report.storage import replacing, storage_errors

_DPI = 130
_PIXELS_AN_INCH = 80


def write_pictures(drawings: list[Drawing], folder: Path) -> list[Path]:
    """Write ``KEY.png`` for every drawing into a folder, made if needed. Raises StorageError."""
    with storage_errors(folder, "create"):
        folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for drawing in drawings:
        path = folder / f"{drawing.key}.png"
        with replacing(path) as temporary:
            picture(drawing).savefig(temporary, format="png", dpi=_DPI, metadata={"Software": None})
        paths.append(path)
    return paths


def picture(drawing: Drawing) -> Figure:
    """Draw it with matplotlib, without a display."""
    height = max(3.2, drawing.height / _PIXELS_AN_INCH)
    figure = Figure(figsize=(8.0 if drawing.is_wide else 6.4, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(drawing.title, loc="left", fontsize=11)
    axes.set_xlabel(drawing.x_title)
    axes.spines[["top", "right"]].set_visible(False)
    colours = page_colours()
    if isinstance(drawing, Lines):
        _draw_lines(axes, drawing, colours)
    elif isinstance(drawing, Heat):
        _draw_heat(figure, axes, drawing, colours)
    else:
        _draw_bars(figure, axes, drawing, colours)
    return figure


def page_colours() -> dict[str, str]:
    """The colours of the page in light mode: ``--blue`` to ``#2f6db3``."""
    light = str(style()).split("@media", maxsplit=1)[0]
    return dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6})(?:;|\b)", light))


def _draw_lines(axes: Axes, drawing: Lines, colours: dict[str, str]) -> None:
    for one in drawing.curves:
        colour = colours[one.colour]
        known = [(x, y) for x, y in zip(one.steps, one.values, strict=True) if y is not None]
        xs, ys = [x for x, _ in known], [y for _, y in known]
        axes.plot(xs, ys, color=colour, label=one.label, marker="o" if len(xs) <= 40 else "", markersize=3.5)
        if band := _band(one):
            places, low, high = zip(*band, strict=True)
            axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    if drawing.is_log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(axis="y", color=colours["--rule"])
    axes.legend(frameon=False, fontsize=8, ncols=2)


def _band(one: Curve) -> list[tuple[float, float, float]]:
    """(place, low, high) of a curve's band, where the curve is drawn."""
    if not one.low:
        return []
    rows = zip(one.steps, one.values, one.low, one.high, strict=True)
    return [
        (place, low, high)
        for place, value, low, high in rows
        if value is not None and low is not None and high is not None
    ]


def _draw_heat(figure: Figure, axes: Axes, drawing: Heat, colours: dict[str, str]) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("page", [colours["--paper"], colours["--blue"]])
    image = axes.imshow(drawing.rows, aspect="auto", origin="lower", cmap=shades)
    columns = list(drawing.columns)
    step = -(-len(columns) // 13)
    axes.set_xticks(range(0, len(columns), step), columns[::step])
    axes.set_yticks(range(len(drawing.rows)))
    axes.set_ylabel("layer")
    places = [columns.index(name) for name in drawing.marked]
    axes.plot(places, range(len(places)), color=colours["--red"], marker="o", label="best match of a layer")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.colorbar(image, ax=axes)


def _draw_bars(figure: Figure, axes: Axes, drawing: Bars, colours: dict[str, str]) -> None:
    thickness = 0.8 / drawing.num_beside
    position = 0
    for one in drawing.series:
        known = [(row, value) for row, value in enumerate(drawing.drawn(one)) if value is not None]
        values = [value for _, value in known]
        if one.is_mark:
            rows = [row for row, _ in known]
            axes.scatter(values, rows, color=colours[one.colour], marker="D", s=22, label=one.label, zorder=3)
            continue
        offset = 0.0 if drawing.is_stacked else (position - (drawing.num_beside - 1) / 2) * thickness
        places = [row + offset for row, _ in known]
        position += 1
        axes.barh(places, values, thickness, color=colours[one.colour], label=one.label)
        if one.low:
            spread = [[value - one.low[row] for row, value in known], [one.high[row] - value for row, value in known]]
            axes.errorbar(values, places, xerr=spread, fmt="none", ecolor=colours["--ink"], elinewidth=0.8)
    axes.set_yticks(range(len(drawing.labels)), drawing.labels, fontsize=8)
    axes.invert_yaxis()
    if drawing.is_log:
        axes.set_xscale("log")
    axes.grid(axis="x", color=colours["--rule"])
    axes.set_axisbelow(True)
    figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=3)
