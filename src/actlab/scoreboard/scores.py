"""The scores of activations: on each data set of the scoreboard, and over its tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from actlab.analysis.columns import Column
from actlab.analysis.differences import better
from actlab.analysis.statistics import LEVEL, holm
from actlab.analysis.study_table import Row, StudyTable
from actlab.analysis.wording import joined
from actlab.config.values import value_key
from actlab.scoreboard import definition, statistic, tables
from actlab.scoreboard.statistic import Effect, OverTasks, Ratio
from actlab.scoreboard.tables import DataName


@dataclass(frozen=True)
class Runs:
    """The runs of an activation on a data set, at its selected setting."""

    values: list[float]  # the worst value for runs that failed
    errors: list[float]  # of the runs that succeeded, above 0 and low if good; empty if most failed
    edge: bool  # whether the selected setting is an end of what was tried
    by_user: bool  # whether the activation is the user's


@dataclass(frozen=True)
class Comparison:
    """The runs of all activations on a data set, or on a part of it. It compares two of them."""

    name: str  # ``text: Bible, block plain``
    task: str
    data: str  # comparisons of a task with the same data count as one
    goal: str  # ``min`` or ``max`` of the values is good
    runs: Mapping[str, Runs]  # by the label of the activation

    def effect(self, label: str, reference: str) -> Effect | None:
        """Return the effect of the runs that succeeded; None if most runs of one side failed."""
        runs = self.runs.get(label)
        reference_runs = self.runs.get(reference)
        if runs and reference_runs:
            return statistic.effect(runs.errors, reference_runs.errors)
        return None


@dataclass(frozen=True)
class Score:
    """An activation on a data set, compared with the reference."""

    name: str  # of the comparison
    ratio: Ratio | None  # of errors, over the runs that succeeded; None if most failed
    runs: int
    failed: int
    edge: bool
    better: float | None  # probability that a run is better than a run of the reference
    p: float | None  # of ``better``, corrected over all data sets; None if not the user's


@dataclass(frozen=True)
class Standing:
    """An activation on the scoreboard."""

    label: str
    own: bool  # whether it is the user's
    over: OverTasks | None  # over the tasks in which it did not fail; None with too few
    on: tuple[Score, ...]
    against_best: Ratio | None = None  # to the best activation, with a simultaneous interval

    @property
    def failures(self) -> list[str]:
        """The names of the data sets on which most runs failed."""
        return [score.name for score in self.on if score.ratio is None]


@dataclass(frozen=True)
class Scoreboard:
    """All activations except the reference, the lowest ratio over tasks first, failures last."""

    reference: str
    equivalence: float  # ratio up to which activations count as practically equal
    standings: tuple[Standing, ...]

    @property
    def users(self) -> set[str]:
        """The labels of the user's activations."""
        return {standing.label for standing in self.standings if standing.own}


def load(user_tables: Mapping[DataName, StudyTable] | None = None) -> Scoreboard:
    """Return the scoreboard, with the rows of the user's tables."""
    comparisons = compared(tables.of_scoreboard(user_tables or {}))
    labels: dict[str, None] = {}
    for comparison in comparisons:
        labels |= dict.fromkeys(comparison.runs)

    # Compare each activation with the reference
    stated = definition.load()
    del labels[stated.reference]
    standings = sorted((_standing(label, comparisons) for label in labels), key=_order)

    # Compare each activation with the best; any activation may be the best, so correct the level
    best, *further = standings
    level = LEVEL / max(1, len(further))
    ordered = [best]
    for standing in further:
        over = _over_tasks(standing.label, best.label, comparisons, level)
        if over:
            standing = replace(standing, against_best=over.here)
        ordered.append(standing)
    return Scoreboard(stated.reference, stated.equivalence, tuple(ordered))


def compared(stored: Mapping[DataName, StudyTable]) -> list[Comparison]:
    """Return a comparison for each table and each point of its other grid keys."""
    labels = tables.labels_of(stored.values())
    comparisons = []
    for name, table in stored.items():
        for part, rows in table.points:
            comparisons.append(_comparison(name, part, rows, table, labels))
    return comparisons


def _comparison(
    name: DataName, part: str, rows: list[Row], table: StudyTable, labels: Mapping[str, str]
) -> Comparison:
    """Return the comparison of some rows of a table, which differ only in the activation."""
    task, data = name
    stated = definition.load().tasks[task]

    # Read the column with the chance level of the scoreboard
    column: Column = rows[0].primary
    chance = stated.data[data].chance
    if chance is not None:
        column = replace(column, chance=chance)

    # Read the runs of each activation
    runs = {}
    for row in rows:
        label = labels[value_key(row.point[table.compare])]
        if row.primary.values:
            runs[label] = _runs(row, column, table.is_own(row))

    comparison_name = joined(f"{task}: {data}", part)
    if stated.points_are_data:
        data += f" {part}"
    return Comparison(comparison_name, task, data, column.goal, runs)


def _runs(row: Row, column: Column, by_user: bool) -> Runs:
    """Return the runs of a row, with failures as the column counts them."""
    cell = row.primary
    values = column.ranked_as(cell.values.values(), column.samples)

    # Take the ratio to one error, or to 0 decibels
    errors = []
    if not column.failed(cell.median, column.samples):
        unit = 0.0 if column.scale == "decibels" else 1.0
        errors = [column.divided(value, unit) for value in values if math.isfinite(value)]
    return Runs(values, errors, bool(row.edges), by_user)


def _standing(label: str, comparisons: Sequence[Comparison]) -> Standing:
    """Return an activation compared with the reference."""
    reference = definition.load().reference
    compared_in = [comparison for comparison in comparisons if label in comparison.runs]
    by_user = any(comparison.runs[label].by_user for comparison in compared_in)

    # Score it on each data set
    scores = []
    for comparison in compared_in:
        runs = comparison.runs[label]
        effect = comparison.effect(label, reference)
        reference_values = comparison.runs[reference].values
        superiority = better(runs.values, reference_values, comparison.goal, test=by_user)
        score = Score(
            name=comparison.name,
            ratio=statistic.within(effect) if effect else None,
            runs=len(runs.values),
            failed=sum(map(math.isinf, runs.values)),
            edge=runs.edge,
            better=superiority.probability,
            p=superiority.p,
        )
        scores.append(score)

    # Correct p over all data sets
    corrected = holm([score.p for score in scores])
    scores = [replace(score, p=p) for score, p in zip(scores, corrected, strict=True)]
    over = _over_tasks(label, reference, comparisons)
    return Standing(label, by_user, over, tuple(scores))


def _over_tasks(
    label: str, reference: str, comparisons: Sequence[Comparison], level: float = LEVEL
) -> OverTasks | None:
    """Return the ratios of two activations over the tasks in which neither failed."""
    effects: dict[str, dict[str, list[Effect]]] = {}
    for comparison in comparisons:
        effect = comparison.effect(label, reference)
        if effect:
            task_effects = effects.setdefault(comparison.task, {})
            task_effects.setdefault(comparison.data, []).append(effect)

    tasks = []
    for task_effects in effects.values():
        tasks.append([statistic.mean_of(parts) for parts in task_effects.values()])
    return statistic.over_tasks(tasks, definition.load().equivalence, level)


def _order(standing: Standing) -> tuple[bool, int, float]:
    """Return what standings are sorted by."""
    over = standing.over
    ratio = over.here.value if over else math.inf
    return over is None, len(standing.failures), ratio
