"""All studies of a folder, from ``table.json``: differences to GELU, medians and ranks in each task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

import numpy as np
from annotated_types import MinLen  # a dependency of pydantic; imports fast
from typing_extensions import TypedDict

from actlab.analysis.columns import Column
from actlab.analysis.differences import Difference, paired_difference
from actlab.analysis.points import in_words, printer, printers
from actlab.config.keys import canonical, in_full, mode_of, named, plain_unit, same, value_key, without
from actlab.storage.files import DamagedError, read_json
from actlab.studies.plan import SMOKE_SUFFIX

TABLE = "table.json"
GELU = ("gelu", "gelu_tanh")  # the first of these that a task has is what its activations are compared with
MEAN_OF_RANKS = (
    "Others beaten is a mean of ranks over unlike tasks: it contains neither the size of a difference nor its "
    "uncertainty."
)
_REMEDY = "delete it, and let `actlab study report` write it again"


class Cell(TypedDict):
    """One value of a table row: a column of the study over the runs of a grid point."""

    metric: str
    at: str | float
    n: int
    median: float | None
    condition: NotRequired[str]
    mode: NotRequired[Literal["min", "max"]]
    ranked: NotRequired[bool]
    percent: NotRequired[bool]
    chance: NotRequired[float | None]
    diverged: NotRequired[int | bool]
    values: NotRequired[dict[str, float | None]]


class TableRow(TypedDict):
    """A row of a table: one grid point."""

    point: dict[str, Any]
    columns: list[Cell]
    settings: NotRequired[int]


class Table(TypedDict):
    """The keys of ``table.json`` that the scoreboard reads; older files lack some of them."""

    study: str
    title: str
    compare: NotRequired[str]
    reference: NotRequired[str]
    own: NotRequired[list[str]]
    planned: int
    finished: int
    diverged: int
    seeds: NotRequired[list[int]]
    cut: NotRequired[str]
    samples: NotRequired[bool]
    rows: Annotated[list[TableRow], MinLen(1)]
    notes: NotRequired[list[str]]


@dataclass(frozen=True)
class Record:
    """The most recently written table of a study."""

    folder: Path  # the study's
    table: Table  # the contents of ``table.json``

    @property
    def smoke(self) -> bool:
        """Whether the study ran with ``--smoke``; its values say nothing about activations."""
        return str(self.table["study"]).endswith(SMOKE_SUFFIX)

    @property
    def on_samples(self) -> bool:
        """Whether the runs used only a part of their data."""
        return self.smoke or bool(self.table.get("samples"))

    @property
    def compare(self) -> str:
        """The compared grid key; for older tables, which do not store it, the first key of a point."""
        first = next(iter(self.table["rows"][0]["point"]), "")
        return str(self.table.get("compare", first))


class Read(NamedTuple):
    """The tables of several studies that can be read, and one line with the remedy for each damaged table."""

    records: list[Record]
    left_out: list[str]


class Place(NamedTuple):
    """One activation in one task.

    ``rank`` is among the ranked activations of the board; ties share their mean rank. It is nan in a task that
    does not count, for an activation that is not ranked, and for a median no better than guessing.
    """

    median: float  # ``inf`` or ``-inf`` if the median run diverged or measured this value
    rank: float
    n: int  # number of runs
    most: int  # largest number of runs of any activation in the task
    diverged: bool = True  # whether any run diverged; older tables do not store it
    guessing: bool = False  # whether the median is no better than the column's ``chance``
    # of each run by seed, infinite where it diverged; None for older tables
    values: Mapping[str, float] | None = None


@dataclass(frozen=True)
class Task:
    """A column of the scoreboard: the first ranked column of a table at one point of the other grid keys."""

    record: Record
    point: str  # in words, and the length of the runs if it is not the study's own
    column: Column
    places: Mapping[str, Place]  # of each activation that has a value, by its label
    # whether all ranked activations have all their runs here, and at least one beats guessing
    counted: bool = False
    reference: str | None = None  # label of GELU, else of the study's reference; None if the task has neither
    selected: bool = False  # whether the column's metric selected the settings; a test on it would be biased

    @cached_property
    def differences(self) -> Mapping[str, Difference]:
        """The paired differences of the other activations to the reference, by label; uncorrected intervals."""
        others = dict(self.places)
        theirs = others.pop(self.reference).values if self.reference in others else None
        found = {}
        for label, place in others.items():
            if pairs := [(v, theirs[s]) for s, v in (place.values or {}).items() if theirs and s in theirs]:
                paired = paired_difference([mine for mine, _ in pairs], [other for _, other in pairs])
                found[label] = paired.untested if self.selected else paired
        return found

    @property
    def whole(self) -> frozenset[str]:
        """The activations with the most runs; empty if all activations of the task are guessing."""
        guess = all(place.guessing for place in self.places.values())
        return frozenset() if guess else frozenset(u for u, p in self.places.items() if p.n == p.most)


@dataclass(frozen=True)
class Board:
    """A scoreboard of the studies that compare the same key.

    ``beaten`` is the share of the other ranked activations that an activation beats, by its label, highest
    first, averaged over the counted tasks of a study, then over studies. A tie counts half; an activation that
    is guessing beats none. nan for an activation that is not ranked.
    """

    compare: str
    tasks: Sequence[Task]  # in the order of the studies' names
    beaten: Mapping[str, float]
    own: frozenset[str] = frozenset()  # labels of the user's activations

    @property
    def notes(self) -> list[str]:
        """Which tasks and activations the shares leave out, and why."""
        out = [unit for unit, share in self.beaten.items() if math.isnan(share)]
        others = ", ".join(unit for unit in self.beaten if unit not in out)
        left, number = sum(not task.counted for task in self.tasks), len(self.tasks)
        counted = f"{number - left} of {number} tasks count: those in which {others} have all their runs"
        guess = any(place.guessing for task in self.tasks for place in task.places.values())
        ranked = any(not math.isnan(share) for share in self.beaten.values())
        notes = [
            MEAN_OF_RANKS * ranked,
            f"{counted} and one of them is better than guessing." * (bool(others) and bool(left)),
            "Nothing is ranked: no two units have a task in common." * (not others),
            f"Not ranked, for they lack some of these tasks: {', '.join(out)}." * (bool(others) and bool(out)),
            "(chance): no better than guessing, so it has no rank and beats no other." * guess,
        ]
        return [note for note in notes if note]


def read(runs: Path) -> Read:
    """Read the tables of all studies that have a folder in ``runs``, in the order of their names."""
    records, left_out = [], []
    for file in sorted(runs.glob(f"*/{TABLE}")):
        try:
            records.append(Record(file.parent, read_json(file, Table, _REMEDY)))
        except DamagedError as error:
            left_out.append(str(error))
    return Read(records, left_out)


def common_notes(records: Sequence[Record]) -> list[str]:
    """Return the notes that all of several studies have, such as that they ran on samples."""
    first, *others = [record.table.get("notes", []) for record in records] or [[]]
    return [note for note in first if others and all(note in notes for notes in others)]


def boards(records: Iterable[Record]) -> list[Board]:
    """Return a scoreboard for each key that studies compare, the one with the most tasks first.

    Smoke runs are left out. Runs on samples are left out if any study ran on its full data.
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
        known.setdefault(value_key(value), value)
    write = printer(known.values())
    texts = {who: write(value) for who, value in known.items()}
    tasks = [task for record in records for task in _tasks(record, compare, texts)]
    units = _comparable(tasks)
    tasks = [_ranked(task, units) if units and units <= task.whole else task for task in tasks]
    shares: dict[str, dict[Path, list[float]]] = {unit: {} for task in tasks for unit in task.places}
    for task in (task for task in tasks if task.counted):
        for unit in units:
            rank, others = task.places[unit].rank, len(units) - 1
            share = 0.0 if math.isnan(rank) else (others + 1 - rank) / others
            shares[unit].setdefault(task.record.folder, []).append(share)
    means = {unit: fmean(map(fmean, found.values())) if found else math.nan for unit, found in shares.items()}
    order = sorted(means, key=lambda unit: -1.0 if math.isnan(means[unit]) else means[unit], reverse=True)
    return Board(compare, tasks, {unit: means[unit] for unit in order}, _own(compare, records, texts))


