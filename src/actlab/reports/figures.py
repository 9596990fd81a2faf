"""Draw the figures of a study as read by `actlab.reports.plots`: our curves over published ones."""

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
_ROW = 2.45  # inches: height of a row of panels
_PAPER_ROW = 1.9  # inches: the same in a paper
# Characters per inch of width below a panel, and along its height.
_WIDE, _HIGH = (
    14,
    30,
)
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
    """Return a drawn figure: title, legend, panels, caption; a paper's has no title and caption."""
    number = len(plot.panels)

    # Size
    per_row = _PER_ROW
    if paper and paper.columns == 1:
        per_row = 1 if number <= _STACKED else 2
    columns = min(number, per_row)
    if paper:
        width = paper.width
        height = _PAPER_ROW
    else:
        width = max(5.2, 3.3 * columns)
        height = _ROW
    rows = [height] * math.ceil(number / columns)

    # Legends: a colour for each label, then a style for each kind of line
    palette = style.colours((line.label for line in plot.lines), plot.users)
    legends = _label_legends(plot, palette, width)
    looks = {kind: _look(plot, kind) for kind in plot.kinds}
    if len(looks) > 1:
        handles = []
        for kind, look in looks.items():
            # The legend of styles has no colour of a label
            handles.append(Line2D([], [], color=style.INK, label=kind, **look))
        legends.append(handles)

    # Empty panels, framed by title, legends and caption
    figure, axes = style.framed(
        plot.name,
        number,
        columns,
        width,
        rows,
        title=results.study.title,
        caption=plot.caption,
        legends=legends,
        paper=paper,
    )

    # In characters, as matplotlib does not wrap titles
    title_width = int(_WIDE * width / columns)
    for ax, panel in zip(axes, plot.panels, strict=True):
        # The user's activations on top
        for line in sorted(panel.lines, key=lambda line: line.by_user):
            _draw_line(ax, line, panel, palette[line.label], looks[plot.kind_of(line)])
        _set_axes(ax, panel, title_width)
    return figure


def _look(plot: Plot, kind: str) -> Mapping[str, Any]:
    """Return matplotlib's arguments for a kind of line; a metric has dashes of its own."""
    if kind in _LOOKS:
        return _LOOKS[kind]
    dash = plot.dash_of(kind)
    return {**_LOOKS["held out"], "ls": (0, dash) if dash else "-"}


def _set_axes(ax: Axes, panel: Panel, width: int) -> None:
    """Set texts and limits; lines of text below and above a panel have ``width`` characters."""
    if panel.log:
        ax.set_yscale("log")
    title = textwrap.fill(panel.title, width)
    xlabel = textwrap.fill(panel.xlabel, width)
    ylabel = textwrap.fill(panel.ylabel, _HIGH)
    ax.set(title=title, xlabel=xlabel)
    ax.set(ylabel=ylabel, ylim=limits(panel))
    _set_x_axis(ax, panel)


def _set_x_axis(ax: Axes, panel: Panel) -> None:
    # From epoch 0, or from the smallest condition
    positions = np.concatenate([line.curve.x for line in panel.lines])
    low = 0.0
    high = float(positions.max())
    if not panel.over_epochs:
        low = float(positions.min())

    # A single position
    if low == high:
        ax.set_xticks([low])
        return

    # Epochs fill the axis, conditions leave a margin
    margin = 0.0
    if not panel.over_epochs:
        margin = 0.02 * (high - low)
    ax.set_xlim(low - margin, high + margin)
    if panel.over_epochs or np.all(positions % 1 == 0):
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def _draw_line(
    ax: Axes, line: Line, panel: Panel, colour: str, look: Mapping[str, Any]
) -> None:
    """Draw the published curve, then our medians and the band around them."""
    # The published curve, below the medians
    published = line.published
    if published:
        ax.plot(
            published.x, published.values, color=colour, zorder=2, **_LOOKS["published"]
        )

    # Mark positions that are few
    x = line.curve.x
    arguments = dict(look)
    most = 1 if panel.over_epochs else _MANY
    if len(x) <= most:
        arguments |= _DOTS

    # Medians
    zorder = 3.0
    if line.by_user:
        zorder = 3.5
        arguments["lw"] *= _OWN
    band = line.curve.band
    ax.plot(x, _drawable(band.median, panel), color=colour, zorder=zorder, **arguments)

    # Band
    if line.curve.shaded:
        low = _drawable(band.low, panel)
        high = _drawable(band.high, panel)
        if len(x) > 1:
            ax.fill_between(x, low, high, color=colour, alpha=0.2, lw=0, zorder=1)
        else:
            ax.vlines(x, low, high, color=colour, alpha=0.5, lw=1.4, zorder=1)


def _drawable(values: Any, panel: Panel) -> Any:
    """Return values in drawn units, NaN where they are not finite or have no logarithm."""
    drawable = np.isfinite(values)
    if panel.log:
        drawable &= values > 0
    return np.where(drawable, values, np.nan) * panel.scale


def _label_legends(
    plot: Plot, palette: Mapping[str, str], width: float
) -> list[list[Any]]:
    """Return a legend handle for each label, in rows that fit into a width in inches."""
    rows: list[list[Any]] = [[]]
    used = 0.0
    for label, colour in palette.items():
        # Start another row if the label does not fit
        needed = 0.5 + 0.075 * len(label)
        if rows[-1] and used + needed > width:
            rows.append([])
            used = 0.0

        # A thicker line for the user's activations
        lw = 5 if label in plot.users else 3
        text = style.in_legend(label)
        rows[-1].append(
            Line2D([], [], color=colour, label=text, lw=lw, solid_capstyle="butt")
        )
        used += needed
    return rows
