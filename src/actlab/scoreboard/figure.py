"""The scoreboard as a figure: the mean rank of each activation, and its rank on each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from actlab.analysis.wording import plural
from actlab.reports import style
from actlab.reports.canvas import Axes, Figure, mpl
from actlab.scoreboard.scores import Scoreboard, Standing, order
from actlab.scoreboard.sentences import NONE

_CAPTION = (
    "Right: the mean rank on the data sets of each task; darker is better. ×: fails on a data set "
    "of the task on which {reference} does not fail. {missing}Error ratios with their intervals "
    "are in scoreboard.md and index.html. Other data, tasks and sizes may order activations "
    "otherwise."
)
# Inches: the width, the height of a row, and the height of the other parts
_WIDTH = 6.75
_PANELS = (2, 3)  # relative widths
_ROW = 0.24
_HEAD = 0.7
_LEVEL_TITLES = 5  # more titles of columns are slanted
_PALEST = 0.08  # of the colour map
_DARKEST = 0.85
_DARK = 0.65  # a darker cell has white text
_SMALL = 7  # font size in cells


def tasks_of(scoreboard: Scoreboard) -> list[str]:
    """Return the names of the tasks on which any activation has runs."""
    names: dict[str, None] = {}
    for standing in scoreboard.standings:
        names |= dict.fromkeys(standing.tasks)
    return list(names)


def draw(scoreboard: Scoreboard) -> Figure:
    """Return the figure, with the best activation in the first row."""
    standings = _shown(scoreboard.standings)
    tasks = tasks_of(scoreboard)

    # Lay out two panels
    labels = [standing.label for standing in standings]
    height = _HEAD + _ROW * len(labels)
    title = f"Ranks over {plural(len(tasks), 'task')}: 1 is the best"
    caption = _caption(scoreboard, standings)
    figure, (left, right) = style.framed(
        "scoreboard", 2, 2, _WIDTH, [height], title, caption
    )
    grid = left.get_gridspec()
    assert grid is not None
    grid.set_width_ratios(_PANELS)

    # Draw the panels, with names of rows on the left
    _draw_means(left, standings, style.colours(labels, scoreboard.users))
    _draw_tasks(right, standings, tasks)
    style.name_rows(left, labels, scoreboard.users)
    style.name_rows(right, labels, scoreboard.users, shown=False)
    return figure


def _shown(standings: Sequence[Standing]) -> list[Standing]:
    """Return the activations with a row: the user's, and those with a rank, if any has one."""
    ordered = sorted(standings, key=order)
    if all(standing.own or not standing.rank for standing in ordered):
        return ordered
    return [standing for standing in ordered if standing.own or standing.rank]


def _caption(scoreboard: Scoreboard, standings: Sequence[Standing]) -> str:
    """Return how to read the figure, and which activations have no row."""
    # Activations without a row
    labels = [
        standing.label for standing in scoreboard.standings if standing not in standings
    ]
    missing = ""
    if labels:
        missing = f"Without {', '.join(labels)}, on too few tasks. "
    return _CAPTION.format(reference=scoreboard.reference, missing=missing)


def _draw_means(
    ax: Axes, standings: Sequence[Standing], colours: Mapping[str, str]
) -> None:
    """Draw the mean rank of each activation, with its number."""
    ax.set_title("mean rank over tasks")
    # The worst rank
    numbers = [standing.rank.among for standing in standings if standing.rank]
    most = max(numbers, default=1)

    # A dot for each mean, with its number
    for row, standing in enumerate(standings):
        if not standing.rank:
            ax.text(1, row, "no rank", va="center", color=style.GREY)
            continue
        mean = standing.rank.mean
        ax.hlines(row, 1, mean, color=style.GREY, lw=0.5, zorder=1)
        ax.plot(mean, row, "o", color=colours[standing.label], ms=5.5, zorder=3)
        ax.text(mean + 0.04 * most, row, f"{mean:.1f}", va="center")

    # Room for the number of the last one
    ax.set_xlim(0.7, most + 1)
    ax.set_xticks(range(1, most + 1, 3))


def _draw_tasks(ax: Axes, standings: Sequence[Standing], tasks: Sequence[str]) -> None:
    """Draw a cell with the rank of each activation on each task."""
    # A dash for a task without a rank
    centred: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": _SMALL}
    for row, standing in enumerate(standings):
        for column, name in enumerate(tasks):
            task = standing.tasks.get(name)
            if not task or not standing.rank or task.rank is None:
                ax.text(column, row, NONE, color=style.GREY, **centred)
                continue

            # A dark cell for a good rank
            share = (standing.rank.among - task.rank) / max(1, standing.rank.among - 1)
            shade = _PALEST + (_DARKEST - _PALEST) * share
            colour = mpl.colormaps["Blues"](shade)
            ax.barh(row, 0.94, 0.86, column - 0.47, color=colour)

            # Its rank
            text = f"{task.rank:.1f}"
            if task.fails:
                text += " ×"
            ink = "white" if shade > _DARK else style.INK
            ax.text(column, row, text, color=ink, **centred)

    # Names of the tasks above
    ax.set_xlim(-0.5, len(tasks) - 0.5)
    ax.xaxis.tick_top()
    slanted: dict[str, Any] = {}
    if len(tasks) > _LEVEL_TITLES:
        slanted = {"rotation": 40, "ha": "left", "rotation_mode": "anchor"}
    ax.set_xticks(range(len(tasks)), tasks, **slanted)
    ax.tick_params(axis="x", length=0)
    ax.spines["bottom"].set_visible(False)
