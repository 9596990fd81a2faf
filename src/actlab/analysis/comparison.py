"""The table of a study: groups at their selected settings, published values, tests against the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from actlab.analysis.columns import Column
from actlab.analysis.differences import Difference, paired_difference
from actlab.analysis.looks import factor
from actlab.analysis.published import Published, published
from actlab.analysis.results import Results
from actlab.analysis.statistics import (
    FEWEST,
    Interval,
    equivalent,
    holm,
    mean_and_sd,
    median,
    median_interval,
    paired_differences,
    rounding,
    wilcoxon_p,
)
from actlab.config.keys import canonical, in_full, priced, same
from actlab.errors import unknown
from actlab.studies.folders import DIVERGED
from actlab.studies.groups import Group, Setting
from actlab.studies.plan import Study


@dataclass(frozen=True)
class Cell:
    """One table column of one group, at the group's selected setting.

    ``tuned_on`` is set where the column selected the setting of the group or of its reference: the values are
    then the best of several, and a test on them would be biased. P-values after correction cover all planned
    tests of the table, and earlier looks.
    """

    column: Column
    values: dict[int, float]  # by seed; not finite where a run diverged
    median: float | None  # of the values; None without any
    interval: Interval | None
    published: Published | None  # None if the paper gives none
    paired: Difference  # differences to the reference over the seeds that both have, with p-value and interval
    p_wilcoxon: float | None = None  # over the same pairs; None with fewer than `FEWEST`, or if ``tuned_on``
    planned: bool = False  # whether the table plans a test: there is a reference, and ``tuned_on`` is False
    tuned_on: bool = False
    p_holm: float | None = None
    diverged: bool = False  # whether any run did; if none, an infinite value was measured
    # to the reference, by pair; infinite where one run of the pair diverged
    differences: tuple[float, ...] = ()
    margin: float | None = None  # of equivalence, in the unit of the values
    # two one-sided tests against the margin, corrected over all cells with a margin
    p_equivalent: float | None = None

    @property
    def beyond_published(self) -> float | None:
        """Our median minus the published value; our mean minus it if the paper also gives a standard deviation.

        None if our mean does not exist because a run diverged; the median is not compared in its place.
        """
        if self.median is None or self.published is None:
            return None
        if self.published.sd is not None and len(self.values) > 1:
            return self.mean_and_sd[0] - self.published.value if self.mean_and_sd else None
        return self.median - self.published.value

    @property
    def mean_and_sd(self) -> tuple[float, float] | None:
        """Our mean and standard deviation, if the paper published a standard deviation."""
        return mean_and_sd(self.values.values()) if self.published and self.published.sd is not None else None


@dataclass(frozen=True)
class TableRow:
    """A group in the table."""

    point: dict[str, Any]  # the grid point without its tuned values
    chosen: dict[str, Any]  # the selected tuned values; empty until a run has ended
    tried: int  # number of settings
    reference_tried: int | None  # of its reference; None without a reference
    planned: int  # number of runs at the selected setting
    finished: int  # how many of these finished without diverging
    diverged: int
    provisional: bool  # whether the setting was selected while runs of the group were missing
    cells: tuple[Cell, ...]  # one per column
    cost: Mapping[str, Any] | None  # the entry of ``cost.json`` for the group


@lru_cache(maxsize=4)  # each part of a report needs them
def rows(results: Results) -> list[TableRow]:
    """Return the table of a study: one row per group, in the order of the study's file."""
    check_reference(results)
    plain = [_row(results, group) for group in results.groups]
    corrected = iter(holm([cell.paired.p for row in plain for cell in row.cells if cell.planned]))
    margins = [cell.p_equivalent for row in plain for cell in row.cells if cell.planned and cell.column.margin]
    matching = iter(holm(margins))

    def at_this_look(p: float | None) -> float | None:
        return None if p is None else min(1.0, p * factor(results.looks))

    def with_holm(cell: Cell) -> Cell:
        p_equivalent = at_this_look(next(matching)) if cell.column.margin else None
        return replace(cell, p_holm=at_this_look(next(corrected)), p_equivalent=p_equivalent)

    return [replace(row, cells=tuple(with_holm(c) if c.planned else c for c in row.cells)) for row in plain]


def hypotheses(results: Results) -> int:
    """Return the number of planned comparisons with the reference, whether or not their runs have finished."""
    return sum(cell.planned for row in rows(results) for cell in row.cells)


def strictness(results: Results) -> int:
    """Return by how much the smallest p-value of the table is multiplied: comparisons, and earlier looks."""
    return hypotheses(results) * factor(results.looks)


def _row(results: Results, group: Group) -> TableRow:
    setting, reference = results.chosen(group), _reference(results, group)
    runs = setting.runs if setting else group.settings[0].runs
    ended = [results.results[run.id]["status"] for run in runs if run.id in results.results]
    return TableRow(
        point=group.point,
        chosen=setting.tuned if setting else {},
        tried=_tried(results, group),
        reference_tried=_tried(results, reference) if reference else None,
        planned=len(runs),
        finished=len(ended) - ended.count(DIVERGED),
        diverged=ended.count(DIVERGED),
        provisional=len(group.settings) > 1
        and any(run.id not in results.results for s in group.settings for run in s.runs),
        cells=tuple(_cell(results, group, setting, column) for column in results.columns),
        cost=_cost(results, group),
    )


