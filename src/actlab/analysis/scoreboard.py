"""All studies of a folder side by side: each unit's median and rank in each task, from their ``table.json``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from actlab.analysis.columns import Column
from actlab.analysis.points import in_words, printer, printers
from actlab.files import DamagedError
from actlab.studies.keys import identity, located, mode_of, plain_unit, without
from actlab.studies.plan import SMOKE_SUFFIX

TABLE = "table.json"
_REMEDY = "delete it, and let `actlab study report` write it anew"


@dataclass(frozen=True)
class Record:
    """A study's table, as it was written last.

    Args:
        folder: of the study.
        table: what ``table.json`` holds.
    """

    folder: Path
    table: Mapping[str, Any]

    @property
    def smoke(self) -> bool:
        """Whether it ran with ``--smoke``: such values say nothing about units."""
        return str(self.table["study"]).endswith(SMOKE_SUFFIX)

    @property
    def on_samples(self) -> bool:
        """Whether its runs saw a part of their data alone."""
        return self.smoke or bool(self.table.get("samples"))

    @property
    def compare(self) -> str:
        """The grid key that it compares; older tables do not say it, theirs is the first of a point."""
        first = next(iter(self.table["rows"][0]["point"]), "")
        return str(self.table.get("compare", first))


class Place(NamedTuple):
    """One unit in one task.

    Args:
        median: ``inf`` or ``-inf`` where the median run diverged, or measured that.
        rank: ties share their mean rank; nan where the unit has fewer runs than another, and where no other
            has as many.
        n: its runs.
        most: the runs of the unit that has most of them.
        diverged: whether any of its runs has; older tables do not say it.
    """

    median: float
    rank: float
    n: int
    most: int
    diverged: bool = True


@dataclass(frozen=True)
class Task:
    """A column of the scoreboard: the first ranked one of a table, at one point of what is not compared.

    Args:
        record: the study.
        point: the rest of the point, in words, and the runs' length where that is not the study's own.
        column: what was measured.
        places: of each unit that has a value, by its text.
    """

    record: Record
    point: str
    column: Column
    places: Mapping[str, Place]

    @property
    def ranked(self) -> int:
        """How many units have a rank."""
        return sum(not math.isnan(place.rank) for place in self.places.values())


@dataclass(frozen=True)
class Board:
    """A scoreboard over the studies that compare the same key.

    Args:
        compare: that key.
        tasks: in the order of the studies' names.
        beaten: what share of the other units a unit beats, a mean over the tasks of a study in which it has a
            rank, then over studies; by its text, the highest first. A tie counts half. nan without a rank.
    """

    compare: str
    tasks: Sequence[Task]
    beaten: Mapping[str, float]


def read(runs: Path) -> list[Record]:
    """The tables of all studies that have a folder in ``runs``, in the order of their names.

    Raises:
        DamagedError: for a ``table.json`` that holds no table.
    """
    return [_record(file) for file in sorted(runs.glob(f"*/{TABLE}"))]


def _record(file: Path) -> Record:
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedError(f"{file} is damaged (no JSON): {_REMEDY}") from error
    needed = {"study", "title", "rows", "planned", "finished", "diverged"}
    if not isinstance(table, dict) or not table.keys() >= needed or not table["rows"]:
        raise DamagedError(f"{file} is damaged (it holds no table): {_REMEDY}")
    return Record(file.parent, table)


def common_notes(records: Sequence[Record]) -> list[str]:
    """The notes that several studies all have, such as that they ran on samples."""
    first, *others = [record.table.get("notes", []) for record in records]
    return [note for note in first if others and all(note in notes for notes in others)]


def boards(records: Iterable[Record]) -> list[Board]:
    """A scoreboard for each key that studies compare, the one over most studies first.

    Smoke runs are left out, and runs on samples beside others.
    """
    by_key: dict[str, list[Record]] = {}
    known = [record for record in records if not record.smoke]
    for record in [record for record in known if not record.on_samples] or known:
        by_key.setdefault(record.compare, []).append(record)
    found = [_board(key, studies) for key, studies in by_key.items()]
    return sorted((b for b in found if b.tasks), key=lambda board: -len(board.tasks))


def _board(compare: str, records: Sequence[Record]) -> Board:
    points = [row["point"] for record in records for row in record.table["rows"]]
    known: dict[str, Any] = {}
    for value in (plain_unit(point[compare]) for point in points if compare in point):
        known.setdefault(_who(value), value)
    write = printer(known.values())
    texts = {who: write(value) for who, value in known.items()}
    tasks = [task for record in records for task in _tasks(record, compare, texts)]
    shares: dict[str, dict[Path, list[float]]] = {}
    for task in tasks:
        others = task.ranked - 1
        for unit, place in task.places.items():
            of_unit = shares.setdefault(unit, {})
            if not math.isnan(place.rank):
                of_unit.setdefault(task.record.folder, []).append((others + 1 - place.rank) / others)
    means = {unit: fmean(map(fmean, found.values())) if found else math.nan for unit, found in shares.items()}
    order = sorted(means, key=lambda unit: -1.0 if math.isnan(means[unit]) else means[unit], reverse=True)
    return Board(compare, tasks, {unit: means[unit] for unit in order})


def _who(value: Any) -> str:
    """A text that is the same for equal compared values, however a study names them."""
    return identity(located(plain_unit(value)))


def _tasks(record: Record, compare: str, texts: Mapping[str, str]) -> list[Task]:
    """The tasks of a study: rows that differ in what is compared alone are one."""
    write = printers(row["point"] for row in record.table["rows"])
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    points: dict[str, str] = {}
    for row in record.table["rows"]:
        rest = without(row["point"], [compare])
        points[identity(rest)] = in_words(rest, text=write)
        cell = next((cell for cell in row["columns"] if cell.get("ranked", True)), None)
        if compare in row["point"] and cell and cell["n"]:
            found.setdefault(identity(rest), {})[texts[_who(row["point"][compare])]] = cell
    cut = record.table.get("cut", "")
    return [_task(record, ", ".join(filter(None, (points[r], cut))), cells) for r, cells in found.items()]


def _task(record: Record, point: str, cells: Mapping[str, Mapping[str, Any]]) -> Task:
    first = next(iter(cells.values()))
    metric, at = first["metric"], first["at"]
    mode = first.get("mode") or mode_of(metric)  # older tables do not say it
    column = Column(metric, at, bool(first.get("percent")), mode, first.get("condition", ""))
    medians = {
        unit: column.worst if cell["median"] is None else float(cell["median"]) for unit, cell in cells.items()
    }
    most = max(cell["n"] for cell in cells.values())
    whole = [unit for unit, cell in cells.items() if cell["n"] == most]
    sign = 1 if column.worst > 0 else -1
    ranks = rankdata([np.float32(sign * medians[unit]) for unit in whole])  # as precise as runs record values
    rank = dict(zip(whole, map(float, ranks), strict=True)) if len(whole) > 1 else {}
    places = {
        unit: Place(medians[unit], rank.get(unit, math.nan), cell["n"], most, cell.get("diverged", True))
        for unit, cell in cells.items()
    }
    return Task(record, point, column, places)
