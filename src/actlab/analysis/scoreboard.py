"""All studies of a folder side by side: each unit's median and rank in each task, from their ``table.json``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import rankdata

from actlab.analysis.columns import Column
from actlab.analysis.points import in_words, printer
from actlab.files import DamagedError
from actlab.studies.keys import identity, without
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
    def on_samples(self) -> bool:
        """Whether it ran with ``--smoke``: such values say nothing about units."""
        return str(self.table["study"]).endswith(SMOKE_SUFFIX)

    @property
    def compare(self) -> str:
        """The grid key that it compares; older tables do not say it, theirs is the first of a point."""
        first = next(iter(self.table["rows"][0]["point"]), "")
        return str(self.table.get("compare", first))


class Place(NamedTuple):
    """One unit in one task: ``inf`` or ``-inf`` where the median run diverged; ties share their mean rank.

    The rank is nan where the task has no other unit.
    """

    median: float
    rank: float
    n: int


@dataclass(frozen=True)
class Task:
    """A column of the scoreboard: the first column of a study's table, at one point of what is not compared.

    Args:
        record: the study.
        point: the rest of the point, in words; empty where nothing else is in the grid.
        column: what was measured.
        places: of each unit that has a value, by its text.
    """

    record: Record
    point: str
    column: Column
    places: Mapping[str, Place]


@dataclass(frozen=True)
class Board:
    """A scoreboard over the studies that compare the same key.

    Args:
        compare: that key.
        tasks: in the order of the studies' names.
        beaten: what share of the other units a unit beats, a mean over the tasks that it shares with any; by
            its text, the highest first. A tie counts half. nan for a unit that shares none.
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
    """A scoreboard for each key that studies compare, the one over most studies first; without smoke runs."""
    by_key: dict[str, list[Record]] = {}
    for record in records:
        if not record.on_samples:
            by_key.setdefault(record.compare, []).append(record)
    found = [_board(key, studies) for key, studies in by_key.items()]
    return sorted((b for b in found if b.tasks), key=lambda board: -len(board.tasks))


def _board(compare: str, records: Sequence[Record]) -> Board:
    text = printer(row["point"][compare] for r in records for row in r.table["rows"] if compare in row["point"])
    tasks = [task for record in records for task in _tasks(record, compare, text)]
    shares: dict[str, list[float]] = {}
    for task in tasks:
        for unit, place in task.places.items():
            of_unit, others = shares.setdefault(unit, []), len(task.places) - 1
            of_unit += [(others + 1 - place.rank) / others] if others else []
    means = {unit: sum(found) / len(found) if found else math.nan for unit, found in shares.items()}
    order = sorted(means, key=lambda unit: -1.0 if math.isnan(means[unit]) else means[unit], reverse=True)
    return Board(compare, tasks, {unit: means[unit] for unit in order})


def _tasks(record: Record, compare: str, text: Any) -> list[Task]:
    """The tasks of a study: rows that differ in what is compared alone are one."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    points: dict[str, str] = {}
    for row in record.table["rows"]:
        rest = without(row["point"], [compare])
        points[identity(rest)] = in_words(rest)
        if compare in row["point"] and row["columns"] and row["columns"][0]["n"]:
            found.setdefault(identity(rest), {})[text(row["point"][compare])] = row["columns"][0]
    return [_task(record, points[rest], cells) for rest, cells in found.items()]


def _task(record: Record, point: str, cells: Mapping[str, Mapping[str, Any]]) -> Task:
    first = next(iter(cells.values()))
    metric, at = first["metric"], first["at"]
    guess = "max" if metric.endswith("accuracy") else "min"  # older tables do not say it
    column = Column(
        metric, at, bool(first.get("percent")), first.get("mode", guess), first.get("condition", "")
    )
    medians = [column.worst if cell["median"] is None else float(cell["median"]) for cell in cells.values()]
    ranks = rankdata([m if column.worst > 0 else -m for m in medians]) if len(medians) > 1 else [math.nan]
    places = (
        Place(m, float(rank), cell["n"]) for m, rank, cell in zip(medians, ranks, cells.values(), strict=True)
    )
    return Task(record, point, column, dict(zip(cells, places, strict=True)))
