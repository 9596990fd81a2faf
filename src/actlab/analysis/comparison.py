"""Make the table of a study: groups at their selected settings, published values, tests against the reference.

The comparisons of the primary column with the reference form one family of hypotheses, all others a second one;
p-values are corrected within each (`actlab.analysis.verdict` says what they decide).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from actlab.analysis import columns as of_study
from actlab.analysis import costs, notes, parameters, samples, selection, verdict
from actlab.analysis.choice import Choice
from actlab.analysis.columns import Column
from actlab.analysis.differences import better, equivalent, paired_difference
from actlab.analysis.looks import factor
from actlab.analysis.results import Results
from actlab.analysis.statistics import LEVEL, holm, mean_and_sd, median, median_interval, pairs_needed
from actlab.analysis.study_table import FAMILIES, Cell, Family, Row, StudyTable, Superiority
from actlab.config.keys import by_key
from actlab.config.values import in_full, same, shareable
from actlab.errors import unknown
from actlab.studies.folders import DIVERGED
from actlab.studies.formats import Timed
from actlab.studies.groups import Group, Setting
from actlab.studies.plan import Study
from actlab.studies.points import Point


@dataclass(frozen=True)
class _Place:
    """A group at its selected setting."""

    group: Group
    setting: Setting | None  # None until a run has ended
    choice: Choice | None
    tried: int  # number of settings, in this stage or an earlier one
    missing: int  # runs of all settings that have not ended
    cost: Timed | None
    own: bool  # whether the compared value is an activation of the user


@dataclass(frozen=True)
class _Asked:
    """A column of the table."""

    column: Column
    samples: int | None
    primary: bool
    learnt: bool


def table_of(results: Results) -> StudyTable:
    """Return the comparison of a study: a row per group, in the order of the study's file, and what it says."""
    study = results.study
    check_reference(study, [group.point for group in results.groups])
    rows = _rows(results)

    # The user's activations, and the code of the runs that have ended
    own = dict[str, None]()
    for row in rows:
        for key, value in row.point.items():
            if study.is_own(key, value):
                own[in_full(shareable(value))] = None
    sources: dict[str, str] = {}
    for run in results.runs:
        if run.id in results.results:
            sources |= {str(shareable(name)): digest for name, digest in run.sources.items()}

    # What they were run with
    made = results.results.values()
    versions = by_key(dict.fromkeys(pair for result in made for pair in result["versions"].items()))
    hardware = dict.fromkeys(result["hardware"] for result in made if "hardware" in result)

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
        hardware=tuple(hardware),
        published=study.published.get("source"),
        cut=study.cut,
        samples=study.samples,
        tuned=tuple(study.select.tune),
        tried=bool(study.select.tune or study.tried),
        verdicts=(),
        rows=tuple(_corrected(rows, results.looks)),
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


def _rows(results: Results) -> list[Row]:
    """Return the rows, with p-values that are not corrected."""
    study = results.study
    timed = costs.timed(costs.read(results.folder)[0])
    places = [_place(results, group, timed) for group in results.groups]
    with_users = any(place.own for place in places)

    # Columns
    primary = of_study.primary(study, results.planned)
    asked = []
    for column in results.columns:
        number = samples.number_of(results, column)
        asked.append(_Asked(column, number, column == primary, column not in results.planned))

    # The reference of each point of the other keys
    references: dict[Point, _Place] = {}
    for place in places:
        if same(place.group.point.get(study.compare), study.reference):
            references.setdefault(place.group.point.without([study.compare]), place)

    rows = []
    for place in places:
        reference = references.get(place.group.point.without([study.compare]))
        # With activations of the user, only these answer the study's question.
        in_question = place.own or not with_users
        rows.append(_row(results, asked, place, reference, in_question))
    return rows


def _place(results: Results, group: Group, timed: Sequence[Timed]) -> _Place:
    setting, study = selection.chosen(results, group), results.study
    return _Place(
        group,
        setting,
        choice=selection.choice_at(results, group),
        tried=study.tried.get(group.point, len(group.settings)),
        missing=selection.missing_at(results, group),
        cost=costs.of_setting(timed, group, setting or group.settings[0]),
        own=study.is_own(study.compare, group.point.get(study.compare)),
    )


def _row(
    results: Results, asked: Sequence[_Asked], place: _Place, reference: _Place | None, in_question: bool
) -> Row:
    setting, group = place.setting or place.group.settings[0], place.group
    tuned = setting.tuned if place.setting else Point({})
    ended = [results.results[run.id]["status"] for run in setting.runs if run.id in results.results]
    other = None if reference is place else reference

    cost: Mapping[str, Any] | None = place.cost
    if place.cost and reference:
        cost = costs.relative(place.cost, reference.cost)

    # Compare with the reference, except the reference itself
    cells = []
    for of_column in asked:
        cell = _cell(results, of_column, place)
        if other:
            cell = _compared(results, of_column, cell, place, other, in_question)
        cells.append(cell)
    return Row(
        point=group.point,
        chosen=tuned,
        edges=results.study.edges.get(group.point) or group.edges(tuned),
        choice=place.choice,
        settings=place.tried,
        reference_settings=other.tried if other else None,
        planned=len(setting.runs),
        finished=len(ended) - ended.count(DIVERGED),
        diverged=ended.count(DIVERGED),
        provisional=len(group.settings) > 1 and place.missing > 0,
        cost=cost,
        columns=tuple(cells),
    )


