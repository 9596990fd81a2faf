"""All studies of a folder, from ``table.json``: comparisons with GELU in each task, and over tasks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

import numpy as np
from annotated_types import MaxLen, MinLen  # a dependency of pydantic; imports fast
from typing_extensions import TypedDict

from actlab.analysis.columns import Column
from actlab.analysis.differences import Difference, paired_difference, wins
from actlab.analysis.over_tasks import FEWEST_STUDIES, Mean, mean_better, profile
from actlab.analysis.statistics import FEWEST, Array
from actlab.config.keys import by_key
from actlab.config.values import in_full, named, printer, printers, value_key
from actlab.storage.files import DamagedError, read_json
from actlab.studies.plan import SMOKE_SUFFIX
from actlab.studies.points import Point

TABLE = "table.json"
GELU = ("gelu", "gelu_tanh")  # the first of these that a task has is what its activations are compared with
_UNSCALED = "Left out of the profile (a value is 0 or less, or the reference diverged)"
_REMEDY = "delete it, and let `actlab study report` write it again"

Text = Annotated[str, MaxLen(1000)]  # what is drawn: a text of 100,000 letters takes a figure half a minute


class KeptCell(TypedDict):
    """One value of a table row: a column of the study over the runs of a grid point."""

    metric: Text
    at: Text | float
    condition: Text
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
    scale: NotRequired[str]  # tables of older versions lack it
    pairs: int
    paired: dict[str, float | None]
    p: float | None
    p_holm: float | None


class KeptRow(TypedDict):
    """A row of a table: one grid point."""

    point: dict[str, Any]
    edges: NotRequired[list[str]]  # keys whose chosen value is an end of what was tried
    columns: list[KeptCell]


class Table(TypedDict):
    """The keys of ``table.json`` that reports over several studies read."""

    study: Text
    title: Text
    compare: Text
    reference: Text
    own: list[str]
    seeds: NotRequired[list[int]]
    planned: int
    finished: int
    diverged: int
    cut: Text
    samples: bool
    rows: Annotated[list[KeptRow], MinLen(1)]
    notes: list[str]
    sources: NotRequired[dict[str, str]]


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
        """Return the digest of an activation's code; empty for actlab's, and in older tables."""
        name = value.get("name", value.get("class_path")) if isinstance(value, Mapping) else value
        return self.table.get("sources", {}).get(str(name), "")


class Tables(NamedTuple):
    """The tables of several studies that can be read, and one line with the remedy for each damaged table."""

    records: list[StoredTable]
    left_out: list[str]


class Place(NamedTuple):
    """One activation in one task."""

    median: float  # ``inf`` or ``-inf`` if the median run diverged or measured this value
    n: int  # number of runs
    most: int  # largest number of runs of any activation in the task
    diverged: bool  # whether any run diverged
    chance: bool  # whether the median is that of a run that failed, see `Column.failed`
    values: Mapping[str, float]  # of each run by seed, infinite where it failed
    edge: bool  # whether the chosen setting is an end of what was tried


@dataclass(frozen=True)
class ScoredTask:
    """A column of the scoreboard: the primary column of a table at one point of the other grid keys."""

    record: StoredTable
    point: str  # in words, and the length of the runs if it is not the study's own
    column: Column
    places: Mapping[str, Place]  # of each activation that has a value, by its label
    reference: str | None = None  # label of GELU, else of the study's reference; None if the task has neither
    biased: bool = False  # whether the values are the best of several; a test on them would be biased
    left_out: str = ""  # why the task does not count in means over tasks; empty if it does
    # In a task that counts, by label: whether each run is better than each of the reference, ``[n, m]``,
    wins: Mapping[str, Array] = field(default_factory=dict)
    # and value ÷ the reference's median, inverted where high is good, infinite where a run failed.
    ratios: Mapping[str, Array] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Study and point: ``gelu_mnist_classifier, dropout 0.5``."""
        return ", ".join(filter(None, [self.record.table["study"], self.point]))

    @cached_property
    def differences(self) -> Mapping[str, Difference]:
        """The paired differences of the other activations to the reference, by label; uncorrected intervals."""
        others = dict(self.places)
        theirs = others.pop(self.reference).values if self.reference in others else {}
        paired = {}
        for label, place in others.items():
            if pairs := [(v, theirs[s]) for s, v in place.values.items() if s in theirs]:
                sides = map(self.column.compared, zip(*pairs, strict=True))
                paired[label] = paired_difference(*sides, test=not self.biased)
        return paired


