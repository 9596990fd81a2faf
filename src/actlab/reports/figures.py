"""Draw the figures of a study, our curves over the published ones, as read by `actlab.reports.plots`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from actlab.analysis.results import Results
from actlab.reports import style
from actlab.reports.canvas import Axes, Figure, Line2D, MaxNLocator, mpl
from actlab.reports.panels import Line, Panel, Plot, limits
from actlab.reports.plots import read

_PER_ROW = 3
_STACKED = 3  # panels one below the other in a paper's column; more are in pairs
_PAPER_ROW = 1.9  # inches: height of a row of panels in a paper
_WIDE, _HIGH = 14, 30  # characters: per inch of width below a panel, and along its height
_LOOKS: dict[str, dict[str, Any]] = {
    "held out": {"lw": 1.4, "ls": "-"},
    "training": {"lw": 1.1, "ls": (0, (4, 1.6)), "alpha": 0.8},
    "published": {"lw": 1.0, "ls": (0, (1, 1.3))},
}
_LOOKS["learnt"] = _LOOKS["held out"]
_DOTS: dict[str, Any] = {"marker": "o", "ms": 2.6}
_OWN = 1.6  # how much thicker the line of a user's activation is
_MANY = 12  # positions on the x axis above which dots would hide the band


def draw(results: Results, paper: style.Paper | None = None) -> dict[str, Figure]:
    """Return every figure of a study, by name."""
    with mpl.rc_context(paper.rc if paper else style.RC):
        return {plot.name: figure_of(results, plot, paper) for plot in read(results)}


def figure_of(results: Results, plot: Plot, paper: style.Paper | None = None) -> Figure:
    """Return a drawn figure: title, legend, panels, caption; for a paper without title and caption."""
    narrow = 1 if len(plot.panels) <= _STACKED else 2
    columns = min(len(plot.panels), narrow if paper and paper.columns == 1 else _PER_ROW)
    rows = [_PAPER_ROW if paper else 2.45] * math.ceil(len(plot.panels) / columns)
    width = paper.width if paper else max(5.2, 3.3 * columns)
    palette = style.colours((line.label for line in plot.lines), plot.users)
    looks = {kind: _LOOKS.get(kind) or _look(plot.dash_of(kind)) for kind in plot.kinds}
    styles = [Line2D([], [], color=style.INK, label=kind, **look) for kind, look in looks.items()]
    legends = [*_units(plot, palette, width), *([styles] if len(styles) > 1 else [])]
    texts = results.study.title, plot.caption, legends
    figure, axes = style.framed(plot.name, len(plot.panels), columns, width, rows, *texts, paper)
    for ax, panel in zip(axes, plot.panels, strict=True):
        for line in sorted(panel.lines, key=lambda line: line.by_user):
            _draw_line(ax, line, panel, palette[line.label], looks[plot.kind_of(line)])
        _set_axes(ax, panel, int(_WIDE * width / columns))
    return figure


def _look(dash: tuple[float, ...]) -> dict[str, Any]:
    return {**_LOOKS["held out"], "ls": (0, dash) if dash else "-"}


def _set_axes(ax: Axes, panel: Panel, wide: int) -> None:
    if panel.log:
        ax.set_yscale("log")
    ax.set(title=textwrap.fill(panel.title, wide), xlabel=textwrap.fill(panel.xlabel, wide))
    ax.set(ylabel=textwrap.fill(panel.ylabel, _HIGH), ylim=limits(panel))
    _set_x_axis(ax, panel)


def _set_x_axis(ax: Axes, panel: Panel) -> None:
    places = np.concatenate([line.ours.x for line in panel.lines])
    first, last = 0.0 if panel.over_epochs else float(places.min()), float(places.max())
    if first == last:
        ax.set_xticks([first])
        return
    margin = 0.0 if panel.over_epochs else 0.02 * (last - first)
    ax.set_xlim(first - margin, last + margin)
    if panel.over_epochs or np.all(places % 1 == 0):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def _draw_line(ax: Axes, line: Line, panel: Panel, colour: str, of_kind: Mapping[str, Any]) -> None:
    x, band = line.ours.x, line.ours.band
    median, low, high = (_drawable(v, panel) for v in (band.median, band.low, band.high))
    if line.published:
        ax.plot(
            line.published.x, line.published.values, color=colour, zorder=2, **_LOOKS["published"]
        )
    dots = {} if len(x) > (1 if panel.over_epochs else _MANY) else _DOTS
    look = {**of_kind, **dots}
    if line.by_user:
        look["lw"] *= _OWN
    ax.plot(x, median, color=colour, zorder=3.5 if line.by_user else 3, **look)
    if line.ours.shaded and len(x) > 1:
        ax.fill_between(x, low, high, color=colour, alpha=0.2, lw=0, zorder=1)
    elif line.ours.shaded:
        ax.vlines(x, low, high, color=colour, alpha=0.5, lw=1.4, zorder=1)


def _drawable(values: Any, panel: Panel) -> Any:
    shown = np.isfinite(values) & ((values > 0) | (not panel.log))
    return np.where(shown, values, np.nan) * panel.scale


def _units(plot: Plot, palette: Mapping[str, str], width: float) -> list[list[Any]]:
    """Return a legend handle per label, in as many rows as a figure of this width (in inches) needs."""
    lines: list[list[Any]] = [[]]
    used = 0.0
    for text, colour in palette.items():
        needed = 0.5 + 0.075 * len(text)
        if lines[-1] and used + needed > width:
            lines.append([])
            used = 0.0
        lw = 5 if text in plot.users else 3
        label = style.in_legend(text)
        lines[-1].append(Line2D([], [], color=colour, label=label, lw=lw, solid_capstyle="butt"))
        used += needed
    return lines
