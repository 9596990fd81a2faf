"""The scoreboard as a figure: a panel over tasks, and one for each task with its data sets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import cycle

from actlab.reports import style
from actlab.reports.canvas import Axes, Figure
from actlab.scoreboard.scores import Scoreboard
from actlab.scoreboard.statistic import Ratio

OVER = "over these tasks"
_CAPTION = (
    "Error divided by that of {reference}: geometric means over runs at chosen settings, with 95 % "
    "intervals of other seeds; below 1 is better. Each panel has its own axis. Crosses: most runs "
    "failed. Open circles: over the other tasks alone. {markers}Other data, tasks and sizes may "
    "order activations otherwise."
)
# Inches: the width, the height of a row of a panel, and the height of its other parts
_WIDTH = 6.75
_ROW = 0.22
_HEAD = 0.62
_COLUMNS = 4
# Of the data sets of a panel
_MARKERS = {"o": "circles", "s": "squares", "^": "triangles", "D": "diamonds"}

Ratios = dict[str, Ratio | None]  # by label; None where most runs failed


def panels(scoreboard: Scoreboard) -> dict[str, Ratios]:
    """Return the ratios over tasks, and those on each data set."""
    ratios: dict[str, Ratios] = {OVER: {}}
    for standing in scoreboard.standings:
        if standing.over:
            ratios[OVER][standing.label] = standing.over.here
        for score in standing.on:
            ratios.setdefault(score.name, {})[standing.label] = score.ratio
    return ratios


def draw(scoreboard: Scoreboard) -> Figure:
    """Return the figure."""
    # Group the data sets by panel
    drawn: dict[str, dict[str, Ratios]] = {}
    for name, ratios in panels(scoreboard).items():
        task, _, data = name.partition(": ")
        data, _, part = data.partition(", block ")
        title = f"{task}, {part}" if part else task
        drawn.setdefault(title, {})[data] = ratios

    # Lay out as few empty axes as possible
    labels = [standing.label for standing in scoreboard.standings]
    rows = math.ceil(len(drawn) / _COLUMNS)
    columns = math.ceil(len(drawn) / rows)
    heights = [_HEAD + _ROW * len(labels)] * rows
    title = f"Error relative to {scoreboard.reference}"
    caption = _CAPTION.format(reference=scoreboard.reference, markers=_markers(drawn))
    figure, axes = style.framed("scoreboard", len(drawn), columns, _WIDTH, heights, title, caption)

    # Draw each panel, with names of rows on the left
    colours = style.colours(labels, scoreboard.users)
    for number, (name, by_data) in enumerate(drawn.items()):
        _draw_panel(axes[number], name, by_data, colours, scoreboard)
        style.name_rows(axes[number], labels, scoreboard.users, shown=number % columns == 0)
    return figure


def _markers(drawn: Mapping[str, Mapping[str, Ratios]]) -> str:
    """Return which marker shows which data set, where a panel has several."""
    sentences = {}
    for name, by_data in drawn.items():
        if len(by_data) > 1:
            task = name.partition(",")[0].capitalize()
            pairs = zip(by_data, _MARKERS.values(), strict=False)
            parts = [f"{data} {marker}" for data, marker in pairs]
            sentences[task] = f"{task}: {', '.join(parts)}. "
    return "".join(sentences.values())


def _draw_panel(
    ax: Axes,
    name: str,
    by_data: Mapping[str, Ratios],
    colours: Mapping[str, str],
    scoreboard: Scoreboard,
) -> None:
    """Draw the ratios on each data set, one row for each activation."""
    ax.set_title(name)
    ax.axvline(1, color=style.GREY, lw=0.8, zorder=1)

    # Data sets below each other in the row of an activation, with a marker of its own for each
    low = 0.99
    high = 1.01
    for number, (ratios, marker) in enumerate(zip(by_data.values(), cycle(_MARKERS))):
        offset = 0.7 * ((number + 0.5) / len(by_data) - 0.5)
        for row, standing in enumerate(scoreboard.standings):
            label = standing.label
            if label not in ratios:
                continue
            y = row + offset
            colour = colours[label]
            ratio = ratios[label]

            # A cross at the right for an activation that failed
            if ratio is None:
                at_right = ax.get_yaxis_transform()
                ax.plot(0.97, y, "x", color=colour, transform=at_right, ms=3.5, mew=1)
                continue

            ax.hlines(y, ratio.low, ratio.high, color=colour, lw=1.4, zorder=2)
            inside = "white" if name == OVER and standing.failures else colour
            ax.plot(ratio.value, y, marker, color=colour, mfc=inside, ms=3, zorder=3)
            low = min(low, ratio.low)
            high = max(high, ratio.high)

    # Show all intervals
    style.show_ratios(ax, low, high, most=3)
    margin = (high / low) ** 0.06
    ax.set_xlim(low / margin, high * margin)
