"""Write the scoreboards of a folder: forest plots and profiles, and their numbers with all digits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from actlab.analysis.scoreboard import Board
from actlab.reports import effects, forest, style
from actlab.reports.canvas import Figure, mpl
from actlab.storage.files import write_atomically


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
        pages = enumerate(forest.figures_of(board, paper), 1)
        figures = {stem if page == 1 else f"{stem}-{page}": figure for page, figure in pages}
        return figures | ({f"{stem}-profile": forest.profile_of(board, paper)} if board.profiles else {})


def to_csv(boards: Sequence[Board]) -> str:
    """Return each comparison in each task; errors are fractions, and what does not exist is empty."""
    lines = []
    for board in boards:
        for task, shown in effects.compared(board):
            mode = "min" if task.column.worst > 0 else "max"
            of = [task.record.table["study"], task.point, task.column.key, mode, task.left_out]
            for effect in shown:
                place, paired = effect.place, effect.difference
                won = None if place.wins is None else place.wins.mean()
                values = [paired.pairs, paired.mean, paired.low, paired.high, paired.p, won, int(place.chance)]
                lines.append([*of, effect.label, task.reference, place.median, *values])
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
