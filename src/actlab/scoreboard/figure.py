"""The scoreboard as a figure: a panel of ranks, and one for each task with its data sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle

from actlab.analysis.wording import joined
from actlab.reports import style
from actlab.reports.canvas import Axes, Figure
from actlab.scoreboard.scores import Score, Scoreboard, Standing

_CAPTION = (
    "Ranks: the mean over tasks, and small marks for each task; 1 is the best, failures rank last. "
    "Other panels: error divided by the error of {reference}, geometric means of {runs} runs at "
    "selected settings, with 95 % intervals of other seeds; below 1 is better. Each panel has its "
    "own axis. Crosses: most runs failed. Open marks: the setting is an end of what was tried. "
    "{markers}{missing}Other data, tasks and sizes may order activations otherwise."
)
# Inches: the width, the height of a row of a panel, and the height of its other parts
_WIDTH = 6.75
_ROW = 0.22
_HEAD = 0.62
_COLUMNS = 4
# Of the data sets of a panel
_MARKERS = {"o": "circles", "s": "squares", "^": "triangles", "D": "diamonds"}

Scores = dict[str, Score]  # on a data set, by label


def tasks_of(scoreboard: Scoreboard) -> list[str]:
    """Return the names of the tasks on which any activation has runs."""
    names: dict[str, None] = {}
    for standing in scoreboard.standings:
        names |= dict.fromkeys(standing.tasks)
    return list(names)


def draw(scoreboard: Scoreboard) -> Figure:
    """Return the figure."""
    standings = _shown(scoreboard.standings)
    panels = _panels(standings)

    # Lay out as few empty axes as possible
    labels = [standing.label for standing in standings]
    number = len(panels) + 1
    rows = math.ceil(number / _COLUMNS)
    columns = math.ceil(number / rows)
    heights = [_HEAD + _ROW * len(labels)] * rows
    title = f"Ranks, and error relative to {scoreboard.reference}"
    caption = _caption(scoreboard, standings, panels)
    figure, axes = style.framed(
        "scoreboard", number, columns, _WIDTH, heights, title, caption
    )

    # Draw each panel, with names of rows on the left
    colours = style.colours(labels, scoreboard.users)
    _draw_ranks(axes[0], standings, colours)
    for ax, (name, by_data) in zip(axes[1:], panels.items(), strict=True):
        _draw_panel(ax, name, by_data, colours)
    for position, ax in enumerate(axes):
        style.name_rows(ax, labels, scoreboard.users, shown=position % columns == 0)
    return figure


def _shown(standings: Sequence[Standing]) -> list[Standing]:
    """Return the activations with a row: the user's, and those with a rank, if any has one."""
    if all(standing.own or not standing.rank for standing in standings):
        return list(standings)
    return [standing for standing in standings if standing.own or standing.rank]


def _panels(standings: Sequence[Standing]) -> dict[str, dict[str, Scores]]:
    """Return the scores on each data set, by the title of a panel."""
    panels: dict[str, dict[str, Scores]] = {}
    for standing in standings:
        for score in standing.on:
            task, _, data = score.name.partition(": ")
            data, _, part = data.partition(", block ")
            by_data = panels.setdefault(joined(task, part), {})
            by_data.setdefault(data, {})[standing.label] = score
    return panels


def _caption(
    scoreboard: Scoreboard,
    standings: Sequence[Standing],
    panels: Mapping[str, Mapping[str, Scores]],
) -> str:
    """Return how to read the figure."""
    # How many runs there are
    numbers: set[int] = set()
    for standing in standings:
        numbers.update(score.runs for score in standing.on)

    # Who has no row
    labels = [
        standing.label for standing in scoreboard.standings if standing not in standings
    ]
    missing = ""
    if labels:
        missing = f"Without {', '.join(labels)}, on too few tasks. "
    return _CAPTION.format(
        reference=scoreboard.reference,
        runs=" or ".join(map(str, sorted(numbers))),
        markers=_markers(panels),
        missing=missing,
    )


def _markers(panels: Mapping[str, Mapping[str, Scores]]) -> str:
    """Return which marker shows which data set, where a panel has several."""
    sentences = {}
    for name, by_data in panels.items():
        if len(by_data) > 1:
            task = name.partition(",")[0].capitalize()
            pairs = zip(by_data, _MARKERS.values(), strict=False)
            parts = [f"{data} {marker}" for data, marker in pairs]
            sentences[task] = f"{task}: {', '.join(parts)}. "
    return "".join(sentences.values())


def _draw_ranks(
    ax: Axes, standings: Sequence[Standing], colours: Mapping[str, str]
) -> None:
    """Draw the mean rank of each activation, and its rank on each task."""
    ax.set_title("rank over tasks")
    most = 1
    for row, standing in enumerate(standings):
        if not standing.rank:
            continue
        colour = colours[standing.label]
        most = max(most, standing.rank.among)
        for task in standing.tasks.values():
            if task.rank is not None:
                ax.plot(task.rank, row, "|", color=colour, ms=5, mew=0.9, alpha=0.6)
        ax.plot(standing.rank.mean, row, "o", color=colour, ms=4.5, zorder=3)
    ax.set_xlim(0.5, most + 0.5)
    ax.set_xticks(range(1, most + 1, 3))


def _draw_panel(
    ax: Axes, name: str, by_data: Mapping[str, Scores], colours: Mapping[str, str]
) -> None:
    """Draw the ratios on each data set, one row for each activation."""
    ax.set_title(name)
    ax.axvline(1, color=style.GREY, lw=0.8, zorder=1)

    # Data sets below each other in the row of an activation, with a marker of its own
    # for each
    low = 0.99
    high = 1.01
    for number, (scores, marker) in enumerate(zip(by_data.values(), cycle(_MARKERS))):
        offset = 0.7 * ((number + 0.5) / len(by_data) - 0.5)
        for row, (label, colour) in enumerate(colours.items()):
            score = scores.get(label)
            if not score:
                continue
            y = row + offset

            # A cross at the right for an activation that failed
            if score.fails:
                at_right = ax.get_yaxis_transform()
                ax.plot(0.97, y, "x", color=colour, transform=at_right, ms=3.5, mew=1)

            # A mark and an interval; open at the end of what was tried
            elif score.ratio:
                ratio = score.ratio
                ax.hlines(y, ratio.low, ratio.high, color=colour, lw=1.4, zorder=2)
                inside = colour
                if score.edge:
                    inside = "white"
                ax.plot(
                    ratio.value, y, marker, color=colour, mfc=inside, ms=3, zorder=3
                )
                low = min(low, ratio.low)
                high = max(high, ratio.high)

    # Show all intervals
    style.show_ratios(ax, low, high, most=3)
    margin = (high / low) ** 0.06
    ax.set_xlim(low / margin, high * margin)
