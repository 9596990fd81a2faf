"""Curves of a group: median and interval over its runs, at each epoch or each number in a condition.

The condition ``noise=0.5,layer=3`` of a measured value means under noise of 0.5, in layer 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from actlab.analysis import selection
from actlab.analysis.columns import Column
from actlab.analysis.results import Results
from actlab.analysis.statistics import Array, Band, median_band
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.studies.groups import Group, Setting
from actlab.studies.plan import Run


@dataclass(frozen=True)
class Curve:
    """A line with a band around it, over ascending positions ``x`` of shape ``[E]``."""

    x: Array
    band: Band
    n: int  # number of runs
    cut: bool = (
        False  # whether it ends before the last position of some runs because another ended earlier
    )
    over_channels: bool = (
        False  # whether the band ends at medians of the lowest and of the highest channel
    )

    @property
    def shaded(self) -> bool:
        """Whether the band has a width: over several runs, or over channels."""
        return self.n > 1 or self.over_channels


def fitting(group: Group, fixed: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Return the settings of a group that have the ``fixed`` tuned values."""
    return tuple(s for s in group.settings if s.tuned.matches(fixed))


def setting(results: Results, group: Group, fixed: Mapping[str, Any]) -> Setting | None:
    """Return the setting to draw: the selected one among those with the ``fixed`` tuned values."""
    fits = fitting(group, fixed)
    return fits[0] if len(fits) == 1 else selection.chosen(results, Group(group.point, fits))


def over_epochs(
    results: Results, group: Group, column: Column, fixed: Mapping[str, Any] = {}
) -> Curve | None:
    """Return the curve of a metric over the epochs that all runs have; None without a run that recorded it.

    ``fixed`` are values of tuned keys, in place of the selected ones.
    """
    drawn = setting(results, group, fixed)
    planned = drawn.runs if drawn else ()
    runs = [
        run for run in planned if results.series_of(run, column) or _is_worst(results, run, column)
    ]
    places = _epochs(results, runs, column)
    return _curve(places, [_at_epochs(results, run, column, places) for run in runs])


def _epochs(results: Results, runs: Sequence[Run], column: Column) -> Array:
    """Return the epochs at which the runs recorded a column; if all diverged, those of any run of the study."""
    if all(_is_worst(results, run, column) for run in runs):
        runs = results.runs
    recorded = [series for run in runs if (series := results.series_of(run, column))]
    return np.unique(np.concatenate([np.empty(0), *(series.epochs for series in recorded)]))


def _at_epochs(results: Results, run: Run, column: Column, places: Array) -> Array:
    """Return a run's values at given epochs: nan where it has none, the worst one for nan and once diverged."""
    epochs, values = results.series_of(run, column) or (np.empty(0), np.empty(0))
    filled = np.full(places.size, math.nan)
    filled[np.searchsorted(places, epochs)] = np.where(np.isnan(values), column.worst, values)
    # After a run has diverged its value is the worst one, from the start if nothing was recorded
    # before.
    if _is_worst(results, run, column):
        filled[places > epochs.max(initial=-math.inf)] = column.worst
    return filled


def _is_worst(results: Results, run: Run, column: Column) -> bool:
    """Return whether a run has the worst value from its end on, because it diverged; no neutral one is."""
    return results.has_diverged(run) and not column.is_neutral


def over_conditions(
    results: Results, group: Group, column: Column, key: str, fixed: Mapping[str, Any] = {}
) -> Curve | None:
    """Return the curve of a metric over the number after ``key=`` in its conditions, as `over_epochs` does.

    ``column.condition`` contains the parts of the conditions other than the key.
    """
    drawn = setting(results, group, fixed)
    if not drawn or column.metric not in results.metrics.conditions:
        return None
    places = along(results.metrics.conditions[column.metric], key, column.condition)
    columns = [replace(column, condition=condition) for condition in places.values()]
    read = [[results.value(run, c) for c in columns] for run in drawn.runs]
    values = [
        [math.nan if v is None else v for v in line]
        for line in read
        if any(v is not None for v in line)
    ]
    return _curve(np.array(list(places)), [np.array(line) for line in values])


def parse(condition: str) -> dict[str, str]:
    """Return the parts of a condition as text, by key."""
    parts = [part.partition("=") for part in condition.split(",") if condition]
    for key, equals, value in parts:
        if not (key.strip() and equals and value.strip()):
            remedy = "write key=value, such as noise=0.5; several are joined by a comma"
            raise ActlabError(f"condition {condition!r}: {remedy}")
    return {key.strip(): value.strip() for key, _, value in parts}


def along(conditions: Iterable[str], key: str, others: str = "") -> dict[float, str]:
    """Return the conditions that have a number under ``key``, by this number in ascending order.

    ``others`` are exactly the other parts that a condition must have, such as ``layer=3``.
    """
    parsed = {condition: parse(condition) for condition in conditions}
    with_key = {condition: parts for condition, parts in parsed.items() if key in parts}
    if not with_key:
        known = {"epoch", *(key for parts in parsed.values() for key in parts)}
        remedy = "An axis shows epochs or one of these keys."
        raise unknown("key of conditions", key, known, remedy)
    wanted, rests = parse(others), set()
    places: dict[float, str] = {}
    for condition, parts in with_key.items():
        number = parts.pop(key)
        rests.add(",".join(f"{k}={v}" for k, v in parts.items()))
        if parts == wanted:
            place = _number(key, number, condition)
            if place in places:
                both = f"{places[place]!r} and {condition!r}"
                raise ActlabError(f"conditions {both} have the same number on an axis")
            places[place] = condition
    if places:
        return dict(sorted(places.items()))
    allowed = sorted(filter(None, rests))
    remedy = "Choose one by 'condition'." if allowed else "Leave 'condition' out."
    raise unknown(f"condition beside {key}", others, allowed, remedy)


def _number(key: str, text: str, condition: str) -> float:
    with suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number
    raise ActlabError(
        f"condition {condition!r}: {text!r} is not a number, and an axis shows only numbers; "
        f"show it in a table column, or use numbers for {key}"
    )


def _curve(places: Array, runs: Sequence[Array]) -> Curve | None:
    if not runs:
        return None
    values = np.stack(runs)
    lacking = np.isnan(values)
    kept, some = ~lacking.any(axis=0), ~lacking.all(axis=0)
    if not kept.any():
        return None
    cut = bool(places[kept][-1] < places[some][-1])
    return Curve(places[kept], median_band(values[:, kept]), len(runs), cut)
