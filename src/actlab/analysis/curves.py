"""Curves of a group: median and interval over its runs, at each epoch or at each number in a condition."""

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
        x: places on the horizontal axis, ascending.
        band: median, low and high over the runs at each place.
        n: number of runs.
        cut: whether it ends before the last place of some of its runs, since another has ended there.
    """

    x: Array
    band: Band
    n: int
    cut: bool = False


def fitting(group: Group, fixed: Mapping[str, Any]) -> tuple[Setting, ...]:
    """The settings of a group that have the ``fixed`` tuned values."""
    return tuple(s for s in group.settings if matches(fixed, s.tuned))


def setting(results: Results, group: Group, fixed: Mapping[str, Any]) -> Setting | None:
    """The setting to draw: the chosen one among those with the ``fixed`` tuned values."""
    fits = fitting(group, fixed)
    return fits[0] if len(fits) == 1 else results.chosen(Group(group.point, fits))


def over_epochs(
    results: Results, group: Group, column: Column, fixed: Mapping[str, Any] | None = None
) -> Curve | None:
    """How a quantity develops; after a run has diverged its value is the worst one.

    A run that diverged before it recorded anything is the worst from the start on, as it is in the table.

    Args:
        results: of the study.
        group: one of its groups.
        column: metric, condition and mode; ``at`` has no meaning here.
        fixed: tuned values to draw in place of the chosen ones.

    Returns:
        None when no run of the setting recorded the quantity or diverged. Epochs that a run lacks are left out.
    """
    drawn = setting(results, group, fixed or {})
    key = column.metric, column.condition
    runs = [r for r in drawn.runs if (r.id, *key) in results.series or results.has_diverged(r)] if drawn else []
    places = _epochs(results, runs, column)
    return _curve(places, [_at_epochs(results, run, column, places) for run in runs])


def _epochs(results: Results, runs: Sequence[Run], column: Column) -> Array:
    """The epochs at which the runs recorded a column; where all diverged, those of any run of the study."""
    key = column.metric, column.condition
    own = [(run.id, *key) for run in runs if (run.id, *key) in results.series]
    ended = all(results.has_diverged(run) for run in runs)
    recorded = own if own and not ended else [of for of in results.series if of[1:] == key]
    return np.unique(np.concatenate([np.empty(0), *(results.series[of].epochs for of in recorded)]))


def _at_epochs(results: Results, run: Run, column: Column, places: Array) -> Array:
    """A run's values at given epochs; nan where it has none, the worst one for a recorded nan.

    Of a run that diverged it is the worst one after the last recorded epoch too.
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
    """How a quantity depends on the number after ``key=`` in the conditions it was measured under.

    Args:
        results: of the study.
        group: one of its groups.
        column: metric, where in a run it is read, mode; and as ``condition`` the parts beside the key.
        key: such as ``noise``.
        fixed: tuned values to draw in place of the chosen ones.

    Returns:
        None when no run of the setting was measured so. Places that a run lacks are left out; a diverged run
        has the worst value at each.

    Raises:
        ActlabError: when the metric was not measured under such conditions, or a value of the key is no number.
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
    """Median and interval at the places where every run has a value; None without any."""
    if not runs:
        return None
    values = np.stack(runs)
    lacking = np.isnan(values)
    kept, some = ~lacking.any(axis=0), ~lacking.all(axis=0)
    if not kept.any():
        return None
    cut = bool(places[kept][-1] < places[some][-1])
    return Curve(places[kept], median_band(values[:, kept]), len(runs), cut)
