"""The finished runs of a study: their values, and the settings selected on validation data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from actlab.analysis import costs, looks, reading
from actlab.analysis.columns import (
    AGGREGATE,
    SUMMED,
    Column,
    columns_of,
    last_epoch,
    learnt,
    read_where,
    undirected,
    watched,
)
from actlab.analysis.metrics import Metrics
from actlab.analysis.statistics import on_grid
from actlab.config import metrics
from actlab.config.labels import printers
from actlab.errors import ActlabError
from actlab.storage.files import DamagedError
from actlab.storage.series import Array, Key, Series, summary
from actlab.studies.formats import Result
from actlab.studies.groups import Group, Setting, by_key
from actlab.studies.plan import Run, Study
from actlab.studies.states import DIVERGED, FAILED
from actlab.studies.study_folder import StudyFolder

_ROUNDING = 1e-6  # of epochs, which may be fractions


@dataclass(frozen=True, eq=False)
class Results:
    """The finished runs of a study or of one stage, as returned by `load`.

    Results answer what a run's value of a column is, which columns the table has, and how many runs
    ended. They do not summarise: medians, tests and selections are computed by the modules that
    read results. They never write a file.

    Series are read on first access, because a table often needs only the summaries in
    ``result.json``.
    """

    folder: StudyFolder
    results: Mapping[str, Result]  # ``result.json`` of each finished run, by run id
    # What each of these runs recorded, by run id.
    series: Mapping[str, reading.Recorded]
    damaged: tuple[str, ...] = ()  # one line for each damaged run, with the remedy
    # Metrics that runs will record, if known before any run has finished
    declared: frozenset[str] | None = None
    # Why the last attempt at a run failed, by run id; also of runs of earlier stages
    failures: Mapping[str, str] = field(default_factory=dict)
    # Ids of the runs that selected the settings of the next stage
    chose: frozenset[str] = frozenset()
    chosen_in: Results | None = None  # the earlier stage that selected the settings

    @property
    def study(self) -> Study:
        """The study, or the stage as a study."""
        return self.folder.study

    @property
    def root(self) -> Path:
        """The path of the study's folder."""
        return self.folder.path

    @property
    def looks(self) -> int:
        """Number of verdicts seen before the study was extended; see `actlab.analysis.looks`."""
        return looks.seen(self.folder)[0]

    @property
    def left_out(self) -> tuple[str, ...]:
        """One line for each damaged file, with the remedy."""
        faults = [costs.read(self.folder)[1], looks.seen(self.folder)[1]]
        return (*self.damaged, *filter(None, faults))

    @cached_property
    def runs(self) -> list[Run]:
        """All planned runs."""
        return self.study.planned()

    @cached_property
    def groups(self) -> list[Group]:
        """The study's groups, in the order of its file."""
        return self.folder.groups

    @cached_property
    def text(self) -> Callable[[str, Any], str]:
        """Formats a value of a grid key for people.

        Values with equal labels are written in full.
        """
        points = []
        for group in self.groups:
            points += [setting.runs[0].point for setting in group.settings]
        return printers(points)

    @cached_property
    def diverged(self) -> int:
        """Number of runs that diverged."""
        return sum(result["status"] == DIVERGED for result in self.results.values())

    @property
    def finished(self) -> int:
        """Number of runs that finished without diverging."""
        return len(self.results) - self.diverged

    @property
    def missing(self) -> int:
        """Number of runs that have not ended."""
        return len(self.runs) - len(self.results)

    @cached_property
    def metrics(self) -> Metrics:
        """The metrics that the runs recorded, or will record."""
        # Collect the conditions of each metric, in the order of the runs.
        conditions: dict[Key, None] = {}
        for recorded in self.series.values():
            conditions.update(dict.fromkeys(recorded.summaries))

        # Collect the loops that logged a metric. Only modules of other packages say so.
        loops: dict[tuple[str, str], None] = {}
        of_actlab = self.declared is not None
        for result in self.results.values():
            loops.update(dict.fromkeys(result.get("loops", {}).items()))
            of_actlab = of_actlab or "loops" not in result

        return Metrics(
            self.study,
            self.missing,
            conditions=by_key(conditions),
            loops=by_key(loops),
            of_actlab=of_actlab,
            declared=self.declared,
        )

    @cached_property
    def planned(self) -> list[Column]:
        """The columns listed in the study file.

        A metric that only training batches recorded gets its condition.
        """
        columns = []
        for column in columns_of(self.study):
            # Add what the runs recorded of the metric.
            if self.metrics.conditions.get(column.metric) == [metrics.ONE_BATCH]:
                column = replace(
                    column, condition=column.condition or metrics.ONE_BATCH
                )
            loop = "".join(self.metrics.loops.get(column.metric, ()))
            if loop not in metrics.LOOPS:
                loop = ""

            columns.append(replace(column, loop=loop))
        return columns

    @cached_property
    def columns(self) -> list[Column]:
        """The table's columns: recorded columns of the study file, then learnt parameters."""
        columns = [column for column in self.planned if not self.metrics.lacks(column)]
        for column in columns:
            self.metrics.check(column.metric, column.condition)
            best = watched(column, self.study)
            if best:
                self.metrics.check_validation(
                    best.metric, f"'at: {column.at}': {best.metric}"
                )
                self.metrics.check(best.metric)
        return columns + learnt(self.metrics.conditions, self.planned)

    def with_rows(self) -> Results:
        """Read all rows, as figures need them; return results without runs with damaged rows."""
        damaged: dict[str, str] = {}
        for run, recorded in self.series.items():
            try:
                recorded.trained  # noqa: B018 (read and stored)
            except DamagedError as error:
                damaged[run] = str(error)
        if not damaged:
            return self

        # Remove the damaged runs, and report them
        lines = (*self.damaged, *damaged.values())
        results = {
            run: result for run, result in self.results.items() if run not in damaged
        }
        series = {
            run: recorded for run, recorded in self.series.items() if run not in damaged
        }
        return replace(self, results=results, series=series, damaged=lines)

    def series_of(self, run: Run, column: Column) -> Series | None:
        """Return the epochs and values that a run recorded of a column; None without any."""
        recorded = self.series.get(run.id)
        if recorded is None or column.series_key not in recorded.summaries:
            return None
        return recorded[column.series_key]

    def has_diverged(self, run: Run) -> bool:
        """Return whether a run diverged."""
        return run.id in self.results and self.results[run.id]["status"] == DIVERGED

    def value(self, run: Run, column: Column) -> float | None:
        """Return the value of a column in one run, or None without a value.

        A diverged run has the worst value. A share is exactly k/N.
        """
        if run.id not in self.results:
            return None
        value = self.recorded(run, column)
        if value is None:
            return None
        samples = scored([self.results[run.id]], column, self.study)
        return on_grid(value, samples)

    def recorded(self, run: Run, column: Column) -> float | None:
        """Return the value of a run that has ended, as it was recorded: a share as a float32."""
        if self.has_diverged(run):
            return None if column.is_neutral else column.worst

        # A run that stopped earlier has no value at a later epoch.
        needed = last_epoch(column.at)
        if needed and needed > self.results[run.id].get("last_good_epoch", math.inf):
            return None

        # Read a summary, if that is enough.
        recorded = self.series[run.id]
        if column.series_key not in recorded.summaries:
            return None
        at = read_where(column.at, self.study)
        if at in SUMMED:
            stored = recorded.summaries[column.series_key]
            return stored.read(str(at), column.mode)

        # Read the series.
        epochs, values = recorded[column.series_key]
        best_column = watched(column, self.study)
        if best_column:
            best = self.value(run, best_column)
            if best is None:
                return None
            if math.isinf(best):
                return column.worst
            # A metric recorded less often may have no value yet at an early epoch. Then
            # use its first value, unless that was recorded a whole interval later.
            begin = float(epochs[0])
            if begin > best and (
                len(epochs) == 1 or begin - best >= float(epochs[1]) - begin
            ):
                return None
            at = max(best, begin)
        return read_at(epochs, values, at, column)

    def values(self, setting: Setting, column: Column) -> dict[int, float]:
        """Return the values by seed of the runs of a setting that have ended and have a value."""
        values = {}
        for run in setting.runs:
            value = self.value(run, column)
            if value is not None:
                values[run.seed] = value
        return values


