"""Make the table of a study: groups at their selected settings, published values, tests against the reference.

The comparisons of the primary column with the reference form one family of hypotheses, all others a
second one; p-values are corrected within each (`actlab.analysis.verdict` says what they decide).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from actlab.analysis import columns as of_study
from actlab.analysis import costs, notes, parameters, samples, selection, verdict
from actlab.analysis.columns import Column
from actlab.analysis.differences import better, equivalent, paired_difference
from actlab.analysis.looks import factor
from actlab.analysis.results import Results
from actlab.analysis.statistics import (
    LEVEL,
    holm,
    mean_and_sd,
    median,
    median_interval,
    pairs_needed,
)
from actlab.analysis.study_table import FAMILIES, Cell, Row, StudyTable
from actlab.config.labels import in_full
from actlab.config.values import same, shareable
from actlab.errors.messages import unknown
from actlab.studies.formats import Timed
from actlab.studies.groups import Group, Setting, by_key
from actlab.studies.plan import Study
from actlab.studies.points import Point
from actlab.studies.states import DIVERGED


@dataclass(frozen=True)
class _Asked:
    """A column of the table."""

    column: Column
    samples: int | None  # number of samples of a share
    primary: bool
    learnt: bool  # whether it is a learnt parameter that the study's file does not list


def table_of(results: Results) -> StudyTable:
    """Return the comparison of a study: a row per group, in the order of the study's file, and what it says."""
    table = _without_sentences(results)

    # What the rows say, in sentences
    table = replace(table, verdicts=tuple(verdict.verdicts(table)))
    summary = verdict.lines(table, results)
    learnt = parameters.lines(results)
    remarks = notes.remarks(table, results)
    return replace(table, summary=tuple(summary), parameters=tuple(learnt), remarks=tuple(remarks))


def _without_sentences(results: Results) -> StudyTable:
    study = results.study
    check_reference(study, [group.point for group in results.groups])
    rows = _corrected(_rows(results), results.looks)

    # What the runs that have ended were made with
    ended = results.results.values()
    versions = by_key(
        dict.fromkeys(pair for result in ended for pair in result["versions"].items())
    )
    hardware = dict.fromkeys(result["hardware"] for result in ended if "hardware" in result)

    return StudyTable(
        study=study.name,
        title=study.title,
        compare=study.compare,
        reference=in_full(shareable(study.reference)),
        own=_users(study, rows),
        sources=_sources(results),
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
        rows=rows,
        notes=tuple(study.notes),
    )


