"""The table of a study: groups at their selected settings, published values, tests against the reference.

The comparisons of the primary column with the reference form one family of hypotheses, all others a second one;
p-values are corrected within each (`actlab.analysis.verdict` says what they decide).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from actlab.analysis.choice import Choice
from actlab.analysis.columns import Column
from actlab.analysis.differences import Difference, Estimate, better, equivalent, paired_difference
from actlab.analysis.looks import factor
from actlab.analysis.results import Results
from actlab.analysis.statistics import Interval, holm, mean_and_sd, median, median_interval
from actlab.analysis.wording import plural
from actlab.config.values import in_full
from actlab.errors.messages import unknown
from actlab.studies.groups import Group, Setting
from actlab.studies.plan import Study
from actlab.studies.points import Point
from actlab.studies.states import DIVERGED

Family = Literal["primary", "secondary", ""]
FAMILIES: tuple[Family, ...] = ("primary", "secondary")


class Correction(NamedTuple):
    """What the p-values of a comparison are corrected for: the others of its family, and earlier looks."""

    family: Family
    comparisons: int  # in the family, finished or not
    with_margin: int  # how many of them have a margin of equivalence
    looks: int  # verdicts seen before

    def strictness(self, more: int = 0) -> int:
        """Return by how much the smallest p-value is multiplied, after so many looks more."""
        return max(1, self.comparisons) * factor(self.looks + more)

    def text(self, more: int = 0, margin: bool = False) -> str:
        """Return ``3 comparisons``, ``3 comparisons and 2 looks``; with ``margin`` of tests of equivalence."""
        number, looks = self.with_margin if margin else self.comparisons, self.looks + more
        count = plural(max(1, number), "comparison")
        return f"{count} and {looks + 1} looks" if looks else count


class PublishedValue(NamedTuple):
    """A published value; if the paper gives a standard deviation over runs, ``value`` is the mean over them."""

    value: float
    sd: float | None = None


@dataclass(frozen=True)
class Cell:
    """One table column of one group, at the group's selected setting.

    A comparison with the reference has p-values and intervals when all planned runs of both sides have ended.
    It has none where the values are the best of several (``biased``): no fair sample of what they measure.
    """

    column: Column
    values: dict[int, float]  # by seed; not finite where a run diverged
    median: float | None  # of the values; None without any
    interval: Interval | None
    published: PublishedValue | None  # None if the paper gives none
    difference: Difference  # over the seeds that the reference has, too
    better: Estimate | None  # probability of being better than the reference; None without values of both
    family: Family = ""  # empty: not tested against the reference, or not ranked and so not corrected
    biased: bool = False
    missing: int = 0  # planned runs of both sides that have not ended
    failures: tuple[int, int] = (0, 0)  # runs of each side that failed, see `Column.failed`, of those paired
    p_holm: float | None = None  # ``p`` corrected over its family, and for earlier looks
    diverged: bool = False  # whether any run did; if none, an infinite value was measured
    margin: float | None = None  # of equivalence, in the unit of the values
    p_equivalent: float | None = None  # two one-sided tests against the margin
    p_equivalent_holm: float | None = None  # corrected over the cells of the family with a margin
    samples: int | None = None  # number of samples that a share such as an error was measured on, if known
    sampling_error: float | None = None  # standard error that the median has from the samples alone, if known
    at_chance: bool = False  # whether the median is that of a run that failed
    reference_at_chance: bool = False

    @property
    def by_probability(self) -> bool:
        """Whether a run of either side failed: the probability decides then, and not the mean."""
        return any(self.failures)

    @property
    def p(self) -> float | None:
        """The p-value that decides: of the mean difference, or of the probability where a run failed."""
        return self.better.p if self.by_probability and self.better else self.difference.p

    @property
    def within_margin(self) -> bool:
        """Whether the mean difference is smaller than the margin; of shares, in counts of samples."""
        mean, number = self.difference.mean, (self.samples or 0) * self.difference.pairs
        if self.margin is None or mean is None:
            return False
        counted = round(abs(mean) * number) / number if number else abs(mean)
        return counted < self.margin and not math.isclose(counted, self.margin)

    @property
    def beyond_published(self) -> float | None:
        """Our median minus the published value, on the column's scale; our mean if the paper gives an sd."""
        if self.median is None or self.published is None:
            return None
        ours = self.median
        if self.published.sd is not None and len(self.values) > 1:  # a diverged run leaves no mean to compare
            if self.mean_and_sd is None:
                return None
            ours = self.mean_and_sd[0]
        here, there = self.column.compared([ours, self.published.value])
        return here - there

    @property
    def mean_and_sd(self) -> tuple[float, float] | None:
        """Our mean and standard deviation, if the paper published a standard deviation."""
        return mean_and_sd(self.values.values()) if self.published and self.published.sd is not None else None


