"""The scores of activations: on each data set of the scoreboard, and over its tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from actlab.analysis.columns import Column
from actlab.analysis.differences import better
from actlab.analysis.statistics import LEVEL, holm, median
from actlab.analysis.study_table import Row, StudyTable
from actlab.analysis.wording import joined
from actlab.config.values import value_key
from actlab.scoreboard import definition, statistic, tables
from actlab.scoreboard.definition import Definition
from actlab.scoreboard.selections import error_of
from actlab.scoreboard.statistic import FEWEST_TASKS, Effect, OverTasks, Ratio, Task
from actlab.scoreboard.tables import DataName, ScoredTable
from actlab.studies.points import Point


@dataclass(frozen=True)
class Setting:
    """The selected setting of an activation, on the data that selected it and on further data."""

    text: str  # ``lr 0.01, gain 1``
    edge: bool  # whether it is an end of what was tried
    unstable: bool  # whether other seeds would often select another setting
    variance: float  # of the effect over selections


@dataclass(frozen=True)
class Runs:
    """The runs of an activation on a data set, at its selected setting."""

    values: list[float]  # the worst value for runs that failed
    # Errors of the runs that succeeded, above 0 and low if good; empty if most failed.
    errors: list[float]
    setting: Setting
    middle: float  # median error of all runs; infinite if most failed
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
        runs = self.runs[label]
        reference_runs = self.runs[reference]
        effect = statistic.effect(runs.errors, reference_runs.errors)
        if effect is None:
            return None
        if label == reference:
            return Effect(0.0, 0.0)
        variance = runs.setting.variance + reference_runs.setting.variance
        return effect._replace(selection=variance)

    def ranks(self, labels: Sequence[str]) -> dict[str, float]:
        """Return the rank of each of some activations; equal ones, and failures, share theirs."""
        middles = np.array([self.runs[label].middle for label in labels])
        ranks = {}
        for label, middle in zip(labels, middles, strict=True):
            lower = int((middles < middle).sum())
            equal = int((middles == middle).sum())
            ranks[label] = lower + (equal + 1) / 2
        return ranks


@dataclass(frozen=True)
class Score:
    """An activation on a data set, compared with the reference."""

    name: str  # of the comparison
    # Of errors, over the runs that succeeded; None if most of a side failed.
    ratio: Ratio | None
    fails: bool  # whether most of its runs failed
    runs: int
    failed: int
    setting: str  # the selected one, as text
    edge: bool
    unstable: bool  # whether other seeds would often select another setting
    better: float  # probability that a run is better than a run of the reference
    # Of ``better``, corrected over all data sets; None if not the user's.
    p: float | None


@dataclass(frozen=True)
class TaskScore:
    """An activation on the data sets of a task."""

    better: float  # probability that a run is better than a run of the reference
    rank: float | None  # mean rank; None if the activation has no rank
    # The geometric mean over data sets on which the reference did not fail.
    ratio: Ratio | None
    # Whether the activation failed on one of these, so that it has no ratio.
    fails: bool


@dataclass(frozen=True)
class Rank:
    """The rank of an activation among all that have its data sets."""

    place: int  # 1 is the best
    among: int
    mean: float  # rank, over tasks
    tasks: int
    datasets: int


@dataclass(frozen=True)
class Standing:
    """An activation on the scoreboard."""

    label: str
    own: bool  # whether it is the user's
    rank: Rank | None  # None with fewer than two tasks
    better: float  # mean over tasks of the probability to be better than the reference
    tasks: Mapping[str, TaskScore]
    # Where the reference did not fail; None if it fails, or with one task.
    over: OverTasks | None
    on: tuple[Score, ...]
    # The ratio to the best activation, with a simultaneous interval; None if that is the
    # reference
    against_best: Ratio | None = None

    @property
    def failures(self) -> list[str]:
        """The names of the data sets on which most runs failed."""
        return [score.name for score in self.on if score.fails]


@dataclass(frozen=True)
class Scoreboard:
    """All activations: the reference, then the lowest mean rank first, then those without a rank.

    Activations that lack data sets come after those that have them all.
    """

    version: int
    reference: str
    best: str  # the activation with the lowest mean rank over all data sets
    equivalence: float  # ratio up to which activations count as practically equal
    # Share of the best activation's gain over chance; less is a failure.
    least_gain: float
    standings: tuple[Standing, ...]
    not_run: tuple[str, ...]  # tasks and data sets that are stated and have no results

    @property
    def users(self) -> set[str]:
        """The labels of the user's activations."""
        return {standing.label for standing in self.standings if standing.own}


