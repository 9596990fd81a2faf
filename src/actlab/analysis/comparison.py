"""Make the table of a study: groups at their selected settings, published values, tests against the reference.

The comparisons of the primary column with the reference form one family of hypotheses, all others a second one;
p-values are corrected within each (`actlab.analysis.verdict` says what they decide).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from actlab.analysis import notes, parameters, verdict
from actlab.analysis.columns import Column
from actlab.analysis.differences import better, equivalent, paired_difference
from actlab.analysis.looks import factor
from actlab.analysis.results import Results
from actlab.analysis.statistics import LEVEL, holm, mean_and_sd, median, median_interval, pairs_needed
from actlab.analysis.study_table import FAMILIES, Cell, Family, Row, StudyTable, Superiority
from actlab.config.keys import by_key
from actlab.config.values import in_full, shareable
from actlab.errors import unknown
from actlab.studies.folders import DIVERGED
from actlab.studies.groups import Group, Setting
from actlab.studies.plan import Study
from actlab.studies.points import Point


class PublishedValue(NamedTuple):
    """A published value; if the paper gives a standard deviation over runs, ``value`` is the mean over them."""

    value: float
    sd: float | None = None


def table_of(results: Results) -> StudyTable:
    """Return the comparison of a study: a row per group, in the order of the study's file, and what it says."""
    study = results.study
    check_reference(results)
    rows = [_row(results, group) for group in results.groups]
    rows = _corrected(rows, results.looks)

    # The user's activations, and the code of the runs that have ended
    own = dict[str, None]()
    for group in results.groups:
        for key, value in group.point.items():
            if study.is_own(key, value):
                own[in_full(shareable(value))] = None
    ended = [run for run in results.runs if run.id in results.results]
    sources = {str(shareable(name)): digest for run in ended for name, digest in run.sources.items()}
    made = results.results.values()
    versions = by_key(dict.fromkeys(pair for result in made for pair in result["versions"].items()))

    table = StudyTable(
        study=study.name,
        title=study.title,
        compare=study.compare,
        reference=in_full(shareable(study.reference)),
        own=tuple(own),
        sources=sources,
        looks=results.looks,
        planned=len(results.runs),
        finished=results.finished,
        diverged=results.diverged,
        seeds=study.seeds,
        versions={name: tuple(several) for name, several in versions.items()},
        hardware=tuple(dict.fromkeys(result["hardware"] for result in made if "hardware" in result)),
        published=study.published.get("source"),
        cut=study.cut,
        samples=study.samples,
        tuned=tuple(study.select.tune),
        tried=bool(study.select.tune or study.tried),
        verdicts=(),
        rows=tuple(rows),
        notes=tuple(study.notes),
    )

    # What the rows say, in sentences
    table = replace(table, verdicts=tuple(verdict.verdicts(table)))
    return replace(
        table,
        summary=tuple(verdict.lines(table, results)),
        parameters=tuple(parameters.lines(results)),
        remarks=tuple(notes.remarks(table, results)),
    )


def _corrected(rows: Sequence[Row], looks: int) -> list[Row]:
    """Return the rows with p-values corrected within each family, and for earlier looks."""
    corrected: dict[int, Cell] = {}
    for family in FAMILIES:
        cells = [cell for row in rows for cell in row.columns if cell.family == family]
        with_margin = [cell for cell in cells if cell.has_margin]
        differences = _after_looks(holm([cell.p for cell in cells]), looks)
        matches = _after_looks(holm([cell.p_equivalent for cell in with_margin]), looks)
        of_margin = {id(cell): p for cell, p in zip(with_margin, matches, strict=True)}
        for cell, p in zip(cells, differences, strict=True):
            corrected[id(cell)] = replace(cell, p_holm=p, p_equivalent_holm=of_margin.get(id(cell)))
    return [replace(row, columns=tuple(corrected.get(id(cell), cell) for cell in row.columns)) for row in rows]


def _after_looks(ps: Sequence[float | None], looks: int) -> list[float | None]:
    return [p and min(1.0, p * factor(looks)) for p in ps]


