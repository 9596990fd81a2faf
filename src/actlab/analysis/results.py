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
    SUMMED,
    Column,
    columns_of,
    last_epoch,
    learnt,
    read_at,
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
from actlab.storage.series import Series
from actlab.studies.formats import Result
from actlab.studies.groups import Group, Setting, by_key
from actlab.studies.plan import Run, Study
from actlab.studies.states import DIVERGED, FAILED
from actlab.studies.study_folder import StudyFolder


@dataclass(frozen=True, eq=False)
class Results:
    """The finished runs of a study, as returned by `load`."""

    folder: StudyFolder
    results: Mapping[str, Result]  # ``result.json`` of each finished run, by run id
    series: Mapping[str, reading.Recorded]  # what each of them recorded, by run id
    damaged: tuple[str, ...] = ()  # one line for each damaged run, with the remedy
    declared: frozenset[str] | None = (
        None  # metrics that runs will record, if known before any has finished
    )
    # why the last attempt at a run failed, by run id; also of runs of earlier stages
    failures: Mapping[str, str] = field(default_factory=dict)
    # Ids of the runs that selected the settings of the next stage
    chose: frozenset[str] = frozenset()
    chosen_in: Results | None = None  # the earlier stage that chose the settings

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
        faults = costs.read(self.folder)[1], looks.seen(self.folder)[1]
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
        """Formats a value of a grid key for people; values with equal labels are written in full."""
        return printers(s.runs[0].point for group in self.groups for s in group.settings)

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
        """What is known of the metrics that the runs recorded, or will record."""
        recorded = dict.fromkeys(key for of_run in self.series.values() for key in of_run.summaries)
        known = [result.get("loops", {}).items() for result in self.results.values()]
        loops = by_key(dict.fromkeys(pair for pairs in known for pair in pairs))
        of_actlab = self.declared is not None or any(
            "loops" not in r for r in self.results.values()
        )
        return Metrics(self.study, self.missing, by_key(recorded), loops, of_actlab, self.declared)

    @cached_property
    def planned(self) -> list[Column]:
        """The columns given in the study file; a metric of training batches alone gets its condition."""
        columns = []
        for stated in columns_of(self.study):
            conditions = self.metrics.conditions.get(stated.metric)
            of_batch = not stated.condition and conditions == [metrics.ONE_BATCH]
            condition = metrics.ONE_BATCH if of_batch else stated.condition
            loop = "".join(self.metrics.loops.get(stated.metric, ()))
            columns.append(
                replace(stated, condition=condition, loop=loop if loop in metrics.LOOPS else "")
            )
        return columns

    @cached_property
    def columns(self) -> list[Column]:
        """The table's columns, without those that no finished run recorded, then learnt parameters."""
        columns = [column for column in self.planned if not self.metrics.lacks(column)]
        for column in columns:
            self.metrics.check(column.metric, column.condition)
            if of_best := watched(column, self.study):
                self.metrics.check_validation(
                    of_best.metric, f"'at: {column.at}': {of_best.metric}"
                )
                self.metrics.check(of_best.metric)
        return columns + learnt(self.metrics.conditions, self.planned)

    def with_rows(self) -> Results:
        """Read all rows, as figures need them; return results without the runs whose rows are damaged."""
        damaged: dict[str, str] = {}
        for name, recorded in self.series.items():
            try:
                recorded.trained  # noqa: B018 (read and kept)
            except DamagedError as error:
                damaged[name] = str(error)
        if not damaged:
            return self
        return replace(
            self,
            results={name: result for name, result in self.results.items() if name not in damaged},
            series={
                name: recorded for name, recorded in self.series.items() if name not in damaged
            },
            damaged=(*self.damaged, *damaged.values()),
        )

    def series_of(self, run: Run, column: Column) -> Series | None:
        """Return the epochs and values that a run recorded of a column; None if it recorded none."""
        key, recorded = (column.metric, column.condition), self.series.get(run.id)
        return recorded[key] if recorded and key in recorded.summaries else None

    def has_diverged(self, run: Run) -> bool:
        """Return whether a run diverged."""
        return run.id in self.results and self.results[run.id]["status"] == DIVERGED

    def value(self, run: Run, column: Column) -> float | None:
        """Return one run's value of a column: the worst value for a diverged run, None if there is no value."""
        if run.id not in self.results:
            return None
        number, value = (
            scored([self.results[run.id]], column, self.study),
            self.recorded(run, column),
        )
        return None if value is None else on_grid(value, number)

    def recorded(self, run: Run, column: Column) -> float | None:
        """Return the value of a run that has ended, as it was recorded: a share as a float32."""
        if self.has_diverged(run):
            return None if column.is_neutral else column.worst
        if (needed := last_epoch(column.at)) and needed > self.results[run.id].get(
            "last_good_epoch", math.inf
        ):
            return None
        key, recorded = (column.metric, column.condition), self.series[run.id]
        if key not in recorded.summaries:
            return None
        at = read_where(column.at, self.study)
        if at in SUMMED:
            return recorded.summaries[key].read(str(at), column.mode)
        epochs, values = recorded[key]
        if of_best := watched(column, self.study):
            best = self.value(run, of_best)
            if best is None or math.isinf(best):
                return None if best is None else column.worst
            # A metric recorded less often may have no value yet at an early epoch; then use its
            # first value, unless that was recorded a whole interval later.
            begins = float(epochs[0])
            if begins > best and (len(epochs) == 1 or begins - best >= float(epochs[1]) - begins):
                return None
            at = max(best, begins)
        return read_at(epochs, values, at, column)

    def values(self, setting: Setting, column: Column) -> dict[int, float]:
        """Return the values by seed of the runs of a setting that have ended and have a value."""
        values = {run.seed: self.value(run, column) for run in setting.runs}
        return {seed: value for seed, value in values.items() if value is not None}


def scored(results: Sequence[Result], column: Column, study: Study) -> int | None:
    """Return the number of samples on which runs measured an error or accuracy.

    None if it is unknown or not the same in all runs.
    """
    if not column.scored_on:
        return None
    numbers = {result.get("scored", {}).get(column.scored_on) for result in results}
    known = numbers - {None}
    if numbers and not known:  # older runs did not record it
        return None if study.samples else column.samples
    return known.pop() if len(known) == 1 else None


def load(folder: StudyFolder) -> Results:
    """Load the finished runs of a study, or of a stage."""
    recorded, results, left_out = reading.read(folder)
    _check_revisions(results.values())
    states = {run.id: run.state for run in folder.runs if run.id not in results}
    failed = {name: state.reason for name, state in states.items() if state.kind == FAILED}
    failures = {**folder.study.failed, **failed}
    loaded = Results(folder, results, recorded, tuple(left_out), failures=failures)
    if needed := [
        m for m in undirected(folder.study, loaded.planned) if m in loaded.metrics.conditions
    ]:
        raise metrics.no_direction(needed[0])
    return loaded.with_rows() if any(c.at not in SUMMED for c in loaded.planned) else loaded


def _check_revisions(results: Iterable[Mapping[str, Any]]) -> None:
    first: dict[str, tuple[str, str]] = {}
    for result in results:
        for dataset, revision in result.get("revisions", {}).items():
            before, run = first.setdefault(dataset, (revision, result["id"]))
            if before != revision:
                raise ActlabError(
                    f"{run} was trained on revision {before} of {dataset}, {result['id']} on {revision}: "
                    f"delete the runs of one of them, and pin the other with --set data.revision={revision}"
                )