def _users(study: Study, rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the user's activations in full."""
    own = dict[str, None]()
    for row in rows:
        for key, value in row.point.items():
            if study.is_own(key, value):
                own[in_full(shareable(value))] = None
    return tuple(own)


def _sources(results: Results) -> dict[str, str]:
    """Return the digests of the code of users' activations in the runs that have ended."""
    sources: dict[str, str] = {}
    for run in results.runs:
        if run.id in results.results:
            sources |= {str(shareable(name)): digest for name, digest in run.sources.items()}
    return sources


def _rows(results: Results) -> list[Row]:
    """Return the rows, with p-values that are not corrected."""
    study, columns = results.study, []
    primary = of_study.primary(study, results.planned)
    for column in results.columns:
        number = samples.number_of(results, column)
        columns.append(_Asked(column, number, column == primary, column not in results.planned))

    # Each group alone
    timed = costs.timed(costs.read(results.folder)[0])
    rows = [_row(results, group, columns, timed) for group in results.groups]

    # The reference of each point of the other keys
    references: dict[Point, Row] = {}
    for row in rows:
        if same(row.point.get(study.compare), study.reference):
            references.setdefault(row.point.without([study.compare]), row)

    # With activations of the user, only these answer the study's question
    own = [study.is_own(study.compare, row.point.get(study.compare)) for row in rows]
    compared = []
    for row, is_own in zip(rows, own, strict=True):
        reference = references.get(row.point.without([study.compare]))
        if reference:
            in_question = is_own or not any(own)
            row = _beside(study, columns, row, reference, in_question)
        compared.append(row)
    return compared


def _row(results: Results, group: Group, columns: Sequence[_Asked], timed: Sequence[Timed]) -> Row:
    """Return the row of a group at its selected setting, which is not compared with another."""
    study = results.study
    setting = selection.chosen(results, group)
    missing = selection.missing_at(results, group)
    cells = [_cell(results, asked, group, setting, missing) for asked in columns]

    # The first setting stands for all until a run has ended
    shown = setting or group.settings[0]
    tuned = setting.tuned if setting else Point({})
    ended = [results.results[run.id]["status"] for run in shown.runs if run.id in results.results]
    diverged = ended.count(DIVERGED)
    return Row(
        point=group.point,
        chosen=tuned,
        edges=study.edges.get(group.point) or group.edges(tuned),
        choice=selection.choice_at(results, group),
        settings=study.tried.get(group.point, len(group.settings)),
        planned=len(shown.runs),
        finished=len(ended) - diverged,
        diverged=diverged,
        provisional=len(group.settings) > 1 and missing > 0,
        cost=costs.of_setting(timed, group, shown),
        columns=tuple(cells),
    )


def _cell(
    results: Results, asked: _Asked, group: Group, setting: Setting | None, missing: int
) -> Cell:
    """Return a cell without a comparison."""
    column, number, point = asked.column, asked.samples, group.point
    values: dict[int, float] = {}
    middle = interval = error = None
    diverged = False
    if setting:
        point |= setting.tuned
        values = results.values(setting, column)
        diverged = any(results.has_diverged(run) for run in setting.runs)
        if values:
            middle = median(values.values())
            interval = median_interval(values.values())
        error = samples.error_of(results, column, setting, middle, number)

    stated = {**vars(column), "percent": column.in_percent, "samples": number, "margin": None}
    cell = Cell(
        **stated,
        n=len(values),
        diverged=diverged,
        median=middle,
        interval=interval,
        sampling_error=error,
        at_chance=column.failed(middle, number),
        primary=asked.primary,
        learnt=asked.learnt,
        missing=missing,
        has_margin=column.margin is not None,
        values=values,
    )
    entry = published(results.study, point, column)
    return _beside_published(cell, float(entry["value"]), entry.get("sd")) if entry else cell


def _beside_published(cell: Cell, value: float, sd: float | None) -> Cell:
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
    return replace(
        cell, mean=mean, sd=our_sd, published=value, published_sd=sd, difference=difference
    )


def _beside(
    study: Study, columns: Sequence[_Asked], row: Row, reference: Row, in_question: bool
) -> Row:
    """Return a row compared with the row of the reference, which is compared in its costs only."""
    cost = row.cost
    if cost:
        cost = costs.relative(cost, reference.cost)
    if row is reference:
        return replace(row, cost=cost)

    tried, cells = max(row.settings, reference.settings), []
    for asked, cell, other in zip(columns, row.columns, reference.columns, strict=True):
        biased = _is_biased(study, asked.column, tried)
        cell = _compared(asked.column, cell, other, biased)
        if cell.ranked and not biased:
            is_primary = in_question and cell.primary
            cell = replace(cell, family="primary" if is_primary else "secondary")
        cells.append(cell)
    return replace(row, reference_settings=reference.settings, cost=cost, columns=tuple(cells))


def _compared(column: Column, cell: Cell, reference: Cell, biased: bool) -> Cell:
    """Return a cell compared with the reference's, which is tested when all runs have ended."""
    others = {} if column.is_parameter else reference.values

    # Pair the runs by seed
    seeds = [seed for seed in cell.values if seed in others]
    mine = _ranked(cell, seeds)
    theirs = _ranked(reference, seeds)
    failures = sum(map(math.isinf, mine)), sum(map(math.isinf, theirs))
    fails = any(failures)

    # Test a fair sample
    missing = cell.missing + reference.missing
    tested = not biased and not missing and not column.is_parameter
    paired = paired_difference(mine, theirs, test=tested)
    won = None
    if seeds and column.goal:
        won = better(mine, theirs, column.goal, test=tested)
    margin = _margin(column, [others[seed] for seed in seeds])
    p_equivalent = None
    if tested and margin and not fails:
        p_equivalent = equivalent([a - b for a, b in zip(mine, theirs, strict=True)], margin)

    return replace(
        cell,
        biased=biased,
        pairs=len(seeds),
        missing=missing,
        failures=failures,
        paired=paired,
        better=won,
        decides="probability" if fails else "mean",
        p=won.p if won and fails else paired.p,
        margin=margin,
        p_equivalent=p_equivalent,
        reference_at_chance=bool(others) and reference.at_chance,
    )


def _ranked(cell: Cell, seeds: Iterable[int]) -> list[float]:
    """Return the values of some seeds on the scale of differences, with the worst value for failed runs."""
    values = [cell.values[seed] for seed in seeds]
    return cell.compared(cell.ranked_as(values, cell.samples))


def _margin(column: Column, theirs: Sequence[float]) -> float | None:
    if column.margin is None or not theirs:
        return None
    scale = abs(median(theirs)) if column.relative else 1.0
    return column.margin * scale if 0 < scale < math.inf else None


def _is_biased(study: Study, column: Column, tried: int) -> bool:
    """Return whether the values of a column are the best of several epochs or settings."""
    # An earlier stage chose
    fresh = bool(study.chosen_on) and study.chosen_on.isdisjoint(study.seeds)
    if column.at == "best" and column.split == "test":
        return True
    # Each metric, not only the one that chose
    return tried > 1 and not fresh and column.split == "val"


def _corrected(rows: Sequence[Row], looks: int) -> tuple[Row, ...]:
    """Return the rows with p-values corrected within each family, and for earlier looks."""
    corrected: dict[int, Cell] = {}
    for family in FAMILIES:
        cells = [cell for row in rows for cell in row.columns if cell.family == family]
        ps = holm([cell.p for cell in cells])
        for cell, p in zip(cells, ps, strict=True):
            corrected[id(cell)] = replace(cell, p_holm=_after_looks(p, looks))

        # Equivalence is tested in the cells with a margin
        with_margin = [cell for cell in cells if cell.has_margin]
        ps = holm([cell.p_equivalent for cell in with_margin])
        for cell, p in zip(with_margin, ps, strict=True):
            both = corrected[id(cell)]
            corrected[id(cell)] = replace(both, p_equivalent_holm=_after_looks(p, looks))

    found = []
    for row in rows:
        cells = [corrected.get(id(cell), cell) for cell in row.columns]
        found.append(replace(row, columns=tuple(cells)))
    return tuple(found)


def _after_looks(p: float | None, looks: int) -> float | None:
    return p and min(1.0, p * factor(looks))


def published(study: Study, point: Point, column: Column) -> Mapping[str, Any] | None:
    """Return the entry of the published value of a column at a grid point; None if the paper gives none."""
    check_published(study)
    # Of runs of another length than the paper's, only values at a given epoch are comparable; on
    # samples, none.
    if study.samples or (study.cut and not isinstance(column.at, int | float)):
        return None
    wanted = (column.metric, column.at, column.condition)
    entries = [entry for entry in study.published.get("values", ()) if _place_of(entry) == wanted]
    fits = [entry for entry in entries if point.matches(entry.get("where", {}))]
    # The most specific one
    return max(fits, key=lambda entry: len(entry.get("where", {})), default=None)


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
        raise unknown(
            "reference", in_full(study.reference), dict.fromkeys(map(in_full, values)), remedy
        )


def too_few_seeds(results: Results) -> str:
    """Return a line on what a design cannot decide whatever its runs give, with the fewest seeds that can.

    ``results`` need no values of runs. The line is empty if each family of comparisons can reach p
    < 0.05.
    """
    study = results.study
    if study.smoke:
        return ""

    # Find what each family of comparisons requires.
    table = _without_sentences(results)
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