@dataclass(frozen=True)
class TableRow:
    """A group in the table."""

    point: Point  # the grid point without its tuned values
    chosen: Mapping[str, Any]  # the selected tuned values; empty until a run has ended
    edges: tuple[str, ...]  # keys and arguments whose selected value is an end of what was tried
    tried: int  # number of settings
    choice: Choice | None  # how far the selection depends on its seeds; None without one, or if it is unknown
    reference_tried: int | None  # of its reference; None without a reference
    reference_choice: Choice | None
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
    corrected: dict[int, Cell] = {}
    for family in FAMILIES:
        cells = [cell for row in plain for cell in row.cells if cell.family == family]
        with_margin = [cell for cell in cells if cell.column.margin]
        both = [holm([cell.p for cell in cells]), holm([cell.p_equivalent for cell in with_margin])]
        ps, matching = ([p and min(1.0, p * factor(results.looks)) for p in of_family] for of_family in both)
        of_margin = {id(cell): p for cell, p in zip(with_margin, matching, strict=True)}
        for cell, p in zip(cells, ps, strict=True):
            corrected[id(cell)] = replace(cell, p_holm=p, p_equivalent_holm=of_margin.get(id(cell)))
    return [replace(row, cells=tuple(corrected.get(id(cell), cell) for cell in row.cells)) for row in plain]


@lru_cache(maxsize=8)  # every comparison asks
def correction(results: Results, family: Family) -> Correction:
    """Return what the comparisons of a family are corrected for."""
    cells = [cell for row in rows(results) for cell in row.cells if cell.family == family]
    with_margin = sum(cell.column.margin is not None for cell in cells)
    return Correction(family, len(cells), with_margin, results.looks)


def _row(results: Results, group: Group) -> TableRow:
    setting, reference = results.chosen(group), _reference(results, group)
    tuned = setting.tuned if setting else {}
    runs = setting.runs if setting else group.settings[0].runs
    ended = [results.results[run.id]["status"] for run in runs if run.id in results.results]
    return TableRow(
        point=group.point,
        chosen=tuned,
        edges=results.study.edges.get(group.point) or group.edges(tuned),
        tried=_tried(results, group),
        choice=results.choice_at(group),
        reference_tried=_tried(results, reference) if reference else None,
        reference_choice=results.choice_at(reference) if reference else None,
        planned=len(runs),
        finished=len(ended) - ended.count(DIVERGED),
        diverged=ended.count(DIVERGED),
        provisional=len(group.settings) > 1 and results.missing_at(group) > 0,
        cells=tuple(_cell(results, group, setting, column) for column in results.columns),
        cost=_cost(results, group),
    )


def _cost(results: Results, group: Group) -> Mapping[str, Any] | None:
    """Return the cost of a group at its selected setting, relative to that of the reference."""
    mine, reference = _measured(results, group), results.references.get(results.rest_of(group))
    theirs = _measured(results, reference) if reference else None
    if mine is None or theirs is None:
        return mine
    parts = mine["seconds_in_parts"], theirs["seconds_in_parts"]
    return {
        **mine,
        "relative_to_reference": mine["seconds_per_update"] / theirs["seconds_per_update"],
        "bytes_relative": mine["bytes_kept"] / theirs["bytes_kept"],
        **({"relative_in_parts": [a / b for a, b in zip(*parts, strict=False)]} if mine is not theirs else {}),
    }


def _measured(results: Results, group: Group) -> Mapping[str, Any] | None:
    """Return the cost measured at the selected setting, or at one with another learning rate."""
    if not results.costs:
        return None

    # Find the runs that take as long as the selected ones.
    selected = results.chosen(group) or group.settings[0]
    priced = [setting for setting in group.settings if setting.priced == selected.priced]
    names = [run.id for setting in priced for run in setting.runs]

    # The first of them that was timed counts.
    places = [results.cost_places[name] for name in names if name in results.cost_places]
    return results.costs[min(places)] if places else None


