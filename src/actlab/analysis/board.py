"""The board that ships with actlab: activations on several tasks and data sets, beside one's own.

`results/board/board.yaml` lists tasks, their data and the kept tables. A table of one's own has the same study
and points, and its rows stand beside the kept ones; so do those of the activations that users submitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, NotRequired

from typing_extensions import TypedDict

from actlab.analysis import hierarchy, scoreboard, study_table
from actlab.analysis.differences import Estimate, better
from actlab.analysis.hierarchy import Effect, OverTasks, Ratio
from actlab.analysis.scoreboard import Board, ScoredTask, StoredTable
from actlab.analysis.statistics import LEVEL, holm, p_text
from actlab.analysis.study_table import Row, StudyTable
from actlab.analysis.verdict import SMOKE
from actlab.analysis.wording import digits, plural
from actlab.storage.files import checked
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import resource
from actlab.studies.plan import BLOCK

FILE = "results/board/board.yaml"
SUBMITTED = "results/board/submitted"
SUBMISSION = "submission.json"
FIRST_SEED = 20  # of further data: above the seeds that chose and compared


class DataSet(TypedDict):
    """A data set of a task: a kept table, and what trains a further activation on it."""

    table: str  # folder of the kept table, below ``results``
    file: NotRequired[str]  # in the folder of data; without one the task needs no data
    sha256: NotRequired[str]
    set: NotRequired[dict[str, Any]]
    chance: NotRequired[float]
    seeds: NotRequired[int]


class BoardTask(TypedDict):
    """A task of the board."""

    title: str
    study: str  # chooses settings on the first of ``data``
    data: dict[str, DataSet]
    further: NotRequired[dict[str, DataSet]]
    points_are_data: NotRequired[bool]  # whether the points of a table are data sets, not parts of one


class BoardFile(TypedDict):
    """The contents of `FILE`."""

    reference: str
    equivalence: float  # ratio up to which activations count as practically equal
    tasks: dict[str, BoardTask]


class Submission(TypedDict):
    """An activation that its author put on the board: `SUBMISSION` in a folder of `SUBMITTED` of its name.

    The same folder has the author's file, and the table of each data set as ``TASK/DATA/table.json``.
    """

    activation: Any  # its value in studies
    code: str  # digest of the file, as its tables have it; empty without a file
    source: str  # who made it: a paper or a person
    licence: str  # an SPDX expression


class OnData(NamedTuple):
    """An activation on one data set, at one point of its table."""

    name: str  # ``text, Bible, plain``
    ratio: Ratio | None  # to the reference, over the runs that succeeded; None where most failed
    runs: int
    failed: int
    edge: bool  # whether the chosen setting is an end of what was tried
    better: Estimate | None  # the probability that a run is better than one of the reference, with its p


class Standing(NamedTuple):
    """An activation on the board."""

    label: str
    over: OverTasks | None  # over the tasks in which it did not fail; None without any
    on: tuple[OnData, ...]
    against_best: Ratio | None = None  # on these tasks, to the best of the others, with a simultaneous interval

    @property
    def failures(self) -> list[str]:
        """The names of the data sets on which most runs failed."""
        return [data.name for data in self.on if data.ratio is None]


@cache
def board_file() -> BoardFile:
    """Return the contents of `FILE`."""
    return checked(read_mapping(resource(FILE)), BoardFile)


def seeds_of(task: BoardTask, data: str) -> tuple[int, ...]:
    """Return the seeds of further activations on a further data set of a task; no two data sets share one."""
    names = [*task["further"]]
    before = sum(task["further"][name]["seeds"] for name in names[: names.index(data)])
    return (*range(FIRST_SEED + before, FIRST_SEED + before + task["further"][data]["seeds"]),)


def submitted() -> dict[str, dict[tuple[str, str], StudyTable]]:
    """Return the tables of the activations that users submitted, by name, then by task and data set."""
    tables: dict[str, dict[tuple[str, str], StudyTable]] = {}
    for file in sorted(resource(SUBMITTED).glob(f"*/*/*/{study_table.NAME}")):
        name, task, data, _ = file.parts[-4:]
        table = study_table.read(file, "copy it again from the folder of the runs")
        tables.setdefault(name, {})[task, data] = table
    return tables


def data_of(task: BoardTask) -> dict[str, DataSet]:
    """Return the data sets of a task by name, the first one first."""
    return {**task["data"], **task.get("further", {})}


@dataclass(frozen=True)
class Scores:
    """The tables of the board, scored."""

    file: BoardFile
    board: Board
    places: Mapping[str, tuple[str, str]]  # task and data set by the name of a table

    @property
    def reference(self) -> str:
        """The label of the activation that the others are compared with."""
        return self.file["reference"]

    @cached_property
    def standings(self) -> list[Standing]:
        """The activations other than the reference, the lowest ratio first, those that failed most last."""
        labels = [label for label in self.board.labels if label != self.reference]
        over = {label: self._over(label, self.reference) for label in labels}

        def place(label: str) -> tuple[bool, int, float]:
            failed = sum(task.places[label].chance for task in self.board.tasks if label in task.places)
            mean = over[label]
            return mean is None, failed, mean.here.value if mean else math.inf

        order = sorted(labels, key=place)
        best, level = order[0], LEVEL / max(1, len(labels) - 1)  # any of the others may be the best
        standings = []
        for label in order:
            beside = self._over(label, best, level) if label != best else None
            on = tuple(self._on(task, label) for task in self.board.tasks if label in task.places)
            standings.append(Standing(label, over[label], on, beside and beside.here))
        return standings

    def verdicts(self, label: str) -> list[tuple[OnData, float | None]]:
        """Return an activation on each data set with the p of `OnData.better`, corrected over all (Holm)."""
        on = next(standing.on for standing in self.standings if standing.label == label)
        return [*zip(on, holm([data.better.p if data.better else None for data in on]), strict=True)]

    def _over(self, label: str, reference: str, level: float = LEVEL) -> OverTasks | None:
        tasks: dict[str, dict[str, list[Effect]]] = {}
        for task in self.board.tasks:
            if effect := self._effect(task, label, reference):
                name, data = self.places[task.record.table.study]
                whole = f"{data} {task.point}" if self.file["tasks"][name].get("points_are_data") else data
                tasks.setdefault(name, {}).setdefault(whole, []).append(effect)
        effects = [[*map(hierarchy.mean_of, data.values())] for data in tasks.values()]
        return hierarchy.over_tasks(effects, self.file["equivalence"], level)

    def _effect(self, task: ScoredTask, label: str, reference: str) -> Effect | None:
        """Return the effect of the runs that succeeded; None where most of one side failed."""
        sides = [task.places.get(name) for name in (label, reference)]
        if any(place is None or place.chance for place in sides):
            return None
        runs = [[v for v in place.values.values() if math.isfinite(v)] for place in sides if place]
        equal = 0.0 if task.column.scale == "decibels" else 1.0
        return hierarchy.effect(*([task.column.divided(value, equal) for value in of] for of in runs))

    def _on(self, task: ScoredTask, label: str) -> OnData:
        place, theirs = task.places[label], task.places[self.reference]
        effect = self._effect(task, label, self.reference)
        ours, others = ([*of.values.values()] for of in (place, theirs))
        won = better(ours, others, task.column.goal, test=label in self.board.users)
        failed = sum(map(math.isinf, place.values.values()))
        return OnData(task.name, effect and hierarchy.within(effect), place.n, failed, place.edge, won)


def scores(tables: Mapping[tuple[str, str], StudyTable] | None = None) -> Scores:
    """Return the board, with the rows of the user's ``tables`` by task and data set."""
    file, places, records, others = board_file(), dict[str, tuple[str, str]](), [], submitted()
    for task, of in file["tasks"].items():
        for name, data in data_of(of).items():
            title = f"{task}: {name}"
            places[title] = task, name
            rows: list[Row] = []
            for label, tables_of in others.items():
                if (task, name) in tables_of:
                    rows += _named(tables_of[task, name], label)
            records.append(_record(title, data, rows, (tables or {}).get((task, name))))
    return Scores(file, scoreboard.board_of(records), places)


