"""Curves of a group: median and interval over its runs, at each epoch or each number in a condition."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from actlab.analysis.columns import Column
from actlab.analysis.conditions import along
from actlab.analysis.points import matches
from actlab.analysis.results import Results
from actlab.analysis.statistics import Array, Band, median_band
from actlab.studies.groups import Group, Setting
from actlab.studies.plan import Run


@dataclass(frozen=True)
class Curve:
    """A line with a band around it.

    Args:
        x: positions on the horizontal axis, ascending, shape ``[E]``.
        band: median, low and high over the runs at each position.
        n: number of runs.
        cut: whether the curve ends before the last position of some of its runs because another run ended
            earlier.
    """

    x: Array
    band: Band
    n: int
    cut: bool = False


def fitting(group: Group, fixed: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Return the settings of a group that have the ``fixed`` tuned values."""
    return tuple(s for s in group.settings if matches(fixed, s.tuned))


def setting(results: Results, group: Group, fixed: Mapping[str, Any]) -> Setting | None:
    """Return the setting to draw: the selected one among those with the ``fixed`` tuned values."""
    fits = fitting(group, fixed)
    return fits[0] if len(fits) == 1 else results.chosen(Group(group.point, fits))


def over_epochs(
    results: Results, group: Group, column: Column, fixed: Mapping[str, Any] | None = None
) -> Curve | None:
    """Return the curve of a metric over epochs; after a run has diverged, its value is the worst one.

    A run that diverged before it recorded anything has the worst value from the start, as in the table.

    Args:
        results: results of the study.
        group: one of its groups.
        column: metric, condition and mode; ``at`` is ignored.
        fixed: tuned values to draw instead of the selected ones.

    Returns:
        The curve at the epochs that all runs have. None if no run of the setting recorded the metric or
        diverged.
    """
    drawn = setting(results, group, fixed or {})
    key = column.metric, column.condition
    runs = [r for r in drawn.runs if (r.id, *key) in results.series or results.has_diverged(r)] if drawn else []
    places = _epochs(results, runs, column)
    return _curve(places, [_at_epochs(results, run, column, places) for run in runs])


def _epochs(results: Results, runs: Sequence[Run], column: Column) -> Array:
    """Return the epochs at which the runs recorded a column; if all diverged, those of any run of the study."""
    key = column.metric, column.condition
    own = [(run.id, *key) for run in runs if (run.id, *key) in results.series]
    ended = all(results.has_diverged(run) for run in runs)
    recorded = own if own and not ended else [of for of in results.series if of[1:] == key]
    return np.unique(np.concatenate([np.empty(0), *(results.series[of].epochs for of in recorded)]))


def _at_epochs(results: Results, run: Run, column: Column, places: Array) -> Array:
    """Return a run's values at given epochs: nan where it has none, the worst value for a recorded nan.

    A diverged run also has the worst value after its last recorded epoch.
    """
    nothing = np.empty(0), np.empty(0)
    epochs, values = results.series.get((run.id, column.metric, column.condition), nothing)
    recorded = np.where(np.isnan(values), column.worst, values)
    found = dict(zip(epochs.tolist(), recorded.tolist(), strict=True))
    end = epochs.max(initial=-math.inf) if results.has_diverged(run) else math.inf
    return np.array([found.get(e, column.worst if e > end else math.nan) for e in places.tolist()])


def over_conditions(
    results: Results, group: Group, column: Column, key: str, fixed: Mapping[str, Any] | None = None
) -> Curve | None:
    """Return the curve of a metric over the number after ``key=`` in the conditions of its measurements.

    Args:
        results: results of the study.
        group: one of its groups.
        column: metric, where in a run it is read, and mode; ``condition`` contains the parts other than the
            key.
        key: such as ``noise``.
        fixed: tuned values to draw instead of the selected ones.

    Returns:
        The curve at the positions that all runs have; a diverged run has the worst value at each of them. None
        if no run of the setting was measured under such conditions.

    Raises:
        ActlabError: if the metric was not measured under such conditions, or a value of the key is not a
            number.
    """
    drawn = setting(results, group, fixed or {})
    if not drawn or column.metric not in results.conditions:
        return None
    places = along(results.conditions[column.metric], key, column.condition)
    columns = [replace(column, condition=condition) for condition in places.values()]
    read = [[results.value(run, c) for c in columns] for run in drawn.runs]
    values = [[math.nan if v is None else v for v in line] for line in read if any(v is not None for v in line)]
    return _curve(np.array(list(places)), [np.array(line) for line in values])


def _curve(places: Array, runs: Sequence[Array]) -> Curve | None:
    """Return median and interval at the positions where every run has a value; None without any."""
    if not runs:
        return None
    values = np.stack(runs)
    lacking = np.isnan(values)
    kept, some = ~lacking.any(axis=0), ~lacking.all(axis=0)
    if not kept.any():
        return None
    cut = bool(places[kept][-1] < places[some][-1])
    return Curve(places[kept], median_band(values[:, kept]), len(runs), cut)