def load(
    user_tables: Mapping[DataName, StudyTable] | None = None,
    user_runs: Mapping[DataName, Path] | None = None,
    version: int = definition.CURRENT,
) -> Scoreboard:
    """Return a version of the scoreboard, with the rows of the user's tables.

    Args:
        user_tables: the user's tables.
        user_runs: files of the user's runs that selected settings, by the data set that they used.
        version: of the scoreboard.
    """
    # Compare the runs on each data set
    stated = definition.load(version)
    scored = tables.of_scoreboard(stated, user_tables or {}, user_runs or {})
    comparisons = compared(scored, stated)

    # Labels in the order of the comparisons
    labels: dict[str, None] = {}
    for comparison in comparisons:
        labels |= dict.fromkeys(comparison.runs)

    # Compare each activation with the reference, which comes first
    standings = [_standing(label, comparisons, stated) for label in labels]
    standings.sort(key=order)
    standings.sort(key=lambda standing: standing.label != stated.reference)

    # Compare each activation with the best, unless that is the reference, which has ratios
    # already. Any activation may be the best, so correct the level
    best = min(standings, key=order).label
    level = LEVEL / max(1, len(standings) - 1)
    compared_with_best = []
    for standing in standings:
        if standing.over and best not in (standing.label, stated.reference):
            tasks = _succeeded(_effects(standing.label, best, comparisons, stated))
            if tasks:
                ratio = statistic.over_these(tasks, level)
                standing = replace(standing, against_best=ratio)
        compared_with_best.append(standing)
    return Scoreboard(
        version=stated.version,
        reference=stated.reference,
        best=best,
        equivalence=stated.equivalence,
        least_gain=stated.least_gain,
        standings=tuple(compared_with_best),
        not_run=tuple(stated.not_run),
    )


def compared(
    scored: Mapping[DataName, ScoredTable], stated: Definition
) -> list[Comparison]:
    """Return a comparison for each table and each point of its other grid keys."""
    labels = tables.labels_of(data.table for data in scored.values())
    settings: dict[DataName, dict[Point, Setting]] = {}
    comparisons = []
    for name, data in scored.items():
        # Further data sets inherit the settings
        task, _ = name
        settings_of_group = settings.setdefault((task, data.selected_on), {})
        for row in data.table.rows:
            unstable = row.choice is not None and row.choice.unstable
            setting = Setting(
                text=row.chosen.in_words(text=data.table.text),
                edge=bool(row.edges),
                unstable=unstable,
                variance=data.variances.get(row.point, 0.0),
            )
            settings_of_group.setdefault(row.point, setting)

        # Compare the rows that differ only in the activation
        for part, rows in data.table.points:
            by_label = {}
            for row in rows:
                by_label[labels[value_key(row.point[data.table.compare])]] = row
            comparisons.append(
                _comparison(name, part, by_label, data.table, settings_of_group, stated)
            )
    return comparisons