def _named(table: StudyTable, label: str) -> list[Row]:
    """Return the rows of a table with one activation under another name."""
    return [replace(row, point=row.point | {table.compare: label}) for row in table.rows]


def comparable(rows: Sequence[Row], kept: StudyTable) -> list[Row]:
    """Return rows at the points of a kept table, in which a single block holds settings and is no data."""
    if len({row.point.get(BLOCK) for row in kept.rows}) > 1:
        return [*rows]
    return [replace(row, point=row.point.without([BLOCK])) for row in rows]


def _record(title: str, data: DataSet, others: list[Row], users: StudyTable | None) -> StoredTable:
    folder = resource(str(Path("results", data["table"])))
    table = study_table.read(folder / study_table.NAME, "reinstall actlab")
    rows = comparable([*table.rows, *others, *(users.rows if users else [])], table)
    if (chance := data.get("chance")) is not None:
        rows = [replace(row, columns=tuple(replace(c, chance=chance) for c in row.columns)) for row in rows]
    own, sources = (users.own, users.sources) if users else ((), table.sources)
    return StoredTable(folder, replace(table, study=title, rows=tuple(rows), own=own, sources=sources))


def sentence(standing: Standing, reference: str) -> str:
    """Return where an activation stands over tasks, in words."""
    words = [f"{standing.label}:"]
    if over := standing.over:
        of = f"{plural(over.tasks, 'task')}, {plural(over.datasets, 'data set')}"
        words += [
            f"{over.here} times the error of {reference} on {of}; on others such as these {over.ratio},",
            f"practically equal with a probability of {over.equivalent:.2f}.",
        ]
    elif data := [on.name for on in standing.on if on.ratio]:
        words.append(f"only on {'; '.join(data)}, which says nothing over tasks.")
    if failures := standing.failures:
        words.append(f"Failed on {'; '.join(failures)}.")
    return " ".join(words)


