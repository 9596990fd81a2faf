"""Published values of a study's paper, as given in the study file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from actlab.analysis.columns import Column
from actlab.errors import unknown
from actlab.studies.plan import Study
from actlab.studies.points import Point


class PublishedValue(NamedTuple):
    """A published value; if the paper gives a standard deviation over runs, ``value`` is the mean over them."""

    value: float
    sd: float | None = None


def published(study: Study, point: Point, column: Column) -> PublishedValue | None:
    """Return the published value of a column at a grid point, or None if the paper gives none."""
    check(study)
    # Of runs of another length than the paper's, only values at a given epoch are comparable; on samples, none.
    if study.samples or (study.cut and not isinstance(column.at, int | float)):
        return None
    wanted = (column.metric, column.at, column.condition)
    entries = [entry for entry in study.published.get("values", ()) if _place(entry) == wanted]
    fits = [entry for entry in entries if point.matches(entry.get("where", {}))]
    if not fits:
        return None
    entry = max(fits, key=lambda entry: len(entry.get("where", {})))  # the most specific one
    return PublishedValue(float(entry["value"]), None if entry.get("sd") is None else float(entry["sd"]))


def check(study: Study) -> None:
    """Raise an ActlabError for a published value at an unknown grid key, or that no table column shows."""
    shown = [_place(entry) for entry in study.table]
    for entry in study.published.get("values", ()):
        for key in entry.get("where", {}):
            if key not in study.keys:
                where = f"In 'where' of a published value of {study.name}."
                raise unknown("grid key", str(key), study.keys, where)
        if (place := _place(entry)) not in shown:
            words = [" ".join(map(str, filter(None, place))) for place in (place, *shown)]
            remedy = "These are the table's columns, as metric, at and condition."
            raise unknown("column of a published value", words[0], words[1:], remedy)


def _place(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return entry["metric"], entry.get("at", "last"), entry.get("condition", "")