def _own(compare: str, records: Sequence[Record], texts: Mapping[str, str]) -> frozenset[str]:
    values = ((record, row["point"].get(compare)) for record in records for row in record.table["rows"])
    own = (value for record, value in values if in_full(plain_unit(value)) in record.table.get("own", ()))
    return frozenset(texts[value_key(value)] for value in own)


def _comparable(tasks: Sequence[Task]) -> frozenset[str]:
    """Return the activations to rank; empty if no two have a task in common.

    With ranks over tasks that some activations lack, the result would depend on which tasks an activation ran.
    So all activations with at least m complete tasks are ranked. m is the number for which the tasks that they
    all have compare the most pairs: k·(k − 1)/2 pairs per task of k activations.
    """
    whole = [task.whole for task in tasks]
    number = Counter(unit for units in whole for unit in units)
    sets = [frozenset(u for u, n in number.items() if n >= least) for least in set(number.values())]

    def pairs(units: frozenset[str]) -> int:
        return len(units) * (len(units) - 1) * sum(units <= of_task for of_task in whole)

    best = max(sets, key=lambda units: (pairs(units), len(units)), default=frozenset[str]())
    return best if pairs(best) else frozenset()


def ranks(values: Any) -> Any:
    """Return ranks from 1; equal values share the mean of theirs."""
    _, places, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(sizes) - (sizes - 1) / 2)[places]


