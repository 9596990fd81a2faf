"""The activations of several studies next to each other, for ``actlab report``.

Each study is a task, unless a file puts several studies into one task. Activations are compared
with the reference as on the scoreboard (`actlab.scoreboard.statistic`): by the ratio of errors, or
by the difference in a column without ratios, such as an accuracy. Only ratios have a mean over
tasks, and only if the activation has one in each study.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from actlab.analysis.columns import Column
from actlab.analysis.study_table import Cell, StudyTable
from actlab.analysis.wording import joined
from actlab.config.labels import in_full
from actlab.config.values import shareable, value_key
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.reports.tables import NONE
from actlab.scoreboard import statistic
from actlab.scoreboard.selections import errors_of
from actlab.scoreboard.statistic import Effect
from actlab.scoreboard.tables import labels_of
from actlab.storage.mappings import read_mapping

_READING = (
    "Ratio of the error to the error of {reference}: geometric means over successful runs, with "
    "the 95 % interval of other seeds; below 1 is better. A column without ratios shows the mean "
    "difference, and has no mean over tasks. Better: the probability that a run is better than a "
    "run of {reference}, as a mean over {tasks} tasks; failed runs lose."
)

Columns = Mapping[str, tuple[str, str]]  # task and study of each column
Value = TypeVar("Value", float, Effect)


@dataclass(frozen=True)
class Score:
    """An activation compared with the reference in a study, at one point of its grid."""

    text: str
    better: float | None  # probability of a better run
    effect: Effect | None = None  # None without a ratio


@dataclass(frozen=True)
class Line:
    """An activation in all studies."""

    label: str
    by_user: bool
    better: float | None  # mean over tasks; None if it was not run in all studies
    mean: str  # geometric mean over tasks; `NONE` without a ratio in each study
    # In the order of `Overview.columns`; `NONE` where it was not run.
    texts: tuple[str, ...]

    @property
    def better_text(self) -> str:
        """The mean probability as printed."""
        return NONE if self.better is None else f"{self.better:.2f}"


@dataclass(frozen=True)
class Overview:
    """The activations of at least two studies with the same reference, the best first."""

    reference: str
    columns: tuple[str, ...]  # a study, or a point of its grid
    tasks: int
    lines: tuple[Line, ...]

    @property
    def reading(self) -> str:
        """How to read the numbers."""
        return _READING.format(reference=self.reference, tasks=self.tasks)


def read_tasks(file: Path, studies: Sequence[StudyTable]) -> dict[str, str]:
    """Return the task of each study that a file names, as ``TASK: [STUDY, STUDY]`` in YAML."""
    # Each task lists its studies
    names = [study.study for study in studies]
    tasks: dict[str, str] = {}
    for task, members in read_mapping(file).items():
        if not isinstance(members, list):
            raise ActlabError(
                f"{file}: {task}: expected a list of studies, got {members!r}."
            )

        # Each study has at most one task
        for name in map(str, members):
            if name not in names:
                raise unknown(
                    "study", name, names, f"{file} names studies of --runs-dir."
                )
            if name in tasks:
                raise ActlabError(
                    f"{file}: {name}: expected one task, got {tasks[name]} and {task}. Remove one."
                )
            tasks[name] = task
    return tasks


def overviews(
    studies: Sequence[StudyTable], tasks: Mapping[str, str]
) -> list[Overview]:
    """Return an overview for each reference that several studies have; smoke runs are left out.

    Args:
        studies: the tables of the studies.
        tasks: the task of a study by its name; every other study is a task.
    """
    # Group the studies by their compared key and reference
    labels = labels_of(studies)
    groups: dict[tuple[str, str], list[StudyTable]] = {}
    for study in studies:
        if study.smoke or not study.rows[0].columns:
            continue
        for value in study.values:
            if in_full(shareable(value)) == study.reference:
                group = groups.setdefault((study.compare, labels[value_key(value)]), [])
                group.append(study)
                break

    # A single study needs no overview
    compared = []
    for (_, reference), group in groups.items():
        if len(group) > 1:
            compared.append(_overview(reference, group, tasks, labels))
    return compared


def _overview(
    reference: str,
    studies: Sequence[StudyTable],
    tasks: Mapping[str, str],
    labels: Mapping[str, str],
) -> Overview:
    """Return the overview of studies with the same reference."""
    # Score the activations at each point of each study
    scores: dict[str, dict[str, Score]] = {}  # by activation and column
    columns: dict[str, tuple[str, str]] = {}
    users: set[str] = set()
    for study in studies:
        for point, rows in study.points:
            cells: dict[str, Cell] = {}
            for row in rows:
                if study.compare in row.point:
                    label = labels[value_key(row.point[study.compare])]
                    cells[label] = row.primary
                    if study.is_own(row):
                        users.add(label)

            # Some points may lack the reference
            reference_cell = cells.pop(reference, None)
            if reference_cell is None:
                continue
            column = joined(study.study, point)
            columns[column] = (tasks.get(study.study, study.study), study.study)
            for label, cell in cells.items():
                by_column = scores.setdefault(label, {})
                by_column[column] = score(cell, reference_cell)

    # Average over tasks
    lines = []
    for label, by_column in scores.items():
        line = _line(label, by_column, columns, label in users)
        lines.append(line)
    lines.sort(key=lambda line: line.better or 0.0, reverse=True)
    number = len({task for task, _ in columns.values()})
    return Overview(reference, tuple(columns), number, tuple(lines))


def score(cell: Cell, reference: Cell) -> Score:
    """Return an activation compared with the reference at a point of a study."""
    better = cell.better.probability if cell.better else None

    # One side failed
    if cell.failed(cell.median, cell.samples):
        return Score("failed", better)
    if reference.failed(reference.median, reference.samples):
        return Score("reference failed", better)

    # A column without ratios
    sides = (cell, reference)
    if not all(has_ratios(side, side.values.values()) for side in sides):
        mean = cell.paired.mean
        return Score(NONE if mean is None else cell.signed(mean), better)

    # The ratio of the errors of the runs that succeeded
    errors = [errors_of(side, side.values.values(), side.samples) for side in sides]
    effect = statistic.effect(*errors)
    if effect is None:
        return Score(f"fewer than {statistic.FEWEST_RUNS} runs", better)
    return Score(str(statistic.ratio_of(effect)), better, effect)


def has_ratios(column: Column, values: Iterable[float]) -> bool:
    """Return whether ratios compare the values of a column: decibels, or positive errors.

    An accuracy has no ratios: 0.99 instead of 0.98 halves the error.
    """
    if column.scale == "decibels":
        return True
    if column.is_epoch or (column.goal != "min" and not column.by_ratio):
        return False
    return all(value > 0 for value in values)


def _line(
    label: str, scores: Mapping[str, Score], columns: Columns, by_user: bool
) -> Line:
    """Return an activation in all studies, with its means over tasks."""
    # A dash for columns without a score
    texts = []
    better: dict[str, float | None] = dict.fromkeys(columns)
    effects: dict[str, Effect | None] = dict.fromkeys(columns)
    for column in columns:
        entry = scores.get(column) or Score(NONE, None)
        texts.append(entry.text)
        better[column] = entry.better
        effects[column] = entry.effect

    # The means need a value in every column
    effect = _mean_over_tasks(effects, columns, statistic.mean_of)
    return Line(
        label=label,
        by_user=by_user,
        better=_mean_over_tasks(better, columns, fmean),
        mean=str(statistic.ratio_of(effect)) if effect else NONE,
        texts=tuple(texts),
    )


def _mean_over_tasks(
    values: Mapping[str, Value | None],
    columns: Columns,
    mean: Callable[[Sequence[Value]], Value],
) -> Value | None:
    """Return the mean over tasks, each with the same weight; None if a column has no value."""
    # The points of a study count as one data set
    by_task: dict[str, dict[str, list[Value]]] = {}
    for column, (task, study) in columns.items():
        value = values[column]
        if value is None:
            return None
        by_study = by_task.setdefault(task, {})
        by_study.setdefault(study, []).append(value)

    # One task says nothing over tasks
    if len(by_task) < statistic.FEWEST_TASKS:
        return None
    task_means = []
    for by_study in by_task.values():
        study_means = [mean(points) for points in by_study.values()]
        task_means.append(mean(study_means))
    return mean(task_means)