def verdict(data: OnData, p: float | None, reference: str) -> str:
    """Return what the runs on one data set say of an activation, in words."""
    if data.ratio is None:
        return f"{data.name}: failed in {data.failed} of {data.runs} runs."
    words = [f"{data.name}: {data.ratio} times the error of {reference}"]
    if p is not None and data.better:
        # Failed runs count in p, not in the ratio; so does the word.
        word = "undecided" if p >= LEVEL else "better" if (data.better.value or 0) > 0.5 else "worse"
        words.append(f"{word}, p {p_text(p)} after Holm's correction")
    if data.failed:
        words.append(f"{data.failed} of {data.runs} runs failed")
    return "; ".join(words) + "."


def smoke_lines(tables: Mapping[tuple[str, str], StudyTable]) -> list[str]:
    """Return a small scoreboard of smoke runs, their values without a comparison, and what whole runs add."""
    said = ["", f"Smoke scoreboard. {SMOKE}"]
    for (task, data), table in tables.items():
        for words, rows in table.points:
            name = ", ".join(filter(None, [task, data, words]))
            for row in rows:
                cell = row.primary
                if cell is None:
                    continue
                value = "no finite value"
                if cell.median is not None and math.isfinite(cell.median):
                    value = digits(cell.median)
                said.append(f"{name}: {table.label(row)}, {cell.metric} {value}, {plural(cell.n, 'run')}")

    reference = board_file()["reference"]
    example = sentence(scores().standings[0], reference)
    return [
        *said,
        f"Without --smoke you get the ratio to {reference} with a verdict on each data set, the rank among the "
        f"others, and a sentence over tasks, as for an activation of the scoreboard: {example}",
    ]


def lines(scores: Scores) -> list[str]:
    """Return what the board says of the user's activations: on each data set, over tasks, beside the best.

    Without any, the sentence on each activation of the board.
    """
    reference, standings = scores.reference, scores.standings
    if not scores.board.users:
        return [sentence(standing, reference) for standing in standings]
    said = []
    for place, standing in enumerate(standings, 1):
        if standing.label not in scores.board.users:
            continue
        said += ["", standing.label, *(verdict(*of, reference) for of in scores.verdicts(standing.label))]
        said += [sentence(standing, reference), f"Place {place} of {len(standings)} beside {reference}."]
        if beside := standing.against_best:
            best = standings[0].label
            said.append(f"Its error is {beside} times that of {best}, the best (simultaneous interval).")
    return said
