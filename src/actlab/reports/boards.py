"""Write the scoreboards of a folder: forest plots and profiles, and their numbers with all digits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from actlab.analysis.scoreboard import Board
from actlab.reports import effects, forest, profiles, style
from actlab.reports.canvas import mpl
from actlab.storage.files import write_atomically


def write(boards: Sequence[Board], folder: Path, paper: style.Paper | None = None) -> list[Path]:
    """Write numbers and figures of each board with any difference, as PDF too for a paper; return the files."""
    drawn = [board for board in boards if effects.compared(board)]
    texts = {name: of(drawn) for name, of in FILES.items() if drawn}
    for name, text in texts.items():
        write_atomically(folder / name, text)
    files = [folder / name for name in texts]
    for look in (None, paper) if paper else (None,):
        for board in drawn:
            with mpl.rc_context(look.rc if look else style.RC):
                for page, figure in enumerate(forest.figures_of(board, look), 1):
                    stem = effects.stem(board) + f"-{page}" * (page > 1)
                    files += style.save(figure, folder / stem, bool(look))
                if board.profiles:
                    files += style.save(
                        profiles.figure_of(board, look), folder / profiles.stem(board), bool(look)
                    )
    return files


def to_csv(boards: Sequence[Board]) -> str:
    """Return each comparison in each task; errors are fractions, and what does not exist is empty."""
    lines = []
    for board in boards:
        for task, ones in effects.compared(board):
            mode = "min" if task.column.worst > 0 else "max"
            of = [task.record.table["study"], task.point, task.column.key, mode, task.left_out]
            for one in ones:
                place, paired = one.place, one.difference
                won = None if place.wins is None else place.wins.mean()
                values = [paired.pairs, paired.mean, paired.low, paired.high, paired.p, won, int(place.chance)]
                lines.append([*of, one.label, task.reference, place.median, *values])
    head = ["study", "point", "column", "mode", "left_out", "activation", "reference", "median", "pairs"]
    frame = pd.DataFrame(lines, columns=[*head, "difference", "low", "high", "p", "better", "chance"])
    return frame.to_csv(index=False, lineterminator="\n")


def profiles_csv(boards: Sequence[Board]) -> str:
    """Return the performance profiles: the share of runs up to each ratio at which it rises."""
    found = [(board.compare, label, *of) for board in boards for label, of in board.profiles.items()]
    lines = [
        (key, label, number, *at)
        for key, label, ratios, shares, number in found
        for at in zip(ratios, shares, strict=True)
    ]
    frame = pd.DataFrame(lines, columns=["compare", "activation", "tasks", "ratio", "share"])
    return frame.to_csv(index=False, lineterminator="\n")


def to_json(boards: Sequence[Board]) -> str:
    """Return the means over tasks, with the tasks that they leave out, and why."""
    record = [
        {
            "compare": board.compare,
            "reference": board.reference,
            "own": sorted(board.own),
            "better": {label: mean._asdict() for label, mean in board.means.items() if mean},
            "tasks": {task.name: task.left_out or "counts" for task in board.tasks},
            "notes": board.notes,
        }
        for board in boards
    ]
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


FILES = {"scoreboard.csv": to_csv, "scoreboard.json": to_json, "scoreboard-profile.csv": profiles_csv}
