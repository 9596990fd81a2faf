"""The tables of studies, ``table.json``, and their primary columns as the tasks of a scoreboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from actlab.analysis import study_table
from actlab.analysis.columns import Column
from actlab.analysis.study_table import Cell, Row, StudyTable
from actlab.config.keys import by_key
from actlab.config.values import in_full, printer, value_key
from actlab.storage.files import DamagedError


@dataclass(frozen=True)
class StoredTable:
    """The most recently written table of a study."""

    folder: Path  # the study's
    table: StudyTable


class Tables(NamedTuple):
    """The tables of several studies that can be read, and one line with the remedy for each damaged table."""

    records: list[StoredTable]
    left_out: list[str]


class Place(NamedTuple):
    """One activation in one task."""

    n: int  # number of runs
    chance: bool  # whether the median is that of a run that failed, see `Column.failed`
    values: Mapping[int, float]  # of each run by seed, infinite where it failed
    edge: bool  # whether the chosen setting is an end of what was tried


@dataclass(frozen=True)
class ScoredTask:
    """The primary column of a table at one point of the other grid keys."""

    record: StoredTable
    point: str  # in words, and the length of the runs if it is not the study's own
    column: Column
    places: Mapping[str, Place]  # of each activation that has a value, by its label

    @property
    def name(self) -> str:
        """Study and point: ``gelu_mnist_classifier, dropout 0.5``."""
        return ", ".join(filter(None, [self.record.table.study, self.point]))


@dataclass(frozen=True)
class Board:
    """The tasks of several studies that compare the same key."""

    tasks: Sequence[ScoredTask]  # in the order of the tables
    labels: Sequence[str]  # of all activations
    users: frozenset[str] = frozenset()  # labels of the user's activations


def read(runs: Path) -> Tables:
    """Read the tables of all studies that have a folder in ``runs``, in the order of their names."""
    records, left_out = [], []
    for file in sorted(runs.glob(f"*/{study_table.NAME}")):
        try:
            records.append(StoredTable(file.parent, study_table.read(file)))
        except DamagedError as error:
            left_out.append(str(error))
    return Tables(records, left_out)


def board_of(records: Sequence[StoredTable]) -> Board:
    """Return the tasks of tables that compare the same key."""
    users: set[str] = set()
    tasks: list[ScoredTask] = []
    for record, texts in zip(records, _texts(records), strict=True):
        users |= {
            texts[value_key(value)] for value in record.table.values if in_full(value) in record.table.own
        }
        tasks += _tasks(record, texts)

    labels = dict.fromkeys(label for task in tasks for label in task.places)
    return Board(tasks, [*labels], frozenset(users))


def _texts(records: Sequence[StoredTable]) -> list[dict[str, str]]:
    """Return for each study the labels of its values; with a digest where files of one name differ in code."""
    tables = [record.table for record in records]
    known = by_key((value_key(value), value) for table in tables for value in table.values)
    digests = by_key((value_key(value), table.digest(value)) for table in tables for value in table.values)
    write = printer(first for first, *_ in known.values())

    def text(key: str, digest: str) -> str:
        label = write(known[key][0])
        return f"{label} ({digest[:6]})" if len({*digests[key]}) > 1 else label

    return [
        {value_key(value): text(value_key(value), table.digest(value)) for value in table.values}
        for table in tables
    ]


def _tasks(record: StoredTable, texts: Mapping[str, str]) -> list[ScoredTask]:
    tasks, compare = [], record.table.compare
    for point, rows in record.table.points:
        compared = [row for row in rows if compare in row.point]
        by_label = {texts[value_key(row.point[compare])]: row for row in compared}
        cells = {of: row.primary for of, row in by_label.items() if row.primary and row.primary.values}
        if cells:
            column = next(iter(cells.values()))
            places = {of: _place(cell, by_label[of]) for of, cell in cells.items()}
            tasks.append(ScoredTask(record, point, column, places))
    return tasks


def _place(cell: Cell, row: Row) -> Place:
    ranked = cell.ranked_as(cell.values.values(), cell.samples)
    values = dict(zip(cell.values, ranked, strict=True))
    return Place(cell.n, cell.failed(cell.median, cell.samples), values, bool(row.edges))