def _cell(results: Results, group: Group, setting: Setting | None, column: Column) -> Cell:
    reference = _reference(results, group)
    chosen = results.chosen(reference) if reference else None
    values = results.values(setting, column) if setting else {}
    others = results.values(chosen, column) if chosen and not column.is_parameter else {}
    seeds = [seed for seed in values if seed in others]
    samples = results.samples(column)
    paired = ([of[seed] for seed in seeds] for of in (values, others))
    mine, theirs = (column.compared(column.ranked_as(side, samples)) for side in paired)
    failures = sum(map(math.isinf, mine)), sum(map(math.isinf, theirs))
    biased = _biased(results, group, reference, column)
    missing = results.missing_at(group) + (results.missing_at(reference) if reference else 0)
    tested = not biased and not missing and not column.is_parameter
    middle = median(values.values()) if values else None
    margin = _margin(column, [others[seed] for seed in seeds])
    p_equivalent = None
    if tested and margin and not any(failures):
        p_equivalent = equivalent([a - b for a, b in zip(mine, theirs, strict=True)], margin)
    family: Family = ""
    if column.ranked and reference and not biased:
        # With activations of the user, only these answer the study's question.
        in_question = not results.users or group.point in results.users
        family = "primary" if in_question and column == results.primary else "secondary"
    return Cell(
        column,
        values,
        median=middle,
        interval=median_interval(values.values()) if values else None,
        published=published(results.study, group.point | (setting.tuned if setting else {}), column),
        difference=paired_difference(mine, theirs, test=tested),
        better=better(mine, theirs, column.goal, test=tested) if seeds and column.goal else None,
        family=family,
        biased=biased,
        missing=missing,
        failures=failures,
        diverged=setting is not None and any(results.has_diverged(run) for run in setting.runs),
        margin=margin,
        p_equivalent=p_equivalent,
        samples=samples,
        sampling_error=results.sampling_error(column, setting, middle) if setting else None,
        at_chance=column.failed(middle, samples),
        reference_at_chance=column.failed(median(others.values()) if others else None, samples),
    )


def _margin(column: Column, theirs: Sequence[float]) -> float | None:
    if column.margin is None or not theirs:
        return None
    scale = abs(median(theirs)) if column.relative else 1.0
    return column.margin * scale if 0 < scale < math.inf else None


def _tried(results: Results, group: Group) -> int:
    """Return the number of settings tried for a group, in this stage or an earlier one."""
    return results.study.tried.get(group.point, len(group.settings))


def _biased(results: Results, group: Group, reference: Group | None, column: Column) -> bool:
    """Return whether the values of a column are the best of several epochs or settings."""
    study = results.study
    fresh = bool(study.chosen_on) and study.chosen_on.isdisjoint(study.seeds)  # an earlier stage chose
    if reference is None or (column.at == "best" and column.split == "test"):
        return reference is not None
    several = max(_tried(results, group), _tried(results, reference)) > 1
    return several and not fresh and column.split == "val"  # each metric, not only the one that chose


def _reference(results: Results, group: Group) -> Group | None:
    """Return the reference group at the same point; None for the reference itself, and where it is absent."""
    reference = results.references.get(results.rest_of(group))
    return None if reference is group else reference


def published(study: Study, point: Point, column: Column) -> PublishedValue | None:
    """Return the published value of a column at a grid point, or None if the paper gives none."""
    check_published(study)
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


def check_published(study: Study) -> None:
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


def check_reference(results: Results) -> None:
    """Raise an ActlabError for a requested reference that the grid lacks."""
    study = results.study
    if results.references or not (study.reference_given or study.reference != Study.reference):
        return
    values = dict.fromkeys(in_full(group.point.get(study.compare)) for group in results.groups)
    remedy = f"'reference' names a value of {study.compare}."
    raise unknown("reference", in_full(study.reference), values, remedy)


def reference_text(results: Results) -> str:
    """Return the reference as the table writes it."""
    study = results.study
    values = (group.point.get(study.compare) for group in results.references.values())
    return results.text(study.compare, next(values, study.reference))