@dataclass(frozen=True)
class Board:
    """A scoreboard of the studies that compare the same key."""

    compare: str
    tasks: Sequence[ScoredTask]  # in the order of the studies' names
    labels: Sequence[str]  # of all activations, best first, the reference as a mean of 0.5
    means: Mapping[str, Mean]  # of each activation with a counted task but the reference, best first
    users: frozenset[str] = frozenset()  # labels of the user's activations

    @property
    def reference(self) -> str:
        """The reference in words: ``gelu_tanh``, or ``gelu or gelu_tanh`` if tasks differ in GELU's form."""
        return " or ".join(sorted({str(task.reference) for task in self.tasks if not task.left_out}))

    @cached_property
    def profiles(self) -> Mapping[str, tuple[Array, Array, int]]:
        """For each activation its performance profile, ratios and shares of runs, and its number of tasks."""
        ratios = {label: _by_study(self.tasks, label, "ratios") for label in self.labels}
        return {x: (*profile(studies), sum(map(len, studies))) for x, studies in ratios.items() if studies}

    @property
    def notes(self) -> list[str]:
        """How to read the means, which tasks they leave out, and why."""
        marked: dict[str, list[str]] = {}
        for task in self.tasks:
            places = task.places.values()
            if task.left_out:
                marked.setdefault(f"Left out over tasks ({task.left_out})", []).append(task.name)
                continue
            if any(place.n < FEWEST for place in places):
                marked.setdefault(f"Fewer than {FEWEST} runs", []).append(task.name)
            if not task.ratios:
                marked.setdefault(_UNSCALED, []).append(task.name)
        notes = {
            f"Better: the probability that a run is better than one of {self.reference}; ties count half, a "
            "failed run loses. Over tasks it is a mean in which each study counts once. Intervals (95 %, "
            "bootstrap): first of other seeds, then of other seeds and tasks.": bool(self.means),
            f"Intervals take {FEWEST} runs a side, the second also {FEWEST_STUDIES} studies.": any(
                mean.tasks is None for mean in self.means.values()
            ),
            **{f"{mark}: {'; '.join(names)}.": True for mark, names in marked.items()},
            "chance: the median is not better than guessing, or diverged; such a run has failed.": any(
                place.chance for task in self.tasks for place in task.places.values()
            ),
        }
        return [note for note, holds in notes.items() if holds]


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


def boards(records: Iterable[StoredTable]) -> list[Board]:
    """Return a scoreboard for each key that studies compare, the one with the most tasks first."""
    known = [record for record in records if not record.smoke]
    # Runs on samples count only where no study ran on its full data.
    shown = [record for record in known if not record.on_samples] or known
    of_keys = [_board(key, of) for key, of in by_key((record.compare, record) for record in shown).items()]
    return sorted((b for b in of_keys if b.tasks), key=lambda board: -len(board.tasks))


def _board(compare: str, records: Sequence[StoredTable]) -> Board:
    named = [*zip(records, _texts(records), strict=True)]
    users = {of[value_key(v)] for record, of in named for v in record.values if record.is_own(v)}
    tasks = [task for record, of in named for task in _tasks(record, of)]
    number = Counter(GELU if task.reference in GELU else (task.reference,) for task in tasks if task.reference)
    reference = max(number, key=lambda forms: (forms == GELU, number[forms]), default=())
    tasks = [_counted(task, reference) for task in tasks]
    labels = dict.fromkeys(label for task in tasks for label in task.places)
    won = {label: _by_study(tasks, label, "wins") for label in labels}
    means = {label: mean_better(studies) for label, studies in won.items() if studies}
    level = {task.reference: 0.5 for task in tasks if not task.left_out}
    level |= {label: mean.probability for label, mean in means.items()}
    ordered = sorted(labels, key=lambda label: -level.get(label, -1.0))
    return Board(compare, tasks, ordered, {x: means[x] for x in ordered if x in means}, frozenset(users))


