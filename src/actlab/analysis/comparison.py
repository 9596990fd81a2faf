"""The table of a study: each group at its chosen setting, beside published values and against the reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from actlab.analysis.columns import Column
from actlab.analysis.differences import Difference, paired_difference
from actlab.analysis.published import Published, published
from actlab.analysis.results import Results
from actlab.analysis.statistics import FEWEST, Interval, holm, mean_and_sd, median, median_interval, wilcoxon_p
from actlab.config.keys import canonical, in_full, priced, same, without
from actlab.errors import unknown
from actlab.studies.folders import DIVERGED
from actlab.studies.groups import Group, Setting
from actlab.studies.plan import Study


@dataclass(frozen=True)
class Cell:
    """One quantity of one group at its chosen setting.

    Args:
        column: which quantity.
        values: by seed; not finite where a run diverged.
        median: of the values; None without any.
        interval: of the median; None without any value.
        published: what a paper gives, if it does.
        paired: difference to the reference over the seeds that both have, with p and interval.
        p_wilcoxon: of Wilcoxon's signed-rank test over the same pairs; None when they are too few.
        planned: whether the table plans a test of it: there is a reference that the group is compared with, and
            the quantity did not choose either's setting.
        tuned_on: whether it did: then the chosen values are the best of several and would be tested on that.
        p_holm: the p of ``paired`` corrected over all tests that the table plans.
        diverged: whether any of its runs did; else a value that is infinite was measured so.
    """

    column: Column
    values: dict[int, float]
    median: float | None
    interval: Interval | None
    published: Published | None
    paired: Difference
    p_wilcoxon: float | None = None
    planned: bool = False
    tuned_on: bool = False
    p_holm: float | None = None
    diverged: bool = False

    @property
    def beyond_published(self) -> float | None:
        """Our median minus the published value; our mean where that is a mean, as one with a deviation is.

        None where there is no mean, since a run diverged: a median is no better for it.
        """
        if self.median is None or self.published is None:
            return None
        if self.published.sd is not None and len(self.values) > 1:
            return self.mean_and_sd[0] - self.published.value if self.mean_and_sd else None
        return self.median - self.published.value

    @property
    def mean_and_sd(self) -> tuple[float, float] | None:
        """Ours, where the paper published a standard deviation."""
        return mean_and_sd(self.values.values()) if self.published and self.published.sd is not None else None


@dataclass(frozen=True)
class TableRow:
    """A group in the table.

    Args:
        point: what is compared.
        chosen: the tuned values chosen; empty as long as no run has ended.
        tried: number of settings the group was given.
        reference_tried: the same of the reference; None without one.
        planned: number of runs at the chosen setting.
        finished: how many of them reached their end.
        diverged: how many of them diverged.
        provisional: whether the choice was made while runs of the group were missing.
        cells: one a column.
        cost: the entry of ``cost.json`` for what is compared.
    """

    point: dict[str, Any]
    chosen: dict[str, Any]
    tried: int
    reference_tried: int | None
    planned: int
    finished: int
    diverged: int
    provisional: bool
    cells: tuple[Cell, ...]
    cost: Mapping[str, Any] | None


def rows(results: Results) -> list[TableRow]:
    """The table of a study, one row for each group, in the order of its file.

    Raises:
        ActlabError: for a column or published value that is not understood, or that no run recorded; for a
            reference that the grid lacks.
    """
    check_reference(results)
    plain = [_row(results, group) for group in results.groups]
    corrected = iter(holm([cell.paired.p for row in plain for cell in row.cells if cell.planned]))
    return [
        replace(row, cells=tuple(replace(c, p_holm=next(corrected)) if c.planned else c for c in row.cells))
        for row in plain
    ]


def hypotheses(rows: Iterable[TableRow]) -> int:
    """Number of comparisons with the reference that the table plans, whatever has finished or diverged."""
    return sum(cell.planned for row in rows for cell in row.cells)


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
    """The cost of a group at its chosen setting, relative to the reference at the one that is chosen for it.

    Where nothing of the reference was measured it is relative to what it was measured beside.
    """
    mine, reference = _own_cost(results, group), _reference(results, group)
    if mine is None:
        return None
    if reference is None:  # the reference may be another than the one that it was measured beside
        itself = {"relative_to_reference": 1.0, "bytes_relative": 1.0} if _refers(results, group) else {}
        return {**mine, **itself}
    if (theirs := _own_cost(results, reference)) is None:
        measured = {cost["run"] for cost in results.costs}
        return None if any(run.id in measured for s in reference.settings for run in s.runs) else mine
    ratios = {
        "relative_to_reference": mine["seconds_per_update"] / theirs["seconds_per_update"],
        "bytes_relative": mine["bytes_kept"] / theirs["bytes_kept"],
        "relative_in_parts": _ratios(mine.get("seconds_in_parts", ()), theirs.get("seconds_in_parts", ())),
    }
    return {**mine, **ratios}


def _ratios(mine: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Of what was timed in the same turns; none for measurements of another number of parts."""
    return [a / b for a, b in zip(mine, theirs, strict=True)] if len(mine) == len(theirs) else []


