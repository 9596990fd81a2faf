"""The finished runs of a study: their values, and the settings selected on validation data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from actlab.analysis import looks, reading
from actlab.analysis.choice import Choice, choice
from actlab.analysis.columns import SUMMED, Column, columns_of, last_epoch, read_at, read_where, undirected
from actlab.analysis.statistics import is_share, median, on_grid, sampling_error
from actlab.config import metrics
from actlab.config.metrics import PARAMETERS, is_parameter
from actlab.config.values import printers, same
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.storage.files import DamagedError
from actlab.storage.series import Series
from actlab.studies.formats import Cost, Result, Timed
from actlab.studies.groups import Group, Setting, by_key
from actlab.studies.plan import Run, Study
from actlab.studies.points import Point
from actlab.studies.states import DIVERGED, FAILED
from actlab.studies.study_folder import StudyFolder, timed_together

TESTED = "Add actlab.callbacks.TestEveryEpoch to trainer.callbacks to record test/…"
_RECORDED = "The finished runs recorded these."


@dataclass(frozen=True, eq=False)
class Results:
    """The finished runs of a study, as returned by `load`."""

    folder: StudyFolder
    results: Mapping[str, Result]  # ``result.json`` of each finished run, by run id
    series: Mapping[str, reading.Recorded]  # what each of them recorded, by run id
    damaged: tuple[str, ...] = ()  # one line for each damaged run, with the remedy
    declared: frozenset[str] | None = None  # metrics that runs will record, if known before any has finished
    # why the last attempt at a run failed, by run id; also of runs of earlier stages
    failures: Mapping[str, str] = field(default_factory=dict)
    chose: frozenset[str] = frozenset()  # ids of the runs that selected the settings of the next stage
    chosen_in: Results | None = None  # the earlier stage that chose the settings
    # what `samples` has returned: each answer takes the values of all runs
    _samples: dict[Column, int | None] = field(default_factory=dict, init=False, repr=False)

    @property
    def study(self) -> Study:
        """The study, or the stage as a study."""
        return self.folder.study

    @property
    def root(self) -> Path:
        """The path of the study's folder."""
        return self.folder.path

    @cached_property
    def costs(self) -> list[Timed]:
        """The entries of ``cost.json``, measured together, of settings that could be timed."""
        return [cost for cost in self._costs[0] if "seconds_per_update" in cost]

    @property
    def costed(self) -> bool:
        """False if the costs have not been measured yet."""
        return any([not self.study.reference, *self._costs])

    @property
    def looks(self) -> int:
        """Number of verdicts seen before the study was extended; see `actlab.analysis.looks`."""
        return self._looks[0]

    @property
    def left_out(self) -> tuple[str, ...]:
        """One line for each damaged file, with the remedy."""
        return (*self.damaged, *filter(None, (self._costs[1], self._looks[1])))

    @cached_property
    def _costs(self) -> tuple[list[Cost], str]:
        try:
            ids = {run.id for run in self.folder.runs}
            together = timed_together(cost for cost in self.folder.costs if cost["run"] in ids)
            return max(together, key=len, default=[]), ""
        except DamagedError as error:
            return [], str(error)

    @cached_property
    def _looks(self) -> tuple[int, str]:
        try:
            return looks.earlier(looks.read(self.folder), self.folder), ""
        except DamagedError as error:
            return 0, str(error)

    @cached_property
    def runs(self) -> list[Run]:
        """All planned runs."""
        return self.study.planned()

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
    def conditions(self) -> dict[str, list[str]]:
        """Every metric that a finished run recorded, with the conditions under which it was measured."""
        return by_key(dict.fromkeys(key for recorded in self.series.values() for key in recorded.summaries))

    @cached_property
    def columns(self) -> list[Column]:
        """The table's columns, without those that no finished run recorded (`unrecorded`), then `learnt`."""
        columns = [c for c in self.planned if not self._unrecorded(c)]
        for c in columns:
            self.check(c.metric, c.condition)
            if c.watched:
                self.check_validation(c.watched.metric, f"'at: {c.at}': {c.watched.metric}")
                self.check(c.watched.metric)
        return columns + self.learnt

    @cached_property
    def learnt(self) -> list[Column]:
        """Columns of the learnt parameters of activations that the table has not: each layer after training."""
        known = {column.key for column in self.planned}
        columns = [
            Column(metric, mode="", condition=layer, ranked=False)
            for metric, layers in self.conditions.items()
            for layer in sorted(layers, key=lambda layer: (len(layer), layer))
            if is_parameter(metric) and layer
        ]
        return [column for column in columns if column.key not in known]

    @cached_property
    def unrecorded(self) -> list[str]:
        """One line for each metric of the study's table that no finished run recorded, with the remedy."""
        metrics = dict.fromkeys(metric for c in self.planned for metric in self._unrecorded(c))
        errors = [unknown_metric(metric, self.conditions, _RECORDED) for metric in metrics]
        return [f"The table leaves out what no finished run recorded: {error}" for error in errors]

    @cached_property
    def planned(self) -> list[Column]:
        """The columns given in the study file; a metric of training batches alone gets its condition."""
        columns = []
        for stated in columns_of(self.study):
            of_batch = not stated.condition and self.conditions.get(stated.metric) == [metrics.ONE_BATCH]
            condition = metrics.ONE_BATCH if of_batch else stated.condition
            loop = "".join(self._loops_of(stated.metric))
            columns.append(replace(stated, condition=condition, loop=loop if loop in metrics.LOOPS else ""))
        return columns

    def _loops_of(self, metric: str) -> set[str]:
        """Return which loops of the finished runs logged a metric; empty where the runs do not say."""
        loops: Iterable[Mapping[str, str]] = (result.get("loops", {}) for result in self.results.values())
        return {by_metric[metric] for by_metric in loops if metric in by_metric}

    def check_validation(self, metric: str, what: str) -> None:
        """Raise an ActlabError, which names ``what`` selects by a metric, unless validation logs the metric."""
        # Of actlab's tasks the name says so; of other modules the loop that logged it, once it has.
        loops, named = self._loops_of(metric), metrics.loop_of(metric)
        ours = self.declared is not None or any("loops" not in result for result in self.results.values())
        allowed = loops == {"val"} or (not loops and named in ("", "val"))
        if metric.startswith("val/") or (allowed and not ours):
            return
        logged = ", ".join(name for name in self.conditions if self._loops_of(name) == {"val"})
        such = "val/loss" if ours else logged or "what validation_step logs"
        raise ActlabError(f"{what} is not a validation metric: give one, such as {such}")

    @cached_property
    def primary(self) -> Column | None:
        """The column that answers the study's question: the stated one, else the first that is ranked."""
        if not (given := self.study.primary):
            return next((c for c in self.planned if c.ranked), None)
        where = {"metric": "", "at": "last", "condition": ""} | given
        fits = [c for c in self.planned if all(getattr(c, key) == value for key, value in where.items())]
        if not fits or not fits[0].ranked:
            shown = [Column(**where).key, *(c.key for c in self.planned if c.ranked)]
            remedy = "'primary' gives metric, at and condition of a ranked column of the table."
            raise unknown("primary column", shown[0], shown[1:], remedy)
        return fits[0]

    def samples(self, column: Column) -> int | None:
        """Return the number of samples of a share; None if unknown or not the same in all runs.

        A value counts as a share where that of each run is k/N: weighted samples, or a user's metric of this
        name such as a mean absolute error, give others.
        """
        if column not in self._samples:
            runs = [run for run in self.runs if run.id in self.results]
            number = self._scored(column, runs)
            recorded = number and any("scored" in self.results[run.id] for run in runs)  # not by older runs
            values = (self._read(run, column) for run in runs) if recorded else ()
            shares = all(value is None or is_share(value, number or 0) for value in values)
            self._samples[column] = number if shares else None
        return self._samples[column]

    def _scored(self, column: Column, runs: Sequence[Run]) -> int | None:
        """Return the number of samples on which runs measured an error or accuracy; None as in `samples`."""
        if not column.scored_on:
            return None
        scored = {self.results[run.id].get("scored", {}).get(column.scored_on) for run in runs}
        known = scored - {None}
        if scored and not known:  # older runs did not record it
            return None if self.study.samples else column.samples
        return known.pop() if len(known) == 1 else None

    def sampling_error(self, column: Column, setting: Setting, value: float | None) -> float | None:
        """Return the standard error that a setting's value has from the samples alone; None if unknown.

        That of a mean after training is the median over the runs that recorded it; that of another share
        follows from the number of samples.
        """
        known: list[float] = []
        if read_where(column.at, self.study) == "last" and not column.condition:
            results = [self.results[run.id] for run in setting.runs if run.id in self.results]
            every = [result.get("sampling_errors", {}).get(column.metric) for result in results]
            known = [error for error in every if error is not None]
        if known and value is not None and math.isfinite(value):
            return median(known)
        return sampling_error(value, self.samples(column))

    def _unrecorded(self, column: Column) -> list[str]:
        read = [shown.metric for shown in (column, column.watched) if shown]
        return [m for m in read if self.conditions and m not in self.conditions and not self.awaits(m)]

    def awaits(self, metric: str) -> bool:
        """Return whether a metric belongs to runs that are missing, or to a probe not evaluated yet."""
        if is_parameter(metric):  # the activations that learn it may not have run yet
            return bool(self.conditions) and self.missing > 0 and metric not in self.conditions
        probe, slash, rest = metric.partition("/")  # probe/split/metric, or probe/metric without a split
        ours = "/" in rest or any(probe == planned.name for planned in self.study.probes)
        return ours and not any(name.startswith(probe + slash) for name in self.conditions)

    def check(self, metric: str, condition: str = "") -> None:
        """Raise an ActlabError for a metric or condition that no finished run recorded or no run will."""
        if self.awaits(metric):  # accepted until its probe has been evaluated
            probe, probes = metric.partition("/")[0], [p.name for p in self.study.probes]
            if not self.conditions and probe not in probes:
                raise unknown("probe", probe, probes, f"In the metric {metric!r}.")
            return
        if not self.conditions:
            if self.declared is None:
                return
            # The parameters of a user's activation are not known by name.
            learnt = is_parameter(metric) and PARAMETERS in self.declared
            if metric not in self.declared and not learnt:
                raise unknown_metric(metric, self.declared, "The runs record these.")
            if is_parameter(metric) and not condition:
                raise ActlabError(f"{metric} is recorded of each layer: give a 'condition', such as layer=1")
            return
        if metric not in self.conditions:
            raise unknown_metric(metric, self.conditions, _RECORDED)
        if condition not in (known := self.conditions[metric]):
            remedy = "Name one as 'condition'." if any(known) else "Leave 'condition' out."
            raise unknown(f"condition of {metric}", condition, filter(None, known), remedy)

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
            series={name: recorded for name, recorded in self.series.items() if name not in damaged},
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
        number, value = self._scored(column, [run]), self._read(run, column)
        return None if value is None else on_grid(value, number)

    def _read(self, run: Run, column: Column) -> float | None:
        """Return the value of a run that has ended, as it was recorded: a share as a float32."""
        if self.has_diverged(run):
            return None if column.is_neutral else column.worst
        if (needed := last_epoch(column.at)) and needed > self.results[run.id].get("last_good_epoch", math.inf):
            return None
        key, recorded = (column.metric, column.condition), self.series[run.id]
        if key not in recorded.summaries:
            return None
        at = read_where(column.at, self.study)
        if at in SUMMED:
            return recorded.summaries[key].read(str(at), column.mode)
        epochs, values = recorded[key]
        if column.watched:
            best = self.value(run, column.watched)
            if best is None or math.isinf(best):
                return None if best is None else column.worst
            # A metric recorded less often may have no value yet at an early epoch; then use its first value,
            # unless that was recorded a whole interval later.
            begins = float(epochs[0])
            if begins > best and (len(epochs) == 1 or begins - best >= float(epochs[1]) - begins):
                return None
            at = max(best, begins)
        return read_at(epochs, values, at, column)

    @cached_property
    def groups(self) -> list[Group]:
        """The study's groups, in the order of its file."""
        return self.folder.groups

    @cached_property
    def users(self) -> frozenset[Point]:
        """The grid points of the user's activations, among those compared."""
        compare, points = self.study.compare, [group.point for group in self.groups]
        return frozenset(point for point in points if self.study.is_own(compare, point.get(compare)))

    @cached_property
    def cost_places(self) -> dict[str, int]:
        """Index of the first entry of ``costs`` by run id."""
        return {cost["run"]: place for place, cost in [*enumerate(self.costs)][::-1]}

    @cached_property
    def references(self) -> dict[Point, Group]:
        """The reference's group by the rest of its grid point."""
        by_rest: dict[Point, Group] = {}
        for group in self.groups:
            if same(group.point.get(self.study.compare), self.study.reference):
                by_rest.setdefault(self.rest_of(group), group)
        return by_rest

    def rest_of(self, group: Group) -> Point:
        """Return the grid point of a group without the compared value."""
        return group.point.without([self.study.compare])

    def chosen(self, place: Group) -> Setting | None:
        """Return the setting with the best median of the selection metric; None if no run has ended."""
        begun = [s for s in place.settings if any(run.id in self.results for run in s.runs)]
        if len(place.settings) == 1 or not begun:
            return begun[0] if begun else None
        sign = -1 if self.study.select.mode == "max" else 1
        return begun[int(np.argmin([sign * score for score in self.scores(begun)]))]

    def choice_at(self, place: Group) -> Choice | None:
        """Return how far the choice at a place depends on its seeds; None without one, or without its runs."""
        if before := self.chosen_in:
            group = {group.point: group for group in before.groups}.get(place.point)
            chose, stability = (before.chosen(group), before.choice_at(group)) if group else (None, None)
            if not chose or not stability or chose.tuned != place.settings[0].tuned:
                return None  # other runs chose
            setting = self.chosen(place)
            fresh = self.values(setting, self.selected_by).values() if setting else ()
            return stability._replace(elsewhere=median(fresh) if fresh else None)
        if len(place.settings) < 2:
            return None
        values = [self.values(setting, self.selected_by) for setting in place.settings]
        if len({*map(tuple, values)}) > 1 or not values[0] or self.missing_at(place):
            return None
        return choice(np.array([[*of.values()] for of in values], float), self.study.select.mode)

    def missing_at(self, place: Group) -> int:
        """Return the number of runs at a place that have not ended."""
        return sum(run.id not in self.results for setting in place.settings for run in setting.runs)

    @property
    def selected_by(self) -> Column:
        """The column whose median over seeds selects the settings of a study that tunes any."""
        select = self.study.select
        return Column(select.metric, select.at, mode=select.mode)

    def check_selection(self) -> None:
        """Raise an ActlabError unless the metric that selects settings is a recorded one of validation."""
        self.check_validation(self.study.select.metric, f"'select: metric: {self.study.select.metric}'")
        self.check(self.study.select.metric)

    def scores(self, settings: Iterable[Setting]) -> list[float]:
        """Return the median of the selection metric at each setting; its worst value where no run has one."""
        column = self.selected_by
        self.check_selection()
        return [median(self.values(s, column).values(), column.worst) for s in settings]

    def values(self, setting: Setting, column: Column) -> dict[int, float]:
        """Return the values by seed of the runs of a setting that have ended and have a value."""
        values = {run.seed: self.value(run, column) for run in setting.runs}
        return {seed: value for seed, value in values.items() if value is not None}


def unknown_metric(metric: str, recorded: Iterable[str], which: str) -> ActlabError:
    """Return the error for a metric that is not among ``recorded``; the sentence ``which`` describes these."""
    recorded = list(recorded)
    tested = any(name.startswith("test/") for name in recorded)
    remedy = f" {TESTED}" if metric.startswith("test/") and not tested else ""
    return unknown("metric", metric, recorded, which + remedy)


def load(folder: StudyFolder) -> Results:
    """Load the finished runs of a study, or of a stage."""
    recorded, results, left_out = reading.read(folder)
    _check_revisions(results.values())
    states = {run.id: run.state for run in folder.runs if run.id not in results}
    failed = {name: state.reason for name, state in states.items() if state.kind == FAILED}
    failures = {**folder.study.failed, **failed}
    loaded = Results(folder, results, recorded, tuple(left_out), failures=failures)
    if needed := [m for m in undirected(folder.study, loaded.planned) if m in loaded.conditions]:
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
