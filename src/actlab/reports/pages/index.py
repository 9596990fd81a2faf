"""The page over all studies of a folder: ``index.html``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from actlab.analysis import scoreboard
from actlab.analysis.scoreboard import Board, Read, Record, Task
from actlab.config.keys import short
from actlab.errors import ActlabError
from actlab.reports import effects, forest, style
from actlab.reports.effects import Effect
from actlab.reports.pages import rendering
from actlab.reports.pages import study as page
from actlab.reports.tables import NONE, number, rank, share
from actlab.storage.files import DamagedError


def write(runs: Path, found: Read | None = None) -> Path:
    """Write ``index.html`` into the folder that contains the studies' folders, and return its path.

    ``found`` are the studies' tables, if they have been read already; the page lists damaged ones.
    """
    records, left_out = found or scoreboard.read(runs)
    if not records:
        if left_out:
            raise DamagedError(left_out[0])
        raise ActlabError(
            f"no study under {runs} has a {scoreboard.TABLE}: run a study, such as `actlab study run demo`, or "
            "write the table of a finished study with `actlab study report`"
        )
    boards = scoreboard.boards(records)
    ranked = {task.record.folder for board in boards for task in board.tasks}
    return rendering.write(
        "index.html",
        runs / page.INDEX,
        boards=[_board(board, runs) for board in boards],
        reading=effects.notes(boards),
        studies=[(one, _href(one), one.folder in ranked) for one in records],
        notes=[*left_out, *scoreboard.common_notes(records)],
    )


def _href(record: Record) -> str | None:
    found = (record.folder / page.NAME).exists()
    return f"{quote(record.folder.name)}/{page.NAME}" if found else None


def _board(board: Board, runs: Path) -> dict[str, Any]:
    colours = style.colours(board.beaten, board.own)
    files = [forest.stem(board) + suffix for suffix in (".svg", ".png", ".pdf")]
    return {
        "compare": short(board.compare),
        "panels": [_panel(task, ones, colours) for task, ones in effects.compared(board)],
        "files": [name for name in (*files, forest.CSV) if (runs / name).exists()],
        "notes": board.notes,
        "tasks": [
            {
                "study": task.record.table["study"],
                "title": task.record.table["title"],
                "href": _href(task.record),
                "point": task.point,
                "column": task.column.name,
            }
            for task in board.tasks
        ],
        "rows": [
            {
                "unit": unit,
                "own": unit in board.own,
                "colour": colours[unit],
                "dark": style.on_dark(colours[unit]),
                "beaten": share(beaten),
                "tasks": 0 if math.isnan(beaten) else sum(task.counted for task in board.tasks),
                "cells": [_cell(unit, task.places, task.column) for task in board.tasks],
            }
            for unit, beaten in board.beaten.items()
        ],
    }


def _panel(task: Task, ones: Sequence[Effect], colours: Mapping[str, str]) -> dict[str, Any]:
    """Return a task's differences, with positions in percent of the panel's axis."""
    low, high = forest.limits(ones)

    def at(value: float | None) -> float | None:
        return None if value is None else round(100 * (value - low) / (high - low), 2)

    return {
        "name": effects.name(task),
        "column": task.column.name,
        "reference": task.reference,
        "pairs": effects.pairs(ones),
        "direction": effects.direction(task.column),
        "zero": at(0.0),
        "rows": [
            {
                "unit": one.label,
                "own": one.own,
                "colour": colours[one.label],
                "dark": style.on_dark(colours[one.label]),
                "text": effects.text(one.difference, task.column),
                "chance": one.place.guessing,
                "mean": at(one.difference.mean),
                "low": at(one.difference.low),
                "high": at(one.difference.high),
            }
            for one in ones
        ],
    }


def _cell(unit: str, places: Mapping[str, Any], column: Any) -> dict[str, Any]:
    if unit not in places:
        return {"median": NONE, "rank": "", "ranked": False, "best": False}
    place = places[unit]
    best = place.rank == min((p.rank for p in places.values() if not math.isnan(p.rank)), default=math.nan)
    ranked = not math.isnan(place.rank)
    median = number(place.median, column, diverged=place.diverged)
    return {"median": median, "rank": rank(place), "ranked": ranked, "best": best}
