"""The rows of a study's table: each unit at its chosen setting, beside published values and the reference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from actlab.analysis.columns import Column
from actlab.analysis.results import Group, Results, Setting, matches, median
from actlab.analysis.statistics import (
    FEWEST,
    Interval,
    holm,
    median_interval,
    paired_differences,
    sign_flip_p,
    wilcoxon_p,
)
from actlab.engines.folders import DIVERGED
from actlab.studies.plan import ACTIVATION, Study, label


@dataclass(frozen=True)
class Cell:
    """One quantity of one group at its chosen setting.

    ``values`` maps seeds to values, not finite where a run diverged. ``median`` and ``interval`` are None
    without any. The p are of a sign-flip and of Wilcoxon's test against the reference over ``pairs`` common
    seeds; ``p_holm`` is the first corrected over the whole table.
    """

    column: Column
    values: dict[int, float]
    median: float | None
    interval: Interval | None
    published: float | None
    pairs: int = 0
    p: float | None = None
    p_wilcoxon: float | None = None
    p_holm: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours minus published."""
        return None if self.median is None or self.published is None else self.median - self.published


@dataclass(frozen=True)
class Row:
    """A group in the table.

    Args:
        point: what is compared.
        chosen: the tuned values chosen; empty as long as no run is over.
        tried: number of settings the unit was given.
        planned: number of runs at the chosen setting; ``finished`` and ``diverged`` of them are over.
        provisional: whether the choice was made while runs of the group were missing.
        cells: one a column.
        cost: the unit's entry in ``cost.json``.
    """

    point: dict[str, Any]
    chosen: dict[str, Any]
    tried: int
    planned: int
    finished: int
    diverged: int
    provisional: bool
    cells: tuple[Cell, ...]
    cost: Mapping[str, Any] | None


def rows(results: Results) -> list[Row]:
    """The table of a study, a row a group, in the order of its file.

    Raises:
        ActlabError: for a column that is not understood or whose metric no run recorded.
    """
    plain = [_row(results, group) for group in results.groups]
    corrected = iter(holm([cell.p for row in plain for cell in row.cells]))
    return [replace(row, cells=tuple(replace(c, p_holm=next(corrected)) for c in row.cells)) for row in plain]


def hypotheses(results: Results) -> int:
    """Number of comparisons with the reference that the table makes."""
    return len(results.columns) * sum(_reference(results, group) is not None for group in results.groups)


def _row(results: Results, group: Group) -> Row:
    setting = results.chosen(group)
    runs = setting.runs if setting else group.settings[0].runs
    ended = [results.results[run.id]["status"] for run in runs if run.id in results.results]
    unit = label(group.point.get(ACTIVATION, ""))
    return Row(
        point=group.point,
        chosen=setting.tuned if setting else {},
        tried=len(group.settings),
        planned=len(runs),
        finished=len(ended) - ended.count(DIVERGED),
        diverged=ended.count(DIVERGED),
        provisional=any(run.id not in results.results for s in group.settings for run in s.runs),
        cells=tuple(_cell(results, group, setting, column) for column in results.columns),
        cost=next((cost for cost in results.costs if cost["activation"] == unit), None),
    )


def _cell(results: Results, group: Group, setting: Setting | None, column: Column) -> Cell:
    values = results.values(setting, column) if setting else {}
    mine, theirs = _pairs(results, group, values, column)
    tested = len(mine) >= FEWEST
    return Cell(
        column,
        values,
        median=median(values.values()) if values else None,
        interval=median_interval(values.values()) if values else None,
        published=published(results.study, {**group.point, **(setting.tuned if setting else {})}, column),
        pairs=len(mine),
        p=sign_flip_p(paired_differences(mine, theirs)) if tested else None,
        p_wilcoxon=wilcoxon_p(mine, theirs) if tested else None,
    )


def _reference(results: Results, group: Group) -> Group | None:
    """The group of the reference unit at the same point; None for that group itself."""
    point = {**group.point, ACTIVATION: results.study.reference}
    return next((g for g in results.groups if g is not group and matches(point, g.point)), None)


def _pairs(
    results: Results, group: Group, values: Mapping[int, float], column: Column
) -> tuple[list[float], list[float]]:
    """Values of a group and of the reference, seed by seed."""
    reference = _reference(results, group)
    setting = results.chosen(reference) if reference else None
    theirs = results.values(setting, column) if setting else {}
    seeds = [seed for seed in values if seed in theirs]
    return [values[seed] for seed in seeds], [theirs[seed] for seed in seeds]


def published(study: Study, point: Mapping[str, Any], column: Column) -> float | None:
    """The published value of a column whose ``where`` fits a point, the most particular one."""
    fits = [
        value
        for value in study.published.get("values", ())
        if value["metric"] == column.metric
        and value.get("at", "last") == column.at
        and matches(value.get("where", {}), point)
    ]
    return float(max(fits, key=lambda value: len(value.get("where", {})))["value"]) if fits else None
