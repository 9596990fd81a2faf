"""Write the scoreboards of a folder, as figures and numbers with all digits.

A forest plot shows the differences in each task, in a panel with its own axis; a second figure shows profiles.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from actlab.analysis.differences import Difference
from actlab.analysis.scoreboard import Board, ScoredTask
from actlab.analysis.wording import plural
from actlab.reports import effects, style
from actlab.reports.canvas import Axes, Figure, MaxNLocator, mpl
from actlab.storage.files import write_atomically

_WIDTH = 6.75  # inches
_PROFILE_WIDTH, _PROFILE_HEIGHT = 5.2, 2.8  # inches
_ROW, _LINE, _AXIS = 0.19, 0.16, 0.55  # inches: height of an activation, of a line of the title, of the axis
_READING = (
    "Lines: share of runs whose value is at most the ratio times the median of {reference} in the task; where "
    "high is good, the median divided by the value. Each study counts once. A failed run reaches no ratio."
)
_LARGEST = 100.0  # largest ratio of the axis to the reference, and of the reference to it

TaskPanel = tuple[ScoredTask, Mapping[str, Difference], list[str]]  # with the lines of its title


def write(boards: Sequence[Board], folder: Path, paper: style.Paper | None = None) -> list[Path]:
    """Write numbers and figures of each board with any difference, as PDF too for a paper; return the files."""
    drawn = [board for board in boards if effects.compared(board)]
    texts = {name: of(drawn) for name, of in FILES.items() if drawn}
    for name, text in texts.items():
        write_atomically(folder / name, text)
    files = [folder / name for name in texts]
    for look in dict.fromkeys((None, paper)):
        for board in drawn:
            for stem, figure in draw(board, look).items():
                files += style.save(figure, folder / stem, look)
    return files


def draw(board: Board, paper: style.Paper | None = None) -> dict[str, Figure]:
    """Return the forest plot of a board, which may have several pages, and its profile, by name."""
    stem = effects.stem(board)
    with mpl.rc_context(paper.rc if paper else style.RC):
        pages = enumerate(figures_of(board, paper), 1)
        figures = {stem if page == 1 else f"{stem}-{page}": figure for page, figure in pages}
        return figures | ({f"{stem}-profile": profile_of(board, paper)} if board.profiles else {})


def figures_of(board: Board, paper: style.Paper | None = None) -> list[Figure]:
    """Return the forest plot of a board with at least one difference; for a paper, one figure for each page."""
    tasks = effects.compared(board)
    width = paper.width if paper else _WIDTH
    columns = min(len(tasks), 1 if width < _WIDTH else 2)
    longest = max(len(label) for _, shown in tasks for label in shown)
    wide = max(20, int(16 * (width / columns - 0.2 - 0.08 * longest)))  # characters of a panel's title
    room = style.PAGE - style.HEAD - style.EDGE if paper else math.inf
    panels: list[TaskPanel] = []
    for task, shown in tasks:
        what = f"{task.column.name} − {task.reference}, {effects.pairs(shown.values())}"
        title = [*textwrap.wrap(task.name, wide), *textwrap.wrap(what, wide)]
        most = int((room - _AXIS - _LINE * len(title)) / _ROW) if paper else len(shown)
        rows = [*shown.items()]
        panels += [(task, dict(rows[at : at + most]), title) for at in range(0, len(rows), most)]
    pages: list[list[list[TaskPanel]]] = [[]]
    for row in (panels[start : start + columns] for start in range(0, len(panels), columns)):
        if pages[-1] and sum(map(_height, [*pages[-1], row])) > room:
            pages.append([])
        pages[-1].append(row)
    return [_figure_of(board, rows, width, paper) for rows in pages]


def _height(row: Sequence[TaskPanel]) -> float:
    return max(_AXIS + _ROW * len(shown) + _LINE * len(title) for _, shown, title in row)


def _figure_of(board: Board, rows: list[list[TaskPanel]], width: float, paper: style.Paper | None) -> Figure:
    tasks, panels = effects.compared(board), [panel for row in rows for panel in row]
    references = {str(task.reference) for task, _ in tasks}
    whose = references.pop() if len(references) == 1 else "each task's reference"
    size = len(panels), len(rows[0]), width, [*map(_height, rows)]
    texts = f"Differences to {whose}", caption_of(board)
    figure, axes = style.framed(effects.stem(board), *size, *texts, paper=paper)
    for ax, (task, shown, words) in zip(axes, panels, strict=True):
        ax.set_title("\n".join(words))
        _draw_panel(ax, task, shown, board)
    return figure


def caption_of(board: Board) -> str:
    """Return how to read a forest plot."""
    notes = effects.notes([board])
    lacking = ["Open circles: no interval."] if effects.WITHOUT in notes else []
    failed = any(task.places[label].chance for task, shown in effects.compared(board) for label in shown)
    return " ".join([*notes, *lacking, *(["Crosses: not better than guessing."] if failed else [])])


def _draw_panel(ax: Axes, task: ScoredTask, shown: Mapping[str, Difference], board: Board) -> None:
    colours, users = style.colours(board.labels, board.users), board.users
    scale = 100.0 if task.column.in_percent else 1.0
    ax.axvline(0, color=style.GREY, lw=0.8, zorder=1)
    for y, (label, paired) in enumerate(shown.items()):
        colour, thick, size = colours[label], *((1.8, 5.0) if label in users else (1.0, 3.6))
        if label in users:
            ax.axhspan(y - 0.45, y + 0.45, color=colour, alpha=0.1, lw=0, zorder=0)
        if paired.mean is None:
            place: Any = {"xy": (0.03, y), "xycoords": ("axes fraction", "data")}
            ax.annotate("failed: no mean difference", va="center", **place)
            continue
        if paired.low is not None and paired.high is not None:
            ax.hlines(y, scale * paired.low, scale * paired.high, color=colour, lw=1.3 * thick, zorder=2)
        marker = "x" if task.places[label].chance else "o"
        inside = "white" if paired.low is None and marker == "o" else colour
        ax.plot([scale * paired.mean], [y], marker, color=colour, mfc=inside, ms=size, mew=1.1, zorder=3)
    style.name_rows(ax, [*shown], users)
    ax.set_xlim(*(scale * end for end in limits(shown.values())))
    ax.set_xlabel(f"← {words}" if (words := effects.direction(task.column))[0] == "l" else f"{words} →")
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    if task.column.by_ratio:
        ax.xaxis.set_major_formatter(lambda value, _: task.column.text(value, signed=True))
    else:
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:+.6g}".replace("-", "−") if value else "0")


def limits(differences: Iterable[Difference]) -> tuple[float, float]:
    """Return limits of the x axis that contain 0, all means and all intervals."""
    values = (value for difference in differences for value in difference[:3] if value is not None)
    ends = [0.0, *filter(math.isfinite, values)]
    low, high = min(ends), max(ends)
    margin = 0.08 * (high - low) or 1.0
    return low - margin, high + margin


def profile_of(board: Board, paper: style.Paper | None = None) -> Figure:
    """Return the figure of a board with at least one profile."""
    colours = style.colours(board.labels, board.users)
    most = max(number for *_, number in board.profiles.values())
    ends = np.concatenate([ratios for ratios, *_ in board.profiles.values()]).clip(1 / _LARGEST, _LARGEST)
    low, high = min(ends.min(initial=1), 0.9) / 1.05, max(ends.max(initial=1), 1.1) * 1.05
    title = f"Runs within a ratio of {board.reference}, over {plural(most, 'task')}"
    caption, width = _READING.format(reference=board.reference), paper.width if paper else _PROFILE_WIDTH
    name = f"{effects.stem(board)}-profile"
    figure, (ax,) = style.framed(name, 1, 1, width, [_PROFILE_HEIGHT], title, caption, paper=paper)
    ax.axvline(1, color=style.GREY, lw=0.8, zorder=1)
    for label, (ratios, shares, number) in board.profiles.items():
        by_user = label in board.users
        x, y = np.array([low, *ratios, high]), 100 * np.array([0, *shares, shares[-1] if len(shares) else 0])
        name = style.in_legend(label if number == most else f"{label} ({plural(number, 'task')})")
        lw, zorder = (2.2, 4) if by_user else (1.4, 3)
        ax.plot(x, y, drawstyle="steps-post", color=colours[label], lw=lw, zorder=zorder, label=name)
    style.show_ratios(ax, low, high, most=6)
    ax.set(xlim=(low, high), ylim=(0, 103), xlabel="value ÷ median of the reference", ylabel="runs (%)")
    figure.legend(loc="outside right upper")
    return figure


def to_csv(boards: Sequence[Board]) -> str:
    """Return each comparison in each task; errors are fractions, and what does not exist is empty."""
    lines = []
    for board in boards:
        for task, shown in effects.compared(board):
            mode = "min" if task.column.worst > 0 else "max"
            of = [task.record.table["study"], task.point, task.column.key, mode, task.left_out]
            for label, paired in shown.items():
                place = task.places[label]
                won = task.wins[label].mean() if label in task.wins else None
                values = [paired.pairs, paired.mean, paired.low, paired.high, paired.p, won, int(place.chance)]
                lines.append([*of, label, task.reference, place.median, *values])
    head = ["study", "point", "column", "mode", "left_out", "activation", "reference", "median", "pairs"]
    frame = pd.DataFrame(lines, columns=[*head, "difference", "low", "high", "p", "better", "chance"])
    return frame.to_csv(index=False, lineterminator="\n")


def profiles_csv(boards: Sequence[Board]) -> str:
    """Return the performance profiles: the share of runs up to each ratio at which it rises."""
    lines = [
        (board.compare, label, number, ratio, share)
        for board in boards
        for label, (ratios, shares, number) in board.profiles.items()
        for ratio, share in zip(ratios, shares, strict=True)
    ]
    frame = pd.DataFrame(lines, columns=["compare", "activation", "tasks", "ratio", "share"])
    return frame.to_csv(index=False, lineterminator="\n")


def to_json(boards: Sequence[Board]) -> str:
    """Return the means over tasks, with the tasks that they leave out, and why."""
    record = [
        {
            "compare": board.compare,
            "reference": board.reference,
            "own": sorted(board.users),
            "better": {label: mean._asdict() for label, mean in board.means.items()},
            "tasks": {task.name: task.left_out or "counts" for task in board.tasks},
            "notes": board.notes,
        }
        for board in boards
    ]
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


FILES = {"scoreboard.csv": to_csv, "scoreboard.json": to_json, "scoreboard-profile.csv": profiles_csv}