def scored(results: Sequence[Result], column: Column, study: Study) -> int | None:
    """Return the number of samples on which runs measured an error or accuracy.

    None if it is unknown or not the same in all runs.
    """
    if not column.scored_on:
        return None
    numbers = {result.get("scored", {}).get(column.scored_on) for result in results}
    if numbers == {None}:  # older runs did not record it
        return None if study.samples else column.samples
    numbers.discard(None)
    return numbers.pop() if len(numbers) == 1 else None


def load(folder: StudyFolder) -> Results:
    """Load the finished runs of a study, or of a stage.

    Raises:
        ActlabError: if runs were trained on several revisions of a dataset, or if the direction of
            a metric that ranks or selects is unknown.
    """
    series, results, damaged = reading.read(folder)
    _check_revisions(results.values())

    # Collect why other runs have failed.
    failures = dict(folder.study.failed)
    for run in folder.runs:
        if run.id not in results:
            state = run.state
            if state.kind == FAILED:
                failures[run.id] = state.reason
    loaded = Results(folder, results, series, tuple(damaged), failures=failures)

    # A recorded metric needs a direction where it ranks.
    for metric in undirected(folder.study, loaded.planned):
        if metric in loaded.metrics.conditions:
            raise metrics.no_direction(metric)

    # Summaries lack values at other epochs
    if any(column.at not in SUMMED for column in loaded.planned):
        return loaded.with_rows()
    return loaded


