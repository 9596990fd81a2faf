"""The page over all studies of a folder: ``index.html``."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from actlab.analysis import scoreboard
from actlab.analysis.differences import Difference
from actlab.analysis.scoreboard import Board, ScoredTask, StoredTable, Tables
from actlab.config.keys import short
from actlab.errors import ActlabError
from actlab.reports import boards as files
from actlab.reports import effects, style
from actlab.reports.pages import rendering
from actlab.reports.pages import study as page
from actlab.storage.files import DamagedError, regular


def write(runs: Path, tables: Tables | None = None) -> Path:
    """Write ``index.html`` on the studies in ``runs``, whose tables are ``tables`` or read; return its path."""
    records, left_out = tables or scoreboard.read(runs)
    if not records:
        if left_out:
            raise DamagedError(left_out[0])
        raise ActlabError(
            f"no study under {runs} has a {scoreboard.TABLE}: run a study, such as `actlab study run demo`, or "
            "write the table of a finished study with `actlab study report`"
        )
    boards = scoreboard.boards(records)
    compared = {task.record.folder for board in boards for task in board.tasks}
    first, *others = [record.table["notes"] for record in records]
    common = [note for note in first if others and all(note in notes for notes in others)]
    return rendering.write(
        "index.html",
        runs / page.INDEX,
        boards=[_board(board, runs) for board in boards],
        reading=effects.notes(boards),
        studies=[(record, _href(record), record.folder in compared) for record in records],
        notes=[*left_out, *common],
    )


def _href(record: StoredTable) -> str | None:
    exists = (record.folder / page.NAME).exists()
    return f"{quote(record.folder.name)}/{page.NAME}" if exists else None


def _board(board: Board, runs: Path) -> dict[str, Any]:
    colours = {
        label: {"unit": label, "own": label in board.users, "colour": colour, "dark": style.on_dark(colour)}
        for label, colour in style.colours(board.labels, board.users).items()
    }
    stem = effects.stem(board)
    pages = sorted(path.name for path in runs.glob(f"{stem}-[0-9]*.pdf"))  # further shown
    first, profile = ([f"{x}.{kind}" for kind in ("svg", "png", "pdf")] for x in (stem, f"{stem}-profile"))
    names = [*first, *pages, *profile, *files.FILES]
    picture = runs / profile[0]
    panels = [_panel(task, shown, colours) for task, shown in effects.compared(board)]
    return {
        "compare": short(board.compare),
        "panels": [*_means(board, colours), *panels],
        "files": [name for name in names if (runs / name).exists()],
        "profile": base64.b64encode(regular(picture).read_bytes()).decode() if picture.exists() else "",
        "notes": board.notes,
        "tasks": [(task, _href(task.record)) for task in board.tasks],
        "rows": [
            {**look, "cells": [effects.median(task, label) for task in board.tasks]}
            for label, look in colours.items()
        ],
    }


def _means(board: Board, colours: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [
        {
            **colours[label],
            "text": effects.better(mean),
            "beside": effects.tasks(mean),
            "mean": 100 * mean.probability,
            "ends": [(100 * low, 100 * high) for low, high in filter(None, (mean.tasks, mean.runs))],
        }
        for label, mean in board.means.items()
    ]
    what = f"probability of being better than {board.reference} [other seeds] [other seeds and tasks]"
    return [{"name": "over tasks", "what": what, "zero": 50, "rows": rows}] if rows else []


def _panel(task: ScoredTask, shown: Mapping[str, Difference], colours: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's differences, with positions in percent of the panel's axis."""
    low, high = files.limits(shown.values())

    def at(value: float | None) -> float | None:
        return None if value is None else round(100 * (value - low) / (high - low), 2)

    rows = [
        {
            **colours[label],
            "text": effects.text(paired, task.column),
            "beside": "chance" if task.places[label].chance else "",
            "mean": at(paired.mean),
            "ends": [(at(paired.low), at(paired.high))] if paired.low is not None else [],
        }
        for label, paired in shown.items()
    ]
    direction, pairs = effects.direction(task.column), effects.pairs(shown.values())
    what = f"{task.column.name}, difference to {task.reference}; {direction}; {pairs}"
    return {"name": task.name, "what": what, "zero": at(0.0), "rows": rows}
