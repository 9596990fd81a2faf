"""All studies of a folder side by side: each unit's median and rank in each task, from their ``table.json``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

import numpy as np
from annotated_types import MinLen  # comes with pydantic, and is imported in no time
from scipy.stats import rankdata
from typing_extensions import TypedDict

from actlab.analysis.columns import Column
from actlab.analysis.points import in_words, printer, printers
from actlab.config.keys import canonical, located, mode_of, plain_unit, without
from actlab.storage.files import DamagedError, read_json
from actlab.studies.plan import SMOKE_SUFFIX

TABLE = "table.json"
_REMEDY = "delete it, and let `actlab study report` write it anew"


class Cell(TypedDict):
    """One value of a row of a table: a column of the study, over the runs of a grid point."""

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


class TableRow(TypedDict):
    """A row of a table: a grid point."""

    point: dict[str, Any]
    columns: list[Cell]


class Table(TypedDict):
    """``table.json``, as far as it is read; older ones lack some of it."""

    study: str
    title: str
    compare: NotRequired[str]
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
    """A study's table, as it was written last.

    Args:
        folder: of the study.
        table: what ``table.json`` holds.
    """

    folder: Path
    table: Table

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


class Read(NamedTuple):
    """The tables of some studies.

    Args:
        records: those that can be read.
        left_out: a line about each that is damaged, with the remedy.
    """

    records: list[Record]
    left_out: list[str]


class Place(NamedTuple):
    """One unit in one task.

    Args:
        median: ``inf`` or ``-inf`` where the median run diverged, or measured that.
        rank: among the units that the board ranks; ties share their mean rank. nan in a task that does not
            count, for a unit that is not ranked, and where the median is no better than guessing.
        n: its runs.
        most: the runs of the unit that has most of them.
        diverged: whether any of its runs has; older tables do not say it.
        guessing: whether the median is no better than the column's ``chance``.
    """

    median: float
    rank: float
    n: int
    most: int
    diverged: bool = True
    guessing: bool = False


@dataclass(frozen=True)
class Task:
    """A column of the scoreboard: the first ranked one of a table, at one point of what is not compared.

    Args:
        record: the study.
        point: the rest of the point, in words, and the runs' length where that is not the study's own.
        column: what was measured.
        places: of each unit that has a value, by its text.
        counted: whether all ranked units have as many runs here, and one of them is better than guessing.
    """

    record: Record
    point: str
    column: Column
    places: Mapping[str, Place]
    counted: bool = False

    @property
    def whole(self) -> frozenset[str]:
        """The units that have as many runs as any other; none where all of them guess."""
        guess = all(place.guessing for place in self.places.values())
        return frozenset() if guess else frozenset(u for u, p in self.places.items() if p.n == p.most)


@dataclass(frozen=True)
class Board:
    """A scoreboard over the studies that compare the same key.

    Args:
        compare: that key.
        tasks: in the order of the studies' names.
        beaten: what share of the other ranked units a unit beats, a mean over the counted tasks of a study,
            then over studies; by its text, the highest first. A tie counts half, and a unit that guesses beats
            none. nan for a unit that is not ranked.
    """

    compare: str
    tasks: Sequence[Task]
    beaten: Mapping[str, float]

    @property
    def notes(self) -> list[str]:
        """What does not count in the shares, and why."""
        out = [unit for unit, share in self.beaten.items() if math.isnan(share)]
        others = ", ".join(unit for unit in self.beaten if unit not in out)
        left, number = sum(not task.counted for task in self.tasks), len(self.tasks)
        counted = f"{number - left} of {number} tasks count: those in which {others} have all their runs"
        guess = any(place.guessing for task in self.tasks for place in task.places.values())
        notes = [
            f"{counted} and one of them is better than guessing." * (bool(others) and bool(left)),
            "Nothing is ranked: no two units have a task in common." * (not others),
            f"Not ranked, for they lack some of these tasks: {', '.join(out)}." * (bool(others) and bool(out)),
            "(chance): no better than guessing, so it has no rank and beats no other." * guess,
        ]
        return [note for note in notes if note]


def read(runs: Path) -> Read:
    """The tables of all studies that have a folder in ``runs``, in the order of their names."""
    records, left_out = [], []
    for file in sorted(runs.glob(f"*/{TABLE}")):
        try:
            records.append(Record(file.parent, read_json(file, Table, _REMEDY)))
        except DamagedError as error:
            left_out.append(str(error))
    return Read(records, left_out)


def common_notes(records: Sequence[Record]) -> list[str]:
    """The notes that several studies all have, such as that they ran on samples."""
    first, *others = [record.table.get("notes", []) for record in records] or [[]]
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
    return Board(compare, tasks, {unit: means[unit] for unit in order})


def _comparable(tasks: Sequence[Task]) -> frozenset[str]:
    """The units to rank; none where no two have a task in common.

    Ranks over tasks that some units lack would say which tasks a unit was given. So the ranked units are those
    with at least some number of tasks, the number for which their common tasks compare the most pairs of units:
    k·(k − 1)/2 a task of k units.
    """
    whole = [task.whole for task in tasks]
    number = Counter(unit for units in whole for unit in units)
    sets = [frozenset(u for u, n in number.items() if n >= least) for least in set(number.values())]

    def pairs(units: frozenset[str]) -> int:
        return len(units) * (len(units) - 1) * sum(units <= of_task for of_task in whole)

    best = max(sets, key=lambda units: (pairs(units), len(units)), default=frozenset[str]())
    return best if pairs(best) else frozenset()


def _ranked(task: Task, units: frozenset[str]) -> Task:
    """A task that counts: with the ranks of some units, of those that do not guess."""
    better = [unit for unit in units if not task.places[unit].guessing]
    sign = 1 if task.column.worst > 0 else -1
    # As precise as runs record values.
    medians = [np.float32(sign * task.places[unit].median) for unit in better]
    ranks = dict(zip(better, map(float, rankdata(medians)), strict=True))
    places = {u: p._replace(rank=ranks.get(u, math.nan)) for u, p in task.places.items()}
    return replace(task, places=places, counted=bool(better))


def _who(value: Any) -> str:
    """A text that is the same for equal compared values, however a study names them."""
    return canonical(located(plain_unit(value)))


def _tasks(record: Record, compare: str, texts: Mapping[str, str]) -> list[Task]:
    """The tasks of a study: rows that differ in what is compared alone are one."""
    write = printers(row["point"] for row in record.table["rows"])
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    points: dict[str, str] = {}
    for row in record.table["rows"]:
        rest = without(row["point"], [compare])
        points[canonical(rest)] = in_words(rest, text=write)
        cell = next((cell for cell in row["columns"] if cell.get("ranked", True)), None)
        if compare in row["point"] and cell and cell["n"]:
            found.setdefault(canonical(rest), {})[texts[_who(row["point"][compare])]] = cell
    cut = record.table.get("cut", "")
    return [_task(record, ", ".join(filter(None, (points[r], cut))), cells) for r, cells in found.items()]


def _task(record: Record, point: str, cells: Mapping[str, Mapping[str, Any]]) -> Task:
    first = next(iter(cells.values()))
    metric, at = first["metric"], first["at"]
    mode = first.get("mode") or mode_of(metric)  # older tables do not say it
    condition, chance = first.get("condition", ""), first.get("chance")
    column = Column(metric, at, bool(first.get("percent")), mode, condition, chance=chance)
    most = max(cell["n"] for cell in cells.values())
    places = {}
    for unit, cell in cells.items():
        median = column.worst if cell["median"] is None else float(cell["median"])
        guessing = column.guesses(median)
        places[unit] = Place(median, math.nan, cell["n"], most, cell.get("diverged", True), guessing)
    return Task(record, point, column, places)