def _check_revisions(results: Iterable[Mapping[str, Any]]) -> None:
    """Raise an ActlabError if two runs were trained on different revisions of a dataset."""
    run_by_dataset: dict[str, tuple[str, str]] = {}
    for result in results:
        for dataset, revision in result.get("revisions", {}).items():
            before, run = run_by_dataset.setdefault(dataset, (revision, result["id"]))
            if before != revision:
                raise ActlabError(
                    f"{run} was trained on revision {before} of {dataset}, {result['id']} on "
                    f"{revision}. Delete the runs of one of them, and pin the other with "
                    f"--set data.revision={revision}."
                )


def read_at(
    epochs: Array, values: Array, at: str | float, column: Column
) -> float | None:
    """Return one number from the values of one run; nan counts as the worst value.

    Args:
        epochs: in ascending order, shape ``[E]``.
        values: the value at each epoch.
        at: as in `Column`, except ``selected`` and ``best <metric>``.
        column: says which values are good.

    Returns:
        None if there is no value up to the epoch, or in the range of epochs, of ``at``.
    """
    # Read a summary.
    if at in SUMMED:
        return summary(epochs, values).read(str(at), column.mode)

    # Read the last value up to an epoch.
    aggregate = AGGREGATE.fullmatch(str(at))
    if not aggregate:
        before = epochs <= float(at) + _ROUNDING
        if not before.any():
            return None
        return summary(epochs[before], values[before]).read("last", column.mode)

    # Find the first epoch below a level.
    if aggregate["level"]:
        below = epochs[values < float(aggregate["level"])]
        if not below.size:
            return math.inf
        return float(below[0])

    # Average over a range of epochs.
    begin = float(aggregate["first"] or 0)
    end = float(aggregate["last"] or math.inf)
    within = values[(epochs >= begin - _ROUNDING) & (epochs <= end + _ROUNDING)]
    if not within.size:
        return None
    mean = float(within.mean())
    if math.isnan(mean):
        return column.worst
    return mean
