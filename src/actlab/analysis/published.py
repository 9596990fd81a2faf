"""Published values of a study: which entry belongs to a cell, and how the cell differs from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from actlab.analysis.columns import Column
from actlab.analysis.statistics import mean_and_sd
from actlab.analysis.study_table import Cell
from actlab.errors.messages import unknown
from actlab.studies.plan import Study
from actlab.studies.points import Point


def published_entry(
    study: Study, point: Point, column: Column
) -> Mapping[str, Any] | None:
    """Return the entry of the published value of a column at a grid point.

    None if the paper gives no value, or if the value is not comparable.
    """
    check_published(study)

    # Values on samples are not comparable; after another length than the paper's, only
    # values at a stated epoch are.
    if study.samples:
        return None
    if study.other_length and not isinstance(column.at, int | float):
        return None

    # Find the entry that states most of the point.
    best: Mapping[str, Any] | None = None
    for entry in study.published.get("values", ()):
        if _position(entry) != (column.metric, column.at, column.condition):
            continue
        conditions = entry.get("where", {})
        is_closer = best is None or len(conditions) > len(best.get("where", {}))
        if is_closer and point.matches(conditions):
            best = entry
    return best


def check_published(study: Study) -> None:
    """Check that the table can show each published value.

    Raises:
        ActlabError: for an unknown grid key, or a value that no column of the table shows.
    """
    positions = list(map(_position, study.table))
    for entry in study.published.get("values", ()):
        # The grid has its keys.
        for key in entry.get("where", {}):
            if key not in study.keys:
                source = f"In 'where' of a published value of {study.name}."
                raise unknown("grid key", str(key), study.keys, source)

        # The table has its column.
        position = _position(entry)
        if position not in positions:
            text = _position_text(position)
            columns = list(map(_position_text, positions))
            remedy = "These are the table's columns, as metric, at and condition."
            raise unknown("column of a published value", text, columns, remedy)


def _position(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return metric, ``at`` and condition of an entry of a study's file."""
    return entry["metric"], entry.get("at", "last"), entry.get("condition", "")


def _position_text(position: tuple[Any, ...]) -> str:
    return " ".join(map(str, filter(None, position)))


def with_published(cell: Cell, value: float, sd: float | None) -> Cell:
    """Return a cell with a published value: a mean if the paper gives a standard deviation."""
    # Compare the median, or mean with mean.
    measured = cell.median
    mean = measured_sd = None
    if sd is not None:
        mean, measured_sd = mean_and_sd(cell.values.values()) or (None, None)
        if cell.n > 1:
            measured = mean  # None if a run diverged

    # Ratios are differences of logarithms.
    difference = None
    if measured is not None:
        measured, stated = cell.compared([measured, value])
        difference = measured - stated

    return replace(
        cell,
        mean=mean,
        sd=measured_sd,
        published=value,
        published_sd=sd,
        difference=difference,
    )
