"""Draw the differences of a study to its reference, with intervals and the margin.

``python results/effects.py results/demo/table.json results/demo/effects.png`` draws the picture of
README. The picture has a row for each activation.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from actlab.analysis import study_table
from actlab.analysis.study_table import StudyTable
from actlab.config.labels import printer
from actlab.reports import style
from actlab.reports.canvas import Figure

WIDTH = 6.0  # inches
ROW = 0.3
HEAD = 0.6


class Effect(NamedTuple):
    """The mean difference of an activation to the reference, in the unit of the table."""

    label: str
    by_user: bool
    mean: float
    low: float
    high: float


def effects_of(table: StudyTable) -> list[Effect]:
    """Return the effects in the primary column, from the best to the worst mean."""
    write = printer(row.point[table.compare] for row in table.rows)
    effects = []
    for row in table.rows:
        paired = row.primary.paired
        if paired.mean is None or paired.low is None or paired.high is None:
            continue  # the reference
        scale = 100 if row.primary.percent else 1
        activation = row.point[table.compare]
        effects.append(
            Effect(
                write(activation),
                str(activation) in map(str, table.own),
                scale * paired.mean,
                scale * paired.low,
                scale * paired.high,
            )
        )
    return sorted(effects, key=lambda effect: effect.mean)


def draw(table: StudyTable) -> Figure:
    """Return the figure."""
    effects = effects_of(table)
    column = table.rows[0].primary
    scale = 100 if column.percent else 1
    unit = "percentage points" if column.percent else "same unit"
    title = f"{column.name.capitalize()}: difference to {table.reference} ({unit})"
    caption = (
        f"Mean difference over {len(table.seeds)} seeds with its 95 % interval. Left of the line "
        "is better. Grey band: differences below the margin of the study."
    )
    heights = [HEAD + ROW * len(effects)]
    figure, (ax,) = style.framed("effects", 1, 1, WIDTH, heights, title, caption)

    # The line of no difference, and the margin
    ax.axvline(0, color=style.GREY, lw=0.8, zorder=1)
    if column.margin is not None:
        ax.axvspan(
            -scale * column.margin, scale * column.margin, color=style.GREY, alpha=0.15, lw=0
        )

    # The activations, the best on top
    labels = [effect.label for effect in effects]
    users = {effect.label for effect in effects if effect.by_user}
    colours = style.colours(labels, users)
    for y, effect in enumerate(effects):
        colour = colours[effect.label]
        ax.hlines(y, effect.low, effect.high, color=colour, lw=2)
        ax.plot(effect.mean, y, "o", color=colour, ms=5)
    style.name_rows(ax, labels, users)
    return figure


def main(table: str, picture: str) -> None:
    """Draw a stored table."""
    figure = draw(study_table.read(Path(table)))
    print(style.write(figure, Path(picture)))


if __name__ == "__main__":
    main(*sys.argv[1:])
