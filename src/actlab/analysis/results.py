"""What a study's runs say: values, chosen settings, curves. Reads files only.

A study's grid points fall into groups: points that differ in nothing but the tuned keys. Within a group the
tuned values, a setting, are chosen on the selection metric, a validation quantity; medians over seeds count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from actlab.analysis.columns import Column, column, read_at
from actlab.analysis.statistics import Array, Band, median_band
from actlab.engines.folders import DIVERGED, read
from actlab.errors import ActlabError, unknown
from actlab.studies.plan import ACTIVATION, Run, Study, label, short


@dataclass(frozen=True)
class Setting:
    """Tuned values and the runs that have them, one a seed."""

    tuned: dict[str, Any]
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Group:
    """A grid point without its tuned keys, and the settings tried for it."""

    point: dict[str, Any]
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Curve:
    """Median, low and high over seeds at each epoch; ``n`` runs."""

    epochs: Array
    band: Band
    n: int


@dataclass(frozen=True)
class Results:
    """The finished runs of a study. Made by `load`.

    Args:
        study: what was planned.
        root: the study's folder.
        results: ``result.json`` of each finished run, by run id.
        series: epochs and values of each recorded metric, by run id and ``split/name``.
        costs: entries of ``cost.json``, empty without one.
    """

    study: Study
    root: Path
    results: dict[str, Mapping[str, Any]]
    series: dict[tuple[str, str], tuple[Array, Array]]
    costs: list[Mapping[str, Any]] = field(default_factory=list)

    @cached_property
    def runs(self) -> list[Run]:
        """All planned runs."""
        return self.study.runs()

    @cached_property
    def diverged(self) -> int:
        """Number of runs that ended by diverging."""
        return sum(result["status"] == DIVERGED for result in self.results.values())

    @property
    def finished(self) -> int:
        """Number of runs that reached their end."""
        return len(self.results) - self.diverged

    @property
    def missing(self) -> int:
        """Number of runs not over yet."""
        return len(self.runs) - len(self.results)

    @cached_property
    def columns(self) -> list[Column]:
        """The table's columns.

        Raises:
            ActlabError: for one that is not understood or whose metric no run recorded.
        """
        columns = [column(entry, self.study) for entry in self.study.table]
        for c in columns:
            self.check_metric(c.metric)
        return columns

    def check_metric(self, metric: str) -> None:
        """Raise an ActlabError for a metric that no finished run recorded."""
        recorded = {name for _, name in self.series}
        if recorded and metric not in recorded:
            raise unknown("metric", metric, recorded, "These are what the finished runs recorded.")

    def value(self, run: Run, column: Column) -> float | None:
        """One run's value of a column; the worst one for a diverged run, None where there is none."""
        if run.id not in self.results:
            return None
        if self.results[run.id]["status"] == DIVERGED:
            return column.worst
        if (run.id, column.metric) not in self.series:
            return None
        epochs, values = self.series[run.id, column.metric]
        if column.at == "selected":
            select = self.study.select
            at = self.value(run, Column(select.metric, "best_epoch", mode=select.mode))
            # A metric that is recorded less often may have no value yet at an early epoch: then its first one.
            return None if at is None else read_at(epochs, values, max(at, float(epochs[0])), column)
        return read_at(epochs, values, column.at, column)

    @cached_property
    def groups(self) -> list[Group]:
        """The study's groups, in the order of its file."""
        groups: dict[str, dict[str, list[Run]]] = {}
        for run in self.runs:
            compared, tuned = self._split(run)
            groups.setdefault(identity(compared), {}).setdefault(identity(tuned), []).append(run)
        return [
            Group(
                self._split(next(iter(settings.values()))[0])[0],
                tuple(Setting(self._split(runs[0])[1], tuple(runs)) for runs in settings.values()),
            )
            for settings in groups.values()
        ]

    def _split(self, run: Run) -> tuple[dict[str, Any], dict[str, Any]]:
        """A run's grid point: what is compared and what is tuned."""
        tune = self.study.select.tune
        return (
            {k: v for k, v in run.point.items() if k not in tune},
            {k: v for k, v in run.point.items() if k in tune},
        )

    def chosen(self, group: Group) -> Setting | None:
        """The setting with the best median over seeds of the best selection metric; None without any run.

        Raises:
            ActlabError: when the selection metric is a test quantity or was not recorded.
        """
        begun = [s for s in group.settings if any(run.id in self.results for run in s.runs)]
        if len(group.settings) == 1 or not begun:
            return begun[0] if begun else None
        select = self.study.select
        if not select.metric.startswith("val/"):
            raise ActlabError(
                f"'select: metric: {select.metric}' is no validation metric: nothing is chosen on others"
            )
        self.check_metric(select.metric)
        best, sign = Column(select.metric, "best", mode=select.mode), -1 if select.mode == "max" else 1
        scores = [sign * median(self.values(s, best).values(), math.inf * sign) for s in begun]
        return begun[int(np.argmin(scores))]

    def values(self, setting: Setting, column: Column) -> dict[int, float]:
        """Values by seed, of the runs that are over."""
        found = {run.seed: self.value(run, column) for run in setting.runs}
        return {seed: value for seed, value in found.items() if value is not None}

    def curve(self, group: Group, metric: str, fixed: Mapping[str, Any] | None = None) -> Curve | None:
        """A group's course over the epochs; from where a run has diverged it counts as the worst value.

        Args:
            group: one of `groups`.
            metric: ``split/name``.
            fixed: tuned values drawn whatever is chosen.

        Returns:
            None when no run of the setting recorded the metric.
        """
        fits = [s for s in group.settings if matches(fixed or {}, s.tuned)]
        setting = (
            (fits[0] if fits else None) if len(fits) == 1 else self.chosen(Group(group.point, tuple(fits)))
        )
        runs = [run for run in setting.runs if (run.id, metric) in self.series] if setting else []
        if not runs:
            return None
        places = np.unique(np.concatenate([self.series[run.id, metric][0] for run in runs]))
        columns = [self._on(places, run, column({"metric": metric}, self.study)) for run in runs]
        values = np.stack(columns)
        kept = ~np.isnan(values).any(axis=0)
        return Curve(places[kept], median_band(values[:, kept]), len(runs))

    def _on(self, places: Array, run: Run, column: Column) -> Array:
        """A run's values at given epochs; nan where it has none, the worst after it diverged."""
        epochs, values = self.series[run.id, column.metric]
        found = dict(zip(epochs.tolist(), values.tolist(), strict=True))
        diverged = self.results[run.id]["status"] == DIVERGED
        return np.array(
            [found.get(e, column.worst if diverged and e > epochs[-1] else math.nan) for e in places.tolist()]
        )