def _comparison(
    name: DataName,
    part: str,
    rows: Mapping[str, Row],
    table: StudyTable,
    settings: Mapping[Point, Setting],
    stated: Definition,
) -> Comparison:
    """Return the comparison of some rows of a table, which differ only in the activation."""
    task, data = name
    stated_task = stated.tasks[task]

    # Read the column with the chance level of the scoreboard
    column: Column = next(iter(rows.values())).primary
    chance = stated_task.data[data].chance
    if chance is not None:
        column = replace(column, chance=chance)

    # Read the runs of each activation
    limit = _limit(column, rows.values(), table, stated.least_gain)
    runs = {}
    for label, row in rows.items():
        if row.primary.values:
            runs[label] = _runs(
                row, column, limit, settings[row.point], table.is_own(row)
            )

    # Points that count as data sets need separate names
    comparison_name = joined(f"{task}: {data}", part)
    if stated_task.points_are_data:
        data += f" {part}"
    return Comparison(comparison_name, task, data, column.goal, runs)


def _limit(
    column: Column, rows: Iterable[Row], table: StudyTable, least_gain: float
) -> float:
    """Return the error above which a run gains too little over chance, and has failed.

    The gain is relative to the best activation that is not the user's.
    """
    if column.chance is None:
        return math.inf
    chance = error_of(replace(column, chance=None), column.chance)

    # Find the best median
    best = chance
    for row in rows:
        middle = row.primary.median
        if middle is not None and not table.is_own(row):
            best = min(best, error_of(column, middle))
    return chance - least_gain * (chance - best)


def _runs(
    row: Row, column: Column, limit: float, setting: Setting, by_user: bool
) -> Runs:
    """Return the runs of a row, with failures as the column and the limit count them."""
    # A failed run counts as the worst value
    values = []
    errors = []
    failed = 0
    for value in row.primary.values.values():
        error = error_of(column, value, column.samples)
        if error > limit or math.isinf(error):
            failed += 1
            value = column.worst
        else:
            errors.append(error)
        values.append(value)

    # Ratios are taken over the runs that succeeded, if most did
    middle = median([*errors, *[math.inf] * failed])
    if math.isinf(middle):
        errors = []
    return Runs(values, errors, setting, middle, by_user)


def _standing(
    label: str, comparisons: Sequence[Comparison], stated: Definition
) -> Standing:
    """Return an activation compared with the reference."""
    # The comparisons in which the activation has runs
    own_comparisons = [
        comparison for comparison in comparisons if label in comparison.runs
    ]
    by_user = any(comparison.runs[label].by_user for comparison in own_comparisons)

    # Score it on each data set
    scores = [
        _score(comparison, label, stated.reference) for comparison in own_comparisons
    ]
    corrected = holm([score.p for score in scores])
    scores = [replace(score, p=p) for score, p in zip(scores, corrected, strict=True)]

    # Score it on each task
    rank, ranks = _ranked(label, own_comparisons)
    probabilities = _by_task(own_comparisons, [score.better for score in scores])
    effects = _effects(label, stated.reference, own_comparisons, stated)
    task_scores = {}
    for name, probability in probabilities.items():
        ratio = None
        task = effects.get(name)
        if task:
            ratio = statistic.ratio_of(statistic.mean_in(task))
        fails = name in effects and not task
        task_scores[name] = TaskScore(probability, ranks.get(name), ratio, fails)

    # A mean that left out failures would not be comparable
    over = None
    if label != stated.reference:
        over = statistic.over_tasks(_succeeded(effects), stated.equivalence)
    return Standing(
        label=label,
        own=by_user,
        rank=rank,
        better=_mean(probabilities.values()),
        tasks=task_scores,
        over=over,
        on=tuple(scores),
    )


def _score(comparison: Comparison, label: str, reference: str) -> Score:
    """Return an activation on a data set, with p alone."""
    # Only the user's activations are tested
    runs = comparison.runs[label]
    reference_values = comparison.runs[reference].values
    effect = comparison.effect(label, reference)
    superiority = better(
        runs.values, reference_values, comparison.goal, test=runs.by_user
    )
    return Score(
        name=comparison.name,
        ratio=statistic.ratio_of(effect) if effect else None,
        fails=not runs.errors,
        runs=len(runs.values),
        failed=sum(map(math.isinf, runs.values)),
        setting=runs.setting.text,
        edge=runs.setting.edge,
        unstable=runs.setting.unstable,
        better=superiority.probability or 0.0,
        p=superiority.p,
    )


