"""The tables that studies write, ``table.json``, and those of the scoreboard's data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from annotated_types import MinLen  # a dependency of pydantic; imports fast
from typing_extensions import TypedDict

from actlab.analysis.columns import Column
from actlab.analysis.wording import joined
from actlab.config.values import in_full, printer, printers, value_key
from actlab.scoreboard import definition
from actlab.storage.files import DamagedError
from actlab.storage.json_files import read_json
from actlab.storage.resources import resource
from actlab.studies.plan import BLOCK, SMOKE_SUFFIX
from actlab.studies.points import Point

TABLE = "table.json"
SUBMITTED = "results/scoreboard/submitted"  # tables of users, as ``NAME/TASK/DATA/table.json``

DataName = tuple[str, str]  # task and data set


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
    """The most recently written table of a study: what its rows say, without statistics."""

    folder: Path  # of the study
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
    def text(self) -> Callable[[str, Any], str]:
        """The function that formats the value of a grid key, as `printers` does over all rows."""
        return printers(row["point"] for row in self.table["rows"])

    @property
    def points(self) -> list[tuple[str, list[KeptRow]]]:
        """The rows that differ only in the compared value, and the rest of their point in words."""
        points: dict[Point, list[KeptRow]] = {}
        for row in self.table["rows"]:
            points.setdefault(Point(row["point"]).without([self.compare]), []).append(row)
        write, cut = self.text, self.table["cut"]
        return [(joined(point.in_words(text=write), cut), rows) for point, rows in points.items()]

    def is_own(self, value: Any) -> bool:
        """Return whether a compared value is the user's."""
        return in_full(value) in self.table["own"]


@dataclass(frozen=True)
class Tables:
    """The readable tables of several studies, and a line with the remedy for each damaged one."""

    records: list[StoredTable]
    left_out: list[str]


def read(runs: Path) -> Tables:
    """Read the tables of all studies with a folder in ``runs``, in the order of their names."""
    remedy = "delete it, and let `actlab study report` write it again"
    tables = Tables([], [])
    for file in sorted(runs.glob(f"*/{TABLE}")):
        try:
            tables.records.append(StoredTable(file.parent, read_json(file, Table, remedy)))
        except DamagedError as error:
            tables.left_out.append(str(error))
    return tables


def primary(row: KeptRow) -> KeptCell:
    """Return the primary cell of a row, or the first one of a study without a primary column."""
    columns = row["columns"]
    return next((cell for cell in columns if cell["primary"]), columns[0])


def labels_of(stored: Iterable[StoredTable]) -> dict[str, str]:
    """Return the label of each compared value by its key, however the tables spell it."""
    spellings: dict[str, Any] = {}
    for table in stored:
        for value in table.values:
            spellings.setdefault(value_key(value), value)
    write = printer(spellings.values())
    return {key: write(value) for key, value in spellings.items()}


def column_of(cell: KeptCell) -> Column:
    """Return the column that a cell belongs to."""
    keys = ("metric", "at", "percent", "mode", "condition", "chance", "samples")
    stated = {key: cell[key] for key in keys}  # type: ignore[literal-required]
    return Column(**stated, scale=cell.get("scale", ""))


def of_scoreboard(user_tables: Mapping[DataName, Table]) -> dict[DataName, StoredTable]:
    """Return the table of each data set: stored rows, those of submissions, and the user's."""
    tables = {}
    for task_name, task in definition.load().tasks.items():
        for data_name, data_set in task.data.items():
            folder = resource(data_set.table)
            table = read_json(folder / TABLE, Table, "reinstall actlab")
            rows = [*table["rows"], *submitted_rows(task_name, data_name)]
            table["own"] = []

            # Add the user's rows
            user_table = user_tables.get((task_name, data_name))
            if user_table:
                rows += user_table["rows"]
                table["own"] = user_table["own"]

            table["rows"] = comparable(rows, table)
            tables[task_name, data_name] = StoredTable(folder, table)
    return tables


def submitted_rows(task: str, data: str) -> list[KeptRow]:
    """Return the rows of users' submissions on a data set, each under the name of its folder."""
    rows = []
    root = resource(SUBMITTED)
    for file in sorted(root.glob(f"*/{task}/{data}/{TABLE}")):
        table = read_json(file, Table, "copy it again from the folder of the runs")
        for row in table["rows"]:
            row["point"][table["compare"]] = file.relative_to(root).parts[0]
        rows += table["rows"]
    return rows


def comparable(rows: list[KeptRow], stored: Table) -> list[KeptRow]:
    """Return rows at the points of a stored table, without the key ``block`` of a single block."""
    blocks = {row["point"].get(BLOCK) for row in stored["rows"]}
    if len(blocks) > 1:
        return rows
    return [{**row, "point": dict(Point(row["point"]).without([BLOCK]))} for row in rows]
