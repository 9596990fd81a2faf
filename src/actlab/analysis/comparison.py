"""Make the table of a study from its results.

The table compares groups at their selected settings with published values and with the reference.
The comparisons of the primary column form one family of hypotheses, all others a second family.
P-values are corrected within each family; `actlab.analysis.verdict` says what they decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from actlab.analysis import costs, notes, parameters, samples, selection, verdict
from actlab.analysis.columns import Column, primary
from actlab.analysis.differences import (
    Superiority,
    better,
    deciding,
    equivalent,
    paired_difference,
)
from actlab.analysis.looks import factor
from actlab.analysis.published import published_entry, with_published
from actlab.analysis.results import Results
from actlab.analysis.statistics import (
    LEVEL,
    holm,
    median,
    median_interval,
    runs_needed,
)
from actlab.analysis.study_table import (
    FAMILIES,
    Cell,
    Correction,
    Family,
    Row,
    StudyTable,
)
from actlab.config.labels import in_full
from actlab.config.values import same, shareable
from actlab.errors.messages import unknown
from actlab.studies.formats import Timed
from actlab.studies.groups import Group, Setting
from actlab.studies.plan import Study
from actlab.studies.points import Point


@dataclass(frozen=True)
class _TableColumn:
    """A column of the table, with what its cells share."""

    column: Column
    samples: int | None  # number of samples of a share
    is_primary: bool
    # Whether it is a learnt parameter that the study's file does not list.
    is_extra: bool


def table_of(results: Results) -> StudyTable:
    """Return the comparison of a study, with a row for each group in the order of its file."""
    table = _without_sentences(results)

    # The sentences need the rows, and the summary needs the verdicts.
    table = replace(table, verdicts=tuple(verdict.verdicts(table)))
    summary = verdict.lines(table, results)
    learnt = parameters.lines(results)
    remarks = notes.remarks(table, results)
    return replace(
        table, summary=tuple(summary), parameters=tuple(learnt), remarks=tuple(remarks)
    )


def _without_sentences(results: Results) -> StudyTable:
    """Return the table with its numbers, but without verdicts, summary, parameters and remarks."""
    # Compute the rows.
    study = results.study
    check_reference(study, [group.point for group in results.groups])
    rows = _corrected(_rows(results), results.looks)

    # Collect the versions and the hardware of the runs that have ended.
    versions: dict[str, dict[str, None]] = {}
    hardware: dict[str, None] = {}
    for result in results.results.values():
        for name, version in result["versions"].items():
            versions.setdefault(name, {})[version] = None
        if "hardware" in result:
            hardware[result["hardware"]] = None

    # The verdicts follow from this table later
    return StudyTable(
        study=study.name,
        title=study.title,
        compare=study.compare,
        reference=in_full(shareable(study.reference)),
        own=_user_activations(study, rows),
        sources=_sources(results),
        looks=results.looks,
        planned=len(results.runs),
        finished=results.finished,
        diverged=results.diverged,
        seeds=study.seeds,
        versions={name: tuple(numbers) for name, numbers in versions.items()},
        hardware=tuple(hardware),
        published=study.published.get("source"),
        cut=study.other_length,
        samples=study.samples,
        tuned=tuple(study.select.tune),
        tried=bool(study.select.tune or study.tried),
        verdicts=(),
        rows=rows,
        notes=tuple(study.notes),
    )


def _user_activations(study: Study, rows: Iterable[Row]) -> tuple[str, ...]:
    """Return the user's activations in full."""
    activations: dict[str, None] = {}
    for row in rows:
        for key, value in row.point.items():
            if study.is_own(key, value):
                activations[in_full(shareable(value))] = None
    return tuple(activations)


def _sources(results: Results) -> dict[str, str]:
    """Return the digests of the code of users' activations in the runs that have ended."""
    sources: dict[str, str] = {}
    for run in results.runs:
        if run.id in results.results:
            for name, digest in run.sources.items():
                sources[str(shareable(name))] = digest
    return sources