def _own_cost(results: Results, group: Group) -> Mapping[str, Any] | None:
    """What was measured at the chosen setting, or at one that differs from it in a learning rate alone."""
    if not results.costs:
        return None
    wanted = canonical(priced((results.chosen(group) or group.settings[0]).tuned))
    runs = {run.id for s in group.settings if canonical(priced(s.tuned)) == wanted for run in s.runs}
    return next((cost for cost in results.costs if cost["run"] in runs), None)


def _costs_of(results: Results, cost: Mapping[str, Any]) -> Any:
    """Whose an entry of ``cost.json`` is."""
    return cost["point"].get(results.study.compare)


def cost_base(results: Results) -> str | None:
    """What the costs are relative to: the reference where it was measured; None where no entry says so."""
    reference = [cost for cost in results.costs if same(_costs_of(results, cost), results.study.reference)]
    beside = (cost for cost in results.costs if cost.get("relative_to_reference") == 1)
    base = next(iter([*reference, *beside]), None)
    return None if base is None else results.text(results.study.compare, _costs_of(results, base))


def _cell(results: Results, group: Group, setting: Setting | None, column: Column) -> Cell:
    values = results.values(setting, column) if setting else {}
    reference = _reference(results, group)
    mine, theirs = _pairs(results, reference, values, column)
    paired, tuned_on = paired_difference(mine, theirs), _tuned_on(results, group, reference, column)
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
    )


def _tried(results: Results, group: Group) -> int:
    """Number of settings that a group was given, in this stage or an earlier one."""
    return results.study.tried.get(canonical(group.point), len(group.settings))


def _tuned_on(results: Results, group: Group, reference: Group | None, column: Column) -> bool:
    """Whether a column is the metric by which the setting of a group or of its reference was chosen.

    The epoch of its best value is another quantity: nothing was chosen for being early. Nor do the runs of a
    later stage count as chosen that have other seeds than those that chose.
    """
    study = results.study
    chose = (column.metric, column.condition) == (study.select.metric, "") and not column.is_epoch
    fresh = bool(study.chosen_on) and study.chosen_on.isdisjoint(study.seeds)
    if reference is None or not chose or fresh:
        return False
    return max(_tried(results, group), _tried(results, reference)) > 1


def _reference(results: Results, group: Group) -> Group | None:
    """The group of the reference at the same point; None for that group itself, and where it is absent."""
    here = _beside_compared(results, group)
    candidates = (g for g in results.groups if _refers(results, g) and _beside_compared(results, g) == here)
    found = next(candidates, None)
    return None if found is group else found


def _beside_compared(results: Results, group: Group) -> str:
    return canonical(without(group.point, [results.study.compare]))


def _refers(results: Results, group: Group) -> bool:
    return same(group.point.get(results.study.compare), results.study.reference)


def check_reference(results: Results) -> None:
    """Raise an ActlabError for a reference that was asked for and that the grid lacks."""
    study = results.study
    asked = study.reference_given or study.reference != Study.reference
    if not asked or any(_refers(results, group) for group in results.groups):
        return
    values = dict.fromkeys(in_full(group.point.get(study.compare)) for group in results.groups)
    remedy = f"'reference' names a value of {study.compare}."
    raise unknown("reference", in_full(study.reference), values, remedy)


def reference_text(results: Results) -> str:
    """The reference as the table writes it."""
    values = [group.point.get(results.study.compare) for group in results.groups if _refers(results, group)]
    return results.text(results.study.compare, values[0] if values else results.study.reference)


def _pairs(
    results: Results, reference: Group | None, values: Mapping[int, float], column: Column
) -> tuple[list[float], list[float]]:
    """The values of a group and those of its reference, seed by seed."""
    setting = results.chosen(reference) if reference else None
    theirs = results.values(setting, column) if setting else {}
    seeds = [seed for seed in values if seed in theirs]
    return [values[seed] for seed in seeds], [theirs[seed] for seed in seeds]