def _texts(records: Sequence[StoredTable]) -> list[dict[str, str]]:
    """Return for each study the labels of its values; with a digest where files of one name differ in code."""
    known = by_key((value_key(value), value) for record in records for value in record.values)
    digests = by_key((value_key(value), record.digest(value)) for record in records for value in record.values)
    write = printer(first for first, *_ in known.values())

    def text(key: str, digest: str) -> str:
        several = len({*digests[key]} - {""}) > 1  # tables of older versions have no digest
        return f"{write(known[key][0])} ({digest[:6]})" if digest and several else write(known[key][0])

    return [{key: text(key, r.digest(v)) for v in r.values for key in [value_key(v)]} for r in records]


def _by_study(tasks: Iterable[ScoredTask], label: str, name: str) -> list[list[Array]]:
    """Return an activation's ``wins`` or ``ratios`` in each task that has them, by study."""
    of_tasks = ((task.record.folder, getattr(task, name)) for task in tasks)
    return [*by_key((study, of_task[label]) for study, of_task in of_tasks if label in of_task).values()]


def _counted(task: ScoredTask, wanted: Sequence[str]) -> ScoredTask:
    """Return a task with comparisons of runs with the reference, one of ``wanted``, or why it has none."""
    places, reference = task.places, task.reference or ""
    ours = places.get(reference)
    reasons = {
        "no reference": ours is None,
        f"compared with {reference}": reference not in wanted,
        f"{reference} is at chance": ours and ours.chance,
        "values are the best of several": task.biased,
    }
    if ours is None or any(reasons.values()):
        return replace(task, left_out=next(reason for reason, holds in reasons.items() if holds))
    sign = 1 if task.column.worst > 0 else -1
    values = {label: np.array([*place.values.values()], float) for label, place in places.items()}
    positive = task.column.scale == "decibels" or all((of[np.isfinite(of)] > 0).all() for of in values.values())
    theirs = sign * values[reference]
    won = {label: wins(sign * of, theirs) for label, of in values.items() if label != reference}
    if not (positive and math.isfinite(ours.median)):
        return replace(task, wins=won)
    ratios = {
        label: np.array([task.column.divided(v, ours.median) for v in of]) for label, of in values.items()
    }
    return replace(task, wins=won, ratios=ratios)


def _tasks(record: StoredTable, texts: Mapping[str, str]) -> list[ScoredTask]:
    keys = (value_key(named(name, record.values)) for name in (*GELU, record.table["reference"]))
    references = [texts[key] for key in keys if key in texts]
    tasks = []
    for point, rows in record.points:
        compared = [row for row in rows if record.compare in row["point"]]
        by_label = {texts[value_key(row["point"][record.compare])]: row for row in compared}
        cells = {of: cell for of, row in by_label.items() if (cell := primary(row)) and cell["values"]}
        if cells:
            column, most = column_of(next(iter(cells.values()))), max(cell["n"] for cell in cells.values())
            places = {of: _place(cell, column, most, by_label[of]) for of, cell in cells.items()}
            reference = next((label for label in references if label in places), None)
            biased = any(cell["biased"] for cell in cells.values())
            tasks.append(ScoredTask(record, point, column, places, reference, biased))
    return tasks


def _place(cell: KeptCell, column: Column, most: int, row: KeptRow) -> Place:
    recorded = (column.worst if value is None else value for value in cell["values"].values())
    values = dict(zip(cell["values"], column.ranked_as(recorded, column.samples), strict=True))
    median = column.worst if cell["median"] is None else cell["median"]
    chance = column.failed(median, column.samples)
    return Place(median, cell["n"], most, cell["diverged"], chance, values, bool(row.get("edges")))