def _rows(results: Results) -> list[Row]:
    """Return the rows, with p-values that are not corrected."""
    # Describe each group alone.
    study = results.study
    columns = _table_columns(results)
    entries, _ = costs.read(results.folder)
    timed = costs.timed(entries)
    rows = [_row(results, group, columns, timed) for group in results.groups]

    # Find the reference at each point of the other keys.
    references: dict[Point, Row] = {}
    for row in rows:
        if same(row.point.get(study.compare), study.reference):
            references.setdefault(row.point.without([study.compare]), row)

    # If there are activations of the user, only these answer the study's question.
    user_flags = [
        study.is_own(study.compare, row.point.get(study.compare)) for row in rows
    ]
    has_user = any(user_flags)

    # Compare each group with its reference.
    compared = []
    for row, is_user in zip(rows, user_flags, strict=True):
        reference = references.get(row.point.without([study.compare]))
        if reference:
            answers = is_user or not has_user
            row = _compared_row(study, columns, row, reference, answers)
        compared.append(row)
    return compared


def _table_columns(results: Results) -> list[_TableColumn]:
    """Return the columns of a study's table."""
    main = primary(results.study, results.planned)
    columns = []
    for column in results.columns:
        table_column = _TableColumn(
            column=column,
            samples=samples.number_of(results, column),
            is_primary=column == main,
            is_extra=column not in results.planned,
        )
        columns.append(table_column)
    return columns


def _row(
    results: Results,
    group: Group,
    columns: Sequence[_TableColumn],
    timed: Sequence[Timed],
) -> Row:
    """Return the row of a group at its selected setting, which is not compared with another."""
    study = results.study

    # Read the cells at the selected setting.
    setting = selection.selected_setting(results, group)
    missing = selection.missing_at(results, group)
    cells = [_cell(results, column, group, setting, missing) for column in columns]

    # The row shows the first setting until a run has ended.
    tuned = Point({})
    if setting:
        tuned = setting.tuned
    row_setting = setting or group.settings[0]

    # Count its runs.
    finished = diverged = 0
    for run in row_setting.runs:
        if results.has_diverged(run):
            diverged += 1
        elif run.id in results.results:
            finished += 1

    # Edges and settings of an earlier stage take precedence
    return Row(
        point=group.point,
        chosen=tuned,
        edges=study.edges.get(group.point) or group.edges(tuned),
        choice=selection.choice_at(results, group),
        settings=study.tried.get(group.point, len(group.settings)),
        planned=len(row_setting.runs),
        finished=finished,
        diverged=diverged,
        provisional=len(group.settings) > 1 and missing > 0,
        cost=costs.of_setting(timed, group, row_setting),
        columns=tuple(cells),
    )


def _cell(
    results: Results,
    table_column: _TableColumn,
    group: Group,
    setting: Setting | None,
    missing: int,
) -> Cell:
    """Return a cell without a comparison."""
    column = table_column.column
    number = table_column.samples
    point = group.point

    # Read the values at the selected setting.
    values: dict[int, float] = {}
    diverged = False
    if setting:
        point |= setting.tuned
        values = results.values(setting, column)
        diverged = any(map(results.has_diverged, setting.runs))

    # Summarise them.
    middle = interval = error = None
    if values:
        middle = median(values.values())
        interval = median_interval(values.values())
    if setting:
        error = samples.error_of(results, column, setting, middle, number)

    # The margin in the unit of the values follows from the reference.
    stated = {
        **vars(column),
        "percent": column.in_percent,
        "samples": number,
        "margin": None,
    }
    cell = Cell(
        **stated,
        n=len(values),
        diverged=diverged,
        median=middle,
        interval=interval,
        sampling_error=error,
        at_chance=column.failed(middle, number),
        primary=table_column.is_primary,
        learnt=table_column.is_extra,
        missing=missing,
        has_margin=column.margin is not None,
        values=values,
    )

    # Compare it with the paper.
    entry = published_entry(results.study, point, column)
    if entry is None:
        return cell
    return with_published(cell, float(entry["value"]), entry.get("sd"))