def _ranked(task: Task, units: frozenset[str]) -> Task:
    """Return a task with ranks for those ``units`` that are better than guessing; with any, the task counts."""
    better = [unit for unit in units if not task.places[unit].guessing]
    sign = 1 if task.column.worst > 0 else -1
    # float32 is the precision of recorded values.
    medians = [np.float32(sign * task.places[unit].median) for unit in better]
    found = dict(zip(better, map(float, ranks(medians)), strict=True))
    places = {u: p._replace(rank=found.get(u, math.nan)) for u, p in task.places.items()}
    return replace(task, places=places, counted=bool(better))


def _tasks(record: Record, compare: str, texts: Mapping[str, str]) -> list[Task]:
    """Return the tasks of a study; rows that differ only in the compared value form one task."""
    write = printers(row["point"] for row in record.table["rows"])
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    points: dict[str, str] = {}
    for row in record.table["rows"]:
        rest = without(row["point"], [compare])
        points[canonical(rest)] = in_words(rest, text=write)
        cell = next((cell for cell in row["columns"] if cell.get("ranked", True)), None)
        if compare in row["point"] and cell and cell["n"]:
            found.setdefault(canonical(rest), {})[texts[value_key(row["point"][compare])]] = cell
    cut, references = record.table.get("cut", ""), _references(record, compare, texts)
    return [
        _task(record, ", ".join(filter(None, (points[r], cut))), cells, references)
        for r, cells in found.items()
    ]


def _references(record: Record, compare: str, texts: Mapping[str, str]) -> list[str]:
    values = [plain_unit(row["point"][compare]) for row in record.table["rows"] if compare in row["point"]]
    wanted = (*GELU, record.table.get("reference", ""))
    return [texts[value_key(v)] for name in wanted for v in values if same(v, named(name, values))]


def _task(
    record: Record, point: str, cells: Mapping[str, Mapping[str, Any]], references: Sequence[str]
) -> Task:
    first = next(iter(cells.values()))
    metric, at = first["metric"], first["at"]
    mode = first.get("mode") or mode_of(metric)  # older tables lack it
    condition, chance = first.get("condition", ""), first.get("chance")
    column = Column(metric, at, bool(first.get("percent")), mode, condition, chance=chance)
    most = max(cell["n"] for cell in cells.values())
    places = {}
    for unit, cell in cells.items():
        median = column.worst if cell["median"] is None else float(cell["median"])
        guessing = column.guesses(median)
        values = {s: column.worst if v is None else v for s, v in cell.get("values", {}).items()} or None
        places[unit] = Place(median, math.nan, cell["n"], most, cell.get("diverged", True), guessing, values)
    reference = next((label for label in references if label in places), None)
    several = any(row.get("settings", 1) > 1 for row in record.table["rows"])
    selected = several and "val" in metric.split("/")
    return Task(record, point, column, places, reference=reference, selected=selected)
