"""Training time of runs: number of updates × the measured time of one, so other programs do not count.

A run has the time of its own updates alone: evaluation, loading and waiting are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from actlab.analysis.columns import Column
from actlab.analysis.results import Results
from actlab.studies.folders import FINISHED
from actlab.studies.groups import Group, Setting

Sides = tuple[Column | None, Column | None]


class Length(NamedTuple):
    """How long a run was trained."""

    updates: float
    epochs: float


class EqualTime(NamedTuple):
    """Where a row and its reference are read: in epochs, at most their last ones."""

    mine: float
    theirs: float
    lengths: tuple[Length, Length]
    ends: tuple[tuple[float, float], tuple[float, float]]  # of both epochs, over the parts of the timed rounds


def cost_of(results: Results, group: Group, setting: Setting | None = None) -> Mapping[str, Any] | None:
    """Return the cost measured at a setting, by default the selected one, or one with another learning rate."""
    if not results.costs:
        return None
    wanted = (setting or results.chosen(group) or group.settings[0]).priced
    runs = (run.id for s in group.settings if s.priced == wanted for run in s.runs)
    places = [results.cost_places[name] for name in runs if name in results.cost_places]
    return results.costs[min(places)] if places else None


def length_of(results: Results, setting: Setting | None) -> Length | None:
    """Return the length of the shortest run of a setting that finished without diverging; None without one."""
    ended = [results.results[run.id] for run in setting.runs if run.id in results.results] if setting else []
    lengths = [
        Length(result["updates"], result["last_good_epoch"])
        for result in ended
        if result["status"] == FINISHED and result.get("updates") and result.get("last_good_epoch")
    ]
    return min(lengths, default=None)


def seconds_per_epoch(results: Results, group: Group, setting: Setting | None) -> float | None:
    """Return the time of an epoch's updates at a setting; None without a measured cost or a finished run."""
    cost, length = cost_of(results, group, setting), length_of(results, setting)
    return cost["seconds_per_update"] * length.updates / length.epochs if cost and length else None


def equal_time(results: Results, group: Group, reference: Group) -> EqualTime | None:
    """Return where a row and its reference have trained for the shorter of their two times, if known."""
    mine, theirs = (length_of(results, results.chosen(side)) for side in (group, reference))
    cost, base = cost_of(results, group), cost_of(results, reference)
    if cost is None or base is None or mine is None or theirs is None:
        return None
    parts = zip(cost.get("seconds_in_parts", ()), base.get("seconds_in_parts", ()), strict=False)
    epochs = _epochs(cost["seconds_per_update"] / base["seconds_per_update"], mine, theirs)
    sides = zip(epochs, *(_epochs(a / b, mine, theirs) for a, b in parts), strict=True)
    first, second = ((min(ends), max(ends)) for ends in sides)
    return EqualTime(*epochs, (mine, theirs), (first, second))


def _epochs(ratio: float, mine: Length, theirs: Length) -> tuple[float, float]:
    """Return both sides' epochs at the shorter time, if an update of mine takes ``ratio`` times as long."""
    updates = min(mine.updates, theirs.updates / ratio)  # of mine
    return (
        min(mine.epochs, updates * mine.epochs / mine.updates),
        min(theirs.epochs, updates * ratio * theirs.epochs / theirs.updates),
    )


def at_equal_time(results: Results, group: Group, reference: Group | None, column: Column) -> Sides:
    """Return the columns from which a row and its reference are read for a column at equal time.

    Both are read at their ends if all runs of one side diverged. None without a measured cost.
    """
    last = replace(column, at="last")
    if reference is None:  # the row is the reference's, or has none
        is_reference = results.references.get(results.rest_of(group)) is group
        return (last if is_reference and cost_of(results, group) else None), None
    if not (cost_of(results, group) and cost_of(results, reference)):
        return None, None
    places = equal_time(results, group, reference)
    return (replace(column, at=places.mine), replace(column, at=places.theirs)) if places else (last, last)