def _cell(results: Results, asked: _Asked, place: _Place) -> Cell:
    """Return a cell without a comparison."""
    column, setting, number = asked.column, place.setting, asked.samples
    values = results.values(setting, column) if setting else {}
    middle = median(values.values()) if values else None
    stated = {**vars(column), "percent": column.in_percent, "samples": number, "margin": None}
    cell = Cell(
        **stated,
        n=len(values),
        diverged=setting is not None and any(results.has_diverged(run) for run in setting.runs),
        median=middle,
        interval=median_interval(values.values()) if values else None,
        sampling_error=samples.error_of(results, column, setting, middle, number) if setting else None,
        at_chance=column.failed(middle, number),
        primary=asked.primary,
        learnt=asked.learnt,
        missing=place.missing,
        has_margin=column.margin is not None,
        values=values,
    )

    # The published value
    point = place.group.point | (setting.tuned if setting else {})
    entry = published(results.study, point, column)
    return _beside(cell, float(entry["value"]), entry.get("sd")) if entry else cell


def _beside(cell: Cell, value: float, sd: float | None) -> Cell:
    """Return a cell with a published value, which is a mean if the paper gives a standard deviation."""
    ours, mean, our_sd = cell.median, None, None
    if sd is not None:
        mean, our_sd = mean_and_sd(cell.values.values()) or (None, None)
        if cell.n > 1:  # a diverged run leaves no mean to compare
            ours = mean
    difference = None
    if ours is not None:
        here, there = cell.compared([ours, value])
        difference = here - there
    return replace(cell, mean=mean, sd=our_sd, published=value, published_sd=sd, difference=difference)


def _compared(
    results: Results, asked: _Asked, cell: Cell, place: _Place, reference: _Place, in_question: bool
) -> Cell:
    """Return a cell with its comparison with the reference, which is tested when all runs have ended."""
    column, study = asked.column, results.study
    others: dict[int, float] = {}
    if reference.setting and not column.is_parameter:
        others = results.values(reference.setting, column)

    # Pair the runs by seed
    seeds = [seed for seed in cell.values if seed in others]
    theirs = [others[seed] for seed in seeds]
    mine = column.compared(column.ranked_as([cell.values[seed] for seed in seeds], cell.samples))
    beside = column.compared(column.ranked_as(theirs, cell.samples))
    failures = sum(map(math.isinf, mine)), sum(map(math.isinf, beside))

    # Test a fair sample
    biased = _is_biased(study, column, max(place.tried, reference.tried))
    missing = place.missing + reference.missing
    tested = not biased and not missing and not column.is_parameter
    paired = paired_difference(mine, beside, test=tested)
    won = Superiority(*better(mine, beside, column.goal, test=tested)) if seeds and column.goal else None
    margin, p_equivalent = _margin(column, theirs), None
    if tested and margin and not any(failures):
        p_equivalent = equivalent([a - b for a, b in zip(mine, beside, strict=True)], margin)

    family: Family = ""
    if column.ranked and not biased:
        family = "primary" if in_question and cell.primary else "secondary"
    return replace(
        cell,
        biased=biased,
        family=family,
        pairs=len(seeds),
        missing=missing,
        failures=failures,
        paired=paired,
        better=won,
        decides="probability" if any(failures) else "mean",
        p=won.p if won and any(failures) else paired.p,
        margin=margin,
        p_equivalent=p_equivalent,
        reference_at_chance=column.failed(median(others.values()) if others else None, cell.samples),
    )


def _margin(column: Column, theirs: Sequence[float]) -> float | None:
    if column.margin is None or not theirs:
        return None
    scale = abs(median(theirs)) if column.relative else 1.0
    return column.margin * scale if 0 < scale < math.inf else None


def _is_biased(study: Study, column: Column, tried: int) -> bool:
    """Return whether the values of a column are the best of several epochs or settings."""
    fresh = bool(study.chosen_on) and study.chosen_on.isdisjoint(study.seeds)  # an earlier stage chose
    if column.at == "best" and column.split == "test":
        return True
    return tried > 1 and not fresh and column.split == "val"  # each metric, not only the one that chose


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


def published(study: Study, point: Point, column: Column) -> Mapping[str, Any] | None:
    """Return the entry of the published value of a column at a grid point; None if the paper gives none."""
    check_published(study)
    # Of runs of another length than the paper's, only values at a given epoch are comparable; on samples, none.
    if study.samples or (study.cut and not isinstance(column.at, int | float)):
        return None
    wanted = (column.metric, column.at, column.condition)
    entries = [entry for entry in study.published.get("values", ()) if _place_of(entry) == wanted]
    fits = [entry for entry in entries if point.matches(entry.get("where", {}))]
    return max(fits, key=lambda entry: len(entry.get("where", {})), default=None)  # the most specific one


def check_published(study: Study) -> None:
    """Raise an ActlabError for a published value at an unknown grid key, or that no table column shows."""
    shown = [_place_of(entry) for entry in study.table]
    for entry in study.published.get("values", ()):
        for key in entry.get("where", {}):
            if key not in study.keys:
                where = f"In 'where' of a published value of {study.name}."
                raise unknown("grid key", str(key), study.keys, where)
        if (place := _place_of(entry)) not in shown:
            words = [" ".join(map(str, filter(None, place))) for place in (place, *shown)]
            remedy = "These are the table's columns, as metric, at and condition."
            raise unknown("column of a published value", words[0], words[1:], remedy)


def _place_of(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return entry["metric"], entry.get("at", "last"), entry.get("condition", "")


def check_reference(study: Study, points: Iterable[Point]) -> None:
    """Raise an ActlabError for a requested reference that is at no point of the grid."""
    values = [point.get(study.compare) for point in points]
    asked = study.reference_given or study.reference != Study.reference
    if asked and not any(same(value, study.reference) for value in values):
        remedy = f"'reference' names a value of {study.compare}."
        raise unknown("reference", in_full(study.reference), dict.fromkeys(map(in_full, values)), remedy)


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