def _row(results: Results, group: Group) -> Row:
    setting, reference = results.chosen(group), _reference(results, group)
    tuned = setting.tuned if setting else Point({})
    runs = setting.runs if setting else group.settings[0].runs
    ended = [results.results[run.id]["status"] for run in runs if run.id in results.results]
    sides = _Sides(group, setting, reference, results.chosen(reference) if reference else None)
    return Row(
        point=group.point,
        chosen=tuned,
        edges=results.study.edges.get(group.point) or group.edges(tuned),
        choice=results.choice_at(group),
        settings=_tried(results, group),
        reference_settings=_tried(results, reference) if reference else None,
        planned=len(runs),
        finished=len(ended) - ended.count(DIVERGED),
        diverged=ended.count(DIVERGED),
        provisional=len(group.settings) > 1 and results.missing_at(group) > 0,
        cost=_cost(results, group),
        columns=tuple(_cell(results, sides, column) for column in results.columns),
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


class _Sides(NamedTuple):
    """A group with its selected setting, and those of its reference."""

    group: Group
    setting: Setting | None
    reference: Group | None
    reference_setting: Setting | None


def _cell(results: Results, sides: _Sides, column: Column) -> Cell:
    group, setting, reference, _ = sides
    samples = results.samples(column)
    primary = column == results.primary

    # The values of both sides, and which of them are compared
    values = results.values(setting, column) if setting else {}
    others: dict[int, float] = {}
    if sides.reference_setting and not column.is_parameter:
        others = results.values(sides.reference_setting, column)
    seeds = [seed for seed in values if seed in others]
    mine = column.compared(column.ranked_as([values[seed] for seed in seeds], samples))
    theirs = column.compared(column.ranked_as([others[seed] for seed in seeds], samples))
    failures = sum(map(math.isinf, mine)), sum(map(math.isinf, theirs))

    # Tests of a fair sample, when all runs have ended
    biased = _biased(results, group, reference, column)
    missing = results.missing_at(group) + (results.missing_at(reference) if reference else 0)
    tested = not biased and not missing and not column.is_parameter
    paired = paired_difference(mine, theirs, test=tested)
    superiority = None
    if seeds and column.goal:
        superiority = Superiority(*better(mine, theirs, column.goal, test=tested))
    margin = _margin(column, [others[seed] for seed in seeds])
    p_equivalent = None
    if tested and margin and not any(failures):
        p_equivalent = equivalent([a - b for a, b in zip(mine, theirs, strict=True)], margin)
    family: Family = ""
    if column.ranked and reference and not biased:
        # With activations of the user, only these answer the study's question.
        in_question = not results.users or group.point in results.users
        family = "primary" if in_question and primary else "secondary"

    # Medians, and the published value
    middle = median(values.values()) if values else None
    other_middle = median(others.values()) if others else None
    point = group.point | (setting.tuned if setting else {})
    theirs_published = published(results.study, point, column)
    mean, sd = None, None
    if theirs_published and theirs_published.sd is not None:
        mean, sd = mean_and_sd(values.values()) or (None, None)
    stated = {**vars(column), "percent": column.in_percent, "samples": samples, "margin": margin}
    return Cell(
        **stated,
        n=len(values),
        diverged=setting is not None and any(results.has_diverged(run) for run in setting.runs),
        median=middle,
        interval=median_interval(values.values()) if values else None,
        mean=mean,
        sd=sd,
        published=theirs_published and theirs_published.value,
        published_sd=theirs_published and theirs_published.sd,
        difference=_beyond(column, theirs_published, middle, mean, len(values)),
        sampling_error=results.sampling_error(column, setting, middle) if setting else None,
        at_chance=column.failed(middle, samples),
        reference_at_chance=column.failed(other_middle, samples),
        primary=primary,
        learnt=column not in results.planned,
        biased=biased,
        family=family,
        pairs=len(seeds),
        missing=missing,
        failures=failures,
        paired=paired,
        better=superiority,
        decides="probability" if any(failures) else "mean",
        p=superiority.p if superiority and any(failures) else paired.p,
        p_holm=None,
        has_margin=column.margin is not None,
        p_equivalent=p_equivalent,
        values=values,
    )


def _beyond(
    column: Column, of_paper: PublishedValue | None, middle: float | None, mean: float | None, number: int
) -> float | None:
    """Return our median minus the published value, on the column's scale; our mean if the paper gives an sd."""
    if of_paper is None or middle is None:
        return None
    ours: float | None = middle
    if of_paper.sd is not None and number > 1:
        ours = mean
    if ours is None:  # a diverged run leaves no mean to compare
        return None
    here, there = column.compared([ours, of_paper.value])
    return here - there


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


def too_few_seeds(results: Results) -> str:
    """Return a line on what a design cannot decide whatever its runs give, with the fewest seeds that can.

    ``results`` need no values of runs. The line is empty if each family of comparisons can reach p < 0.05.
    """
    study = results.study
    if study.smoke:
        return ""

    # Find what each family of comparisons requires.
    table = table_of(results)
    required = dict[str, int]()
    for family in FAMILIES:
        correction = table.correction(family)
        fewest = pairs_needed(correction.strictness())
        if correction.comparisons and len(study.seeds) < fewest:
            required[f"from {fewest} seeds on for {correction.text()} ({family})"] = fewest
    if not required:
        return ""

    most = max(required.values())
    remedy = study.more_seeds.format(most)
    use = f" Use at least {remedy}." if remedy else ""
    return (
        f"seeds: expected at least {most} for a verdict on each comparison, got {len(study.seeds)}. "
        f"A difference of means can reach p < {LEVEL} after Holm's correction {', '.join(required)}.{use}"
    )
