"""Curves of a group: median and interval over its runs.

They are drawn over epochs, or over the numbers in conditions of measured values.

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
    # Whether it ends before the last position of some runs, because another run ended
    # earlier
    cut: bool = False
    # Whether the band ends at medians of the lowest and of the highest channel
    over_channels: bool = False

    @property
    def shaded(self) -> bool:
        """Whether the band has a width: over several runs, or over channels."""
        return self.n > 1 or self.over_channels


def fitting(group: Group, fixed: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Return the settings of a group that have the ``fixed`` tuned values."""
    return tuple(setting for setting in group.settings if setting.tuned.matches(fixed))


def setting(results: Results, group: Group, fixed: Mapping[str, Any]) -> Setting | None:
    """Return the setting to draw: the selected one, among settings with the ``fixed`` values."""
    candidates = fitting(group, fixed)
    if len(candidates) == 1:
        return candidates[0]
    return selection.selected_setting(results, Group(group.point, candidates))


def over_epochs(
    results: Results, group: Group, column: Column, fixed: Mapping[str, Any] = {}
) -> Curve | None:
    """Return the curve of a metric over the epochs that all runs have.

    None without a run that recorded it. ``fixed`` are values of tuned keys, in place of the
    selected ones.
    """
    drawn = setting(results, group, fixed)
    if drawn is None:
        return None

    runs = []
    for run in drawn.runs:
        if results.series_of(run, column) or _is_worst(results, run, column):
            runs.append(run)

    epochs = _epochs(results, runs, column)
    values = [_at_epochs(results, run, column, epochs) for run in runs]
    return _curve(epochs, values)


def _epochs(results: Results, runs: Sequence[Run], column: Column) -> Array:
    """Return the epochs at which the runs recorded a column.

    If all of them diverged, these are the epochs of all runs of the study.
    """
    if all(_is_worst(results, run, column) for run in runs):
        runs = results.runs

    epochs = [np.empty(0)]
    for run in runs:
        series = results.series_of(run, column)
        if series:
            epochs.append(series.epochs)
    return np.unique(np.concatenate(epochs))


def _at_epochs(results: Results, run: Run, column: Column, epochs: Array) -> Array:
    """Return the values of a run at some epochs, nan where it has none."""
    values = np.full(epochs.size, math.nan)

    # A nan that the run recorded is the worst value.
    series = results.series_of(run, column)
    if series:
        positions = np.searchsorted(epochs, series.epochs)
        values[positions] = np.where(
            np.isnan(series.values), column.worst, series.values
        )

    # A run that diverged has the worst value from then on, maybe from the start.
    if _is_worst(results, run, column):
        end = series.epochs.max() if series else -math.inf
        values[epochs > end] = column.worst
    return values


def _is_worst(results: Results, run: Run, column: Column) -> bool:
    """Return whether a run has the worst value from its end on, because it diverged.

    A neutral column has no worst value.
    """
    return results.has_diverged(run) and not column.is_neutral


def over_conditions(
    results: Results,
    group: Group,
    column: Column,
    key: str,
    fixed: Mapping[str, Any] = {},
) -> Curve | None:
    """Return the curve of a metric over the number after ``key=`` in its conditions.

    None without a run that has a value.

    Args:
        results: the results of a study.
        group: the group whose curve it is.
        column: the metric; its condition contains all parts except the key.
        key: the key of the x axis.
        fixed: values of tuned keys, in place of the selected ones.
    """
    # There may be no runs, or no conditions
    drawn = setting(results, group, fixed)
    if not drawn or column.metric not in results.metrics.conditions:
        return None

    # One column for each number on the x axis
    conditions = along(results.metrics.conditions[column.metric], key, column.condition)
    columns = [
        replace(column, condition=condition) for condition in conditions.values()
    ]

    # Leave out runs without any value.
    lines = []
    for run in drawn.runs:
        values = [results.value(run, column) for column in columns]
        if any(value is not None for value in values):
            lines.append(np.array(values, float))  # None becomes nan
    return _curve(np.array(list(conditions)), lines)


def parse(condition: str) -> dict[str, str]:
    """Return the parts of a condition as text, by key."""
    if not condition:
        return {}
    parts = {}
    for part in condition.split(","):
        key, _, value = part.partition("=")
        if not key.strip() or not value.strip():
            remedy = "write key=value, such as noise=0.5; several are joined by a comma"
            raise ActlabError(f"condition {condition!r}: {remedy}")
        parts[key.strip()] = value.strip()
    return parts


def along(conditions: Iterable[str], key: str, fixed: str = "") -> dict[float, str]:
    """Return the conditions that have a number under ``key``, by this number in ascending order.

    Args:
        conditions: the conditions of a metric.
        key: the key of an axis.
        fixed: all parts of a condition except the key, such as ``layer=3``.
    """
    # Select the conditions with the key.
    keys = {"epoch"}
    parts_by_condition = {}
    for condition in conditions:
        parts = parse(condition)
        keys.update(parts)
        if key in parts:
            parts_by_condition[condition] = parts
    if not parts_by_condition:
        remedy = "An axis shows epochs or one of these keys."
        raise unknown("key of conditions", key, keys, remedy)

    # Find the number of each condition that has the fixed parts.
    fixed_parts = parse(fixed)
    allowed = set()
    condition_by_number: dict[float, str] = {}
    for condition, parts in parts_by_condition.items():
        text = parts.pop(key)
        allowed.add(",".join(f"{name}={value}" for name, value in parts.items()))
        if parts != fixed_parts:
            continue
        number = _number(key, text, condition)
        if number in condition_by_number:
            both = f"{condition_by_number[number]!r} and {condition!r}"
            raise ActlabError(f"conditions {both} have the same number on an axis")
        condition_by_number[number] = condition
    if condition_by_number:
        return dict(sorted(condition_by_number.items()))

    # No condition has exactly the fixed parts
    allowed.discard("")
    remedy = "Choose one by 'condition'." if allowed else "Leave 'condition' out."
    raise unknown(f"condition next to {key}", fixed, allowed, remedy)


def _number(key: str, text: str, condition: str) -> float:
    """Return the number that a condition has under a key."""
    with suppress(ValueError):
        number = float(text)
        if math.isfinite(number):
            return number
    raise ActlabError(
        f"condition {condition!r}: {text!r} is not a number, but an axis shows only numbers. "
        f"Show it in a table column, or use numbers for {key}."
    )


def _curve(x: Array, lines: Sequence[Array]) -> Curve | None:
    """Return the curve of the lines of runs, at the positions where every line has a value."""
    if not lines:
        return None
    values = np.stack(lines)
    missing = np.isnan(values)
    complete = ~missing.any(axis=0)
    if not complete.any():
        return None

    recorded = ~missing.all(axis=0)
    cut = bool(x[complete][-1] < x[recorded][-1])
    return Curve(x[complete], median_band(values[:, complete]), len(lines), cut)