def _compared_row(
    study: Study,
    columns: Sequence[_TableColumn],
    row: Row,
    reference: Row,
    answers: bool,
) -> Row:
    """Return a row compared with the row of the reference.

    Args:
        study: the study.
        columns: the columns of the table.
        row: the row; the reference itself is compared in its costs only.
        reference: the row of the reference, at the same point of the other keys.
        answers: whether the row answers the study's question, so that its tests may be primary.
    """
    # Compare the costs.
    cost = row.cost
    if cost:
        cost = costs.relative(cost, reference.cost)
    if row is reference:
        return replace(row, cost=cost)

    # Compare each cell.
    tried = max(row.settings, reference.settings)
    cells = []
    for table_column, cell, other_cell in zip(
        columns, row.columns, reference.columns, strict=True
    ):
        biased = _is_biased(study, table_column.column, tried)
        cell = _compared(table_column.column, cell, other_cell, biased)

        # Only a fair sample of ranked values belongs to a family.
        if cell.ranked and not biased:
            family: Family = "secondary"
            if answers and cell.primary:
                family = "primary"
            cell = replace(cell, family=family)
        cells.append(cell)
    return replace(
        row, reference_settings=reference.settings, cost=cost, columns=tuple(cells)
    )


def _compared(column: Column, cell: Cell, reference: Cell, biased: bool) -> Cell:
    """Return a cell compared with the reference's, which is tested when all runs have ended."""
    reference_values = reference.values
    if column.is_parameter:
        reference_values = {}  # a parameter of the same name may be another quantity

    # Pair the runs by seed.
    seeds = [seed for seed in cell.values if seed in reference_values]
    values = _ranked(cell, seeds)
    other_values = _ranked(reference, seeds)

    # Count the failed runs of each side.
    failures = sum(map(math.isinf, values)), sum(map(math.isinf, other_values))

    # Test the mean difference and the probability, if the sample is fair and complete.
    missing = cell.missing + reference.missing
    tested = not biased and not missing and not column.is_parameter
    paired = paired_difference(values, other_values, test=tested)
    superiority = None
    if seeds and column.goal:
        superiority = better(values, other_values, column.goal, test=tested)

    # Test equivalence; a failed run leaves no mean.
    margin = _margin(column, [reference_values[seed] for seed in seeds])
    p_equivalent = None
    if tested and margin and not any(failures):
        differences = [a - b for a, b in zip(values, other_values, strict=True)]
        p_equivalent = equivalent(differences, margin)

    # Decide without a correction, which needs the whole family
    compared = replace(
        cell,
        biased=biased,
        pairs=len(seeds),
        missing=missing,
        failures=failures,
        paired=paired,
        better=superiority,
        margin=margin,
        p_equivalent=p_equivalent,
        reference_at_chance=bool(reference_values) and reference.at_chance,
    )
    return _decided(compared)


def _decided(cell: Cell, hypotheses: int = 1) -> Cell:
    """Return a compared cell with the quantity that decides, and its p-value."""
    quantity = deciding(cell.pairs, hypotheses, any(cell.failures))
    p = cell.paired.p
    if quantity == "probability":
        superiority = cell.better or Superiority()
        p = superiority.p
    return replace(cell, decides=quantity, p=p)


def _ranked(cell: Cell, seeds: Iterable[int]) -> list[float]:
    """Return the values of some seeds on the scale of differences.

    Failed runs have the worst value.
    """
    values = [cell.values[seed] for seed in seeds]
    ranked = cell.ranked_as(values, cell.samples)
    return cell.compared(ranked)


def _margin(column: Column, reference_values: Sequence[float]) -> float | None:
    """Return the margin in the unit of the values; None without one, or without a finite median."""
    if column.margin is None or not reference_values:
        return None
    scale = 1.0
    if column.relative:
        scale = abs(median(reference_values))
    if not 0 < scale < math.inf:
        return None
    return column.margin * scale