def _cost(results: Results, group: Group) -> Mapping[str, Any] | None:
    """Return the cost of a group at its selected setting, relative to the reference at its selected setting.

    If no run of the reference was measured, the recorded ratios are relative to the run measured along with it.
    """
    mine, reference = _own_cost(results, group), _reference(results, group)
    if mine is None:
        return None
    if reference is None:
        # The study's reference may have changed since the measurement.
        is_reference = same(group.point.get(results.study.compare), results.study.reference)
        return {**mine, "relative_to_reference": 1.0, "bytes_relative": 1.0} if is_reference else mine
    if (theirs := _own_cost(results, reference)) is None:
        return None if any(r.id in results.cost_places for s in reference.settings for r in s.runs) else mine
    parts = mine.get("seconds_in_parts", ()), theirs.get("seconds_in_parts", ())
    return {
        **mine,
        "relative_to_reference": mine["seconds_per_update"] / theirs["seconds_per_update"],
        "bytes_relative": mine["bytes_kept"] / theirs["bytes_kept"],
        "relative_in_parts": [a / b for a, b in zip(*parts, strict=False)],
    }


def _own_cost(results: Results, group: Group) -> Mapping[str, Any] | None:
    """Return the cost measured at the selected setting, or at one that differs only in a learning rate."""
    if not results.costs:
        return None
    wanted = canonical(priced((results.chosen(group) or group.settings[0]).tuned))
    runs = (run.id for s in group.settings if canonical(priced(s.tuned)) == wanted for run in s.runs)
    places = [results.cost_places[name] for name in runs if name in results.cost_places]
    return results.costs[min(places)] if places else None


def cost_base(results: Results) -> str | None:
    """Return what costs are relative to: the reference if measured, else the entry of ratio 1, or None."""
    study, values = results.study, [cost["point"].get(results.study.compare) for cost in results.costs]
    reference = [value for value in values if same(value, study.reference)]
    beside = [v for v, c in zip(values, results.costs, strict=True) if c.get("relative_to_reference") == 1]
    found = [*reference, *beside]
    return results.text(study.compare, found[0]) if found else None


def _cell(results: Results, group: Group, setting: Setting | None, column: Column) -> Cell:
    values = results.values(setting, column) if setting else {}
    reference = _reference(results, group)
    chosen = results.chosen(reference) if reference else None
    others = results.values(chosen, column) if chosen else {}
    seeds = [seed for seed in values if seed in others]
    mine, theirs = [values[seed] for seed in seeds], [others[seed] for seed in seeds]
    paired, tuned_on = paired_difference(mine, theirs), _tuned_on(results, group, reference, column)
    differences, margin = paired_differences(mine, theirs), _margin(column, theirs)
    tested = margin is not None and len(mine) >= FEWEST and not tuned_on
    return Cell(
        column,
        values,
        median=median(values.values()) if values else None,
        interval=median_interval(values.values()) if values else None,
        published=published(results.study, {**group.point, **(setting.tuned if setting else {})}, column),
        paired=paired.untested if tuned_on else paired,
        p_wilcoxon=wilcoxon_p(mine, theirs) if len(mine) >= FEWEST and not tuned_on else None,
        planned=reference is not None and not tuned_on,
        tuned_on=tuned_on,
        diverged=setting is not None and any(results.has_diverged(run) for run in setting.runs),
        differences=tuple(differences.tolist()),
        margin=margin,
        p_equivalent=equivalent(differences, margin, rounding(mine, theirs)) if tested and margin else None,
    )


def _margin(column: Column, theirs: Sequence[float]) -> float | None:
    """Return the margin of equivalence in the unit of the values; None without one."""
    if column.margin is None or not theirs:
        return None
    scale = abs(median(theirs)) if column.relative else 1.0
    return column.margin * scale if 0 < scale < math.inf else None


def _tried(results: Results, group: Group) -> int:
    """Return the number of settings tried for a group, in this stage or an earlier one."""
    return results.study.tried.get(canonical(group.point), len(group.settings))


def _tuned_on(results: Results, group: Group, reference: Group | None, column: Column) -> bool:
    """Return whether a column is the metric that selected the setting of a group or of its reference.

    The epoch of the best value is a different quantity: no setting is selected for being early. In a later
    stage with other seeds than those of the selection, no column counts as the one that selected.
    """
    study = results.study
    chose = (column.metric, column.condition) == (study.select.metric, "") and not column.is_epoch
    fresh = bool(study.chosen_on) and study.chosen_on.isdisjoint(study.seeds)
    if reference is None or not chose or fresh:
        return False
    return max(_tried(results, group), _tried(results, reference)) > 1


def _reference(results: Results, group: Group) -> Group | None:
    """Return the reference group at the same point; None for the reference itself, and where it is absent."""
    found = results.references.get(results.rest_of(group))
    return None if found is group else found


def check_reference(results: Results) -> None:
    """Raise an ActlabError for a requested reference that the grid lacks."""
    study = results.study
    asked = study.reference_given or study.reference != Study.reference
    if not asked or results.references:
        return
    values = dict.fromkeys(in_full(group.point.get(study.compare)) for group in results.groups)
    remedy = f"'reference' names a value of {study.compare}."
    raise unknown("reference", in_full(study.reference), values, remedy)


def reference_text(results: Results) -> str:
    """Return the reference as the table writes it."""
    groups, compare = results.references.values(), results.study.compare
    values = [group.point.get(compare) for group in groups]
    return results.text(compare, values[0] if values else results.study.reference)