def _ranked(
    label: str, comparisons: Sequence[Comparison]
) -> tuple[Rank | None, Mapping[str, float]]:
    """Return the rank of an activation on its data sets, and its mean rank on each task.

    It is ranked among all activations that have these data sets.
    """
    # Too few tasks give no rank
    datasets = {(comparison.task, comparison.data) for comparison in comparisons}
    tasks = {task for task, _ in datasets}
    if len(tasks) < FEWEST_TASKS:
        return None, {}

    # Rank all on each data set
    labels = set.intersection(*(set(comparison.runs) for comparison in comparisons))
    ranks = [comparison.ranks([*labels]) for comparison in comparisons]

    # Average the ranks of each
    by_task = {}
    means = {}
    for competitor in labels:
        values = [by_label[competitor] for by_label in ranks]
        by_task[competitor] = _by_task(comparisons, values)
        means[competitor] = _mean(by_task[competitor].values())

    # Count those ahead; equal means may differ by rounding
    ahead = 0
    for mean in means.values():
        if mean < means[label] and not math.isclose(mean, means[label]):
            ahead += 1
    rank = Rank(ahead + 1, len(labels), means[label], len(tasks), len(datasets))
    return rank, by_task[label]


def _by_task(
    comparisons: Sequence[Comparison], values: Sequence[float]
) -> dict[str, float]:
    """Return the mean of a value of each comparison over the data sets of each task."""
    grouped: dict[str, dict[str, list[float]]] = {}
    for comparison, value in zip(comparisons, values, strict=True):
        datasets = grouped.setdefault(comparison.task, {})
        datasets.setdefault(comparison.data, []).append(value)

    means = {}
    for task, datasets in grouped.items():
        means[task] = _mean(_mean(parts) for parts in datasets.values())
    return means


def _mean(values: Iterable[float]) -> float:
    return float(np.mean([*values]))


def _effects(
    label: str,
    reference: str,
    comparisons: Sequence[Comparison],
    stated: Definition,
) -> dict[str, Task | None]:
    """Return the effects on each task where the reference of the scoreboard did not fail.

    A task in which one of the two activations failed has None.
    """
    # Collect the effects by data set
    effects: dict[str, dict[str, list[Effect]]] = {}
    failed = set()
    for comparison in comparisons:
        if label not in comparison.runs or not comparison.runs[stated.reference].errors:
            continue
        task_effects = effects.setdefault(comparison.task, {})
        effect = comparison.effect(label, reference)
        if effect:
            task_effects.setdefault(comparison.data, []).append(effect)
        else:
            failed.add(comparison.task)

    # Parts of a data set count as one
    tasks: dict[str, Task | None] = {}
    for name, by_data in effects.items():
        tasks[name] = None
        if name not in failed:
            means = {data: statistic.mean_of(parts) for data, parts in by_data.items()}
            tasks[name] = Task(_grouped(means, stated.tasks[name]))
    return tasks


def _grouped(
    effects: Mapping[str, Effect], stated: definition.Task
) -> list[list[Effect]]:
    """Return the effects on the data sets of a task, by selection of settings."""
    # Each point that counts as a data set has its own settings
    if stated.points_are_data:
        return [[effect] for effect in effects.values()]

    groups = []
    for names in stated.groups:
        group = [effects[name] for name in names if name in effects]
        if group:
            groups.append(group)
    return groups


def _succeeded(effects: Mapping[str, Task | None]) -> list[Task]:
    """Return the effects on all tasks; none if an activation failed on a task."""
    tasks = []
    for task in effects.values():
        if task is None:
            return []
        tasks.append(task)
    return tasks


def order(standing: Standing) -> tuple[int, float]:
    """Return what standings are sorted by, the best first."""
    if standing.rank is None:
        return 0, 0.0
    return -standing.rank.datasets, standing.rank.mean