def _is_biased(study: Study, column: Column, tried: int) -> bool:
    """Return whether the values of a column are the best of several epochs or settings."""
    # The best epoch was selected on the test set.
    if column.at == "best" and column.split == "test":
        return True

    # Validation selected a setting, unless an earlier stage did on other seeds. This
    # biases each metric of validation, not only the one that selected.
    is_fresh = bool(study.chosen_on) and study.chosen_on.isdisjoint(study.seeds)
    return tried > 1 and not is_fresh and column.split == "val"


def _corrected(rows: Sequence[Row], looks: int) -> tuple[Row, ...]:
    """Return the rows with p-values corrected within each family, and for earlier looks."""
    # Corrected cells by id; cells without a family have none
    corrected: dict[int, Cell] = {}

    # Collect the cells of each family
    for family in FAMILIES:
        cells = []
        for row in rows:
            for cell in row.columns:
                if cell.family == family:
                    cells.append(cell)

        # Correct the tests of a difference.
        strictness = Correction(family, len(cells), looks=looks).strictness()
        decided = [_decided(cell, strictness) for cell in cells]
        ps = holm([cell.p for cell in decided])
        for cell, decided_cell, p in zip(cells, decided, ps, strict=True):
            corrected[id(cell)] = replace(decided_cell, p_holm=_after_looks(p, looks))

        # Correct the tests of equivalence, which only cells with a margin have.
        with_margin = [cell for cell in cells if cell.has_margin]
        ps = holm([cell.p_equivalent for cell in with_margin])
        for cell, p in zip(with_margin, ps, strict=True):
            tested = corrected[id(cell)]
            corrected[id(cell)] = replace(
                tested, p_equivalent_holm=_after_looks(p, looks)
            )

    # Put the cells into their rows.
    corrected_rows = []
    for row in rows:
        columns = tuple(corrected.get(id(cell), cell) for cell in row.columns)
        corrected_rows.append(replace(row, columns=columns))
    return tuple(corrected_rows)


def _after_looks(p: float | None, looks: int) -> float | None:
    if p is None:
        return None
    return min(1.0, p * factor(looks))


def check_reference(study: Study, points: Iterable[Point]) -> None:
    """Raise an ActlabError for a requested reference that is at no point of the grid."""
    # The default may be missing.
    is_requested = study.reference_given or study.reference != Study.reference
    if not is_requested:
        return

    values = [point.get(study.compare) for point in points]
    if not any(same(value, study.reference) for value in values):
        names = dict.fromkeys(map(in_full, values))
        remedy = f"'reference' names a value of {study.compare}."
        raise unknown("reference", in_full(study.reference), names, remedy)


def too_few_seeds(results: Results) -> str:
    """Return a line on what a design cannot decide whatever its runs give.

    The line names the fewest seeds that can decide it. It is empty if each family of comparisons
    can reach p < 0.05.

    Args:
        results: the study; its runs need no values.
    """
    # Smoke runs have no verdicts, so any number is enough
    study = results.study
    if study.smoke:
        return ""

    # Find what each family of comparisons requires.
    table = _without_sentences(results)
    required: dict[str, int] = {}
    for family in FAMILIES:
        correction = table.correction(family)
        fewest = runs_needed(correction.strictness())
        if correction.comparisons and len(study.seeds) < fewest:
            required[f"from {fewest} seeds on for {correction.text()} ({family})"] = (
                fewest
            )
    if not required:
        return ""

    # Name the seeds, and how to set them.
    seeds = max(required.values())
    text = (
        f"seeds: expected at least {seeds} for a verdict on each comparison, got "
        f"{len(study.seeds)}. A comparison can reach p < {LEVEL} after Holm's correction "
        f"{', '.join(required)}."
    )
    remedy = study.more_seeds.format(seeds)
    if remedy:
        text += f" Use at least {remedy}."
    return text
