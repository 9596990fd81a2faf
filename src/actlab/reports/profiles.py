"""Draw the performance profiles of a scoreboard: a line for each activation."""

from __future__ import annotations

import numpy as np

from actlab.analysis.points import plural
from actlab.analysis.scoreboard import Board
from actlab.reports import effects, style
from actlab.reports.canvas import Figure, FixedLocator, MaxNLocator

READING = (
    "Lines: share of runs whose value is at most the ratio times the median of {reference} in the task; where "
    "high is good, the median divided by the value. Each study counts once. A diverged run reaches no ratio."
)
_WIDTH, _HEIGHT = 5.2, 2.8  # inches
_TICKS = [base * 10.0**power for power in (-2, -1, 0, 1) for base in (1, 2, 5)]
_WIDEST = 100.0  # largest ratio of the axis to the reference, and of the reference to it


def stem(board: Board) -> str:
    """Return the name of a board's profile without suffix: ``scoreboard-activation-profile``."""
    return f"{effects.stem(board)}-profile"


def figure_of(board: Board, paper: style.Paper | None = None) -> Figure:
    """Return the figure of a board with at least one profile."""
    colours = style.colours(board.means, board.own)
    most = max(number for *_, number in board.profiles.values())
    ends = np.concatenate([ratios for ratios, *_ in board.profiles.values()]).clip(1 / _WIDEST, _WIDEST)
    low, high = min(ends.min(initial=1), 0.9) / 1.05, max(ends.max(initial=1), 1.1) * 1.05
    title = f"Runs within a ratio of {board.reference}, over {plural(most, 'task')}"
    caption, width = READING.format(reference=board.reference), paper.width if paper else _WIDTH
    figure, (ax,) = style.framed(stem(board), 1, 1, width, [_HEIGHT], title, caption, paper=paper)
    ax.axvline(1, color=style.GREY, lw=0.8, zorder=1)
    for label, (ratios, shares, number) in board.profiles.items():
        own = label in board.own
        x, y = np.array([low, *ratios, high]), 100 * np.array([0, *shares, shares[-1] if len(shares) else 0])
        name = style.in_legend(label if number == most else f"{label} ({plural(number, 'task')})")
        lw, zorder = (2.2, 4) if own else (1.4, 3)
        ax.plot(x, y, drawstyle="steps-post", color=colours[label], lw=lw, zorder=zorder, label=name)
    ax.set_xscale("log")
    round_ = [x for x in _TICKS if low <= x <= high]
    ax.xaxis.set_major_locator(FixedLocator(round_) if len(round_) > 2 else MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
    ax.set(xlim=(low, high), ylim=(0, 103), xlabel="value ÷ median of the reference", ylabel="runs (%)")
    figure.legend(loc="outside right upper")
    return figure