def load(study: Study, root: Path) -> Results:
    """Gather the finished runs of a study.

    Args:
        study: which runs there should be.
        root: the folder that holds their folders.
    """
    frame, ended = read(root, study.runs())
    # The thirds of an epoch come from divisions: equal up to rounding must be equal here.
    names, epochs = frame["split"] + "/" + frame["metric"], frame["epoch"].astype(float).round(6)
    series = {
        (str(run), str(name)): (rows["epoch"].to_numpy(float), rows["value"].to_numpy(float))
        for (run, name), rows in frame.assign(name=names, epoch=epochs)
        .drop_duplicates(["run", "name", "epoch"], keep="last")
        .groupby(["run", "name"], sort=False)
    }
    file = root / "cost.json"
    costs = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    return Results(study, root, {result["id"]: result for result in ended}, series, costs)


def median(values: Iterable[float], default: float = math.nan) -> float:
    """The median, or ``default`` of nothing."""
    listed = list(values)
    return float(np.median(listed)) if listed else default


def matches(where: Mapping[str, Any], point: Mapping[str, Any]) -> bool:
    """Whether a point has the values of ``where``, by themselves or by their labels."""
    return all(
        key in point and (point[key] == value or label(point[key]) == label(value))
        for key, value in where.items()
    )


def identity(values: Mapping[str, Any]) -> str:
    """A key that is equal for equal grid values, nested ones too."""
    return json.dumps(values, sort_keys=True, default=str)


def name(point: Mapping[str, Any]) -> str:
    """A point in words: ``relu, dropout 0.5``."""
    return ", ".join(label(v) if k == ACTIVATION else f"{short(k)} {label(v)}" for k, v in point.items())
