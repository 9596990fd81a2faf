"""The tables of studies, ``table.json``, and their primary columns as the tasks of a scoreboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

from annotated_types import MinLen  # a dependency of pydantic; imports fast
from typing_extensions import TypedDict

from actlab.analysis.columns import Column
from actlab.config.keys import by_key
from actlab.config.values import in_full, printer, printers, value_key
from actlab.storage.files import DamagedError, read_json
from actlab.studies.plan import SMOKE_SUFFIX
from actlab.studies.points import Point

TABLE = "table.json"
_REMEDY = "delete it, and let `actlab study report` write it again"


class KeptCell(TypedDict):
    """One value of a table row: a column of the study over the runs of a grid point."""

    metric: str
    at: str | float
    condition: str
    mode: Literal["min", "max", ""]
    percent: bool
    primary: bool
    n: int
    median: float | None
    interval: dict[str, Any] | None
    values: dict[str, float | None]
    diverged: bool
    biased: bool
    chance: float | None
    samples: int | None
    scale: NotRequired[str]  # of a column that states it
    pairs: int
    paired: dict[str, float | None]
    p: float | None
    p_holm: float | None


class KeptRow(TypedDict):
    """A row of a table: one grid point."""

    point: dict[str, Any]
    edges: list[str]  # keys whose chosen value is an end of what was tried
    columns: list[KeptCell]


class KeptVerdict(TypedDict):
    """How one activation compares with the reference."""

    family: str  # of Holm's correction: ``primary`` or ``secondary``
    text: str


class Table(TypedDict):
    """The keys of ``table.json`` that reports over several studies read."""

    study: str
    title: str
    compare: str
    reference: str
    own: list[str]
    seeds: list[int]
    planned: int
    finished: int
    diverged: int
    cut: str
    samples: bool
    verdicts: list[KeptVerdict]
    rows: Annotated[list[KeptRow], MinLen(1)]
    sources: dict[str, str]  # digests of the code of users' activations


@dataclass(frozen=True)
class StoredTable:
    """The most recently written table of a study."""

    folder: Path  # the study's
    table: Table  # the contents of ``table.json``

    @property
    def smoke(self) -> bool:
        """Whether the study ran with ``--smoke``; its values say nothing about activations."""
        return self.table["study"].endswith(SMOKE_SUFFIX)

    @property
    def on_samples(self) -> bool:
        """Whether the runs used only a part of their data."""
        return self.smoke or self.table["samples"]

    @property
    def compare(self) -> str:
        """The compared grid key."""
        return self.table["compare"]

    @property
    def values(self) -> list[Any]:
        """The compared value of each row that has one."""
        points = (row["point"] for row in self.table["rows"])
        return [point[self.compare] for point in points if self.compare in point]

    @property
    def points(self) -> list[tuple[str, list[KeptRow]]]:
        """The rows that differ only in the compared value, with what they share in words."""
        write = printers(row["point"] for row in self.table["rows"])
        by_rest = by_key((Point(row["point"]).without([self.compare]), row) for row in self.table["rows"])
        words = ([rest.in_words(text=write), self.table["cut"]] for rest in by_rest)
        return [*zip((", ".join(filter(None, of)) for of in words), by_rest.values(), strict=True)]

    def is_own(self, value: Any) -> bool:
        """Return whether a compared value is the user's."""
        return in_full(value) in self.table["own"]

    def digest(self, value: Any) -> str:
        """Return the digest of an activation's code; empty for actlab's."""
        name = value.get("name", value.get("class_path")) if isinstance(value, Mapping) else value
        return self.table["sources"].get(str(name), "")


class Tables(NamedTuple):
    """The tables of several studies that can be read, and one line with the remedy for each damaged table."""

    records: list[StoredTable]
    left_out: list[str]


class Place(NamedTuple):
    """One activation in one task."""

    n: int  # number of runs
    chance: bool  # whether the median is that of a run that failed, see `Column.failed`
    values: Mapping[str, float]  # of each run by seed, infinite where it failed
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
        return ", ".join(filter(None, [self.record.table["study"], self.point]))


@dataclass(frozen=True)
class Board:
    """The tasks of several studies that compare the same key."""

    tasks: Sequence[ScoredTask]  # in the order of the tables
    labels: Sequence[str]  # of all activations
    users: frozenset[str] = frozenset()  # labels of the user's activations


def read(runs: Path) -> Tables:
    """Read the tables of all studies that have a folder in ``runs``, in the order of their names."""
    records, left_out = [], []
    for file in sorted(runs.glob(f"*/{TABLE}")):
        try:
            records.append(StoredTable(file.parent, read_json(file, Table, _REMEDY)))
        except DamagedError as error:
            left_out.append(str(error))
    return Tables(records, left_out)


def primary(row: KeptRow) -> KeptCell | None:
    """Return the primary cell of a row; None without one."""
    return next((cell for cell in row["columns"] if cell["primary"]), None)


def column_of(cell: KeptCell) -> Column:
    """Return the column that a cell belongs to."""
    keys = ("metric", "at", "percent", "mode", "condition", "chance", "samples")
    stated = {key: cell[key] for key in keys}  # type: ignore[literal-required]
    return Column(**stated, scale=cell.get("scale", ""))


def board_of(records: Sequence[StoredTable]) -> Board:
    """Return the tasks of tables that compare the same key."""
    users: set[str] = set()
    tasks: list[ScoredTask] = []
    for record, texts in zip(records, _texts(records), strict=True):
        users |= {texts[value_key(value)] for value in record.values if record.is_own(value)}
        tasks += _tasks(record, texts)

    labels = dict.fromkeys(label for task in tasks for label in task.places)
    return Board(tasks, [*labels], frozenset(users))


def _texts(records: Sequence[StoredTable]) -> list[dict[str, str]]:
    """Return for each study the labels of its values; with a digest where files of one name differ in code."""
    known = by_key((value_key(value), value) for record in records for value in record.values)
    digests = by_key((value_key(value), record.digest(value)) for record in records for value in record.values)
    write = printer(first for first, *_ in known.values())

    def text(key: str, digest: str) -> str:
        label = write(known[key][0])
        return f"{label} ({digest[:6]})" if len({*digests[key]}) > 1 else label

    return [{key: text(key, r.digest(v)) for v in r.values for key in [value_key(v)]} for r in records]


def _tasks(record: StoredTable, texts: Mapping[str, str]) -> list[ScoredTask]:
    tasks = []
    for point, rows in record.points:
        compared = [row for row in rows if record.compare in row["point"]]
        by_label = {texts[value_key(row["point"][record.compare])]: row for row in compared}
        cells = {of: cell for of, row in by_label.items() if (cell := primary(row)) and cell["values"]}
        if cells:
            column = column_of(next(iter(cells.values())))
            places = {of: _place(cell, column, by_label[of]) for of, cell in cells.items()}
            tasks.append(ScoredTask(record, point, column, places))
    return tasks


def _place(cell: KeptCell, column: Column, row: KeptRow) -> Place:
    recorded = (column.worst if value is None else value for value in cell["values"].values())
    values = dict(zip(cell["values"], column.ranked_as(recorded, column.samples), strict=True))
    median = column.worst if cell["median"] is None else cell["median"]
    chance = column.failed(median, column.samples)
    return Place(cell["n"], chance, values, bool(row["edges"]))
