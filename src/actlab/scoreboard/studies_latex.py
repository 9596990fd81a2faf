"""LaTeX tables of several studies, from the primary column of each ``table.json``.

The first table has medians and tests of each study. The second one compares the activations over
studies; there is none if no reference is in several studies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actlab.analysis.statistics import FEWEST
from actlab.analysis.study_table import Cell, StudyTable
from actlab.analysis.wording import joined, plural
from actlab.reports import latex
from actlab.reports.tables import interval, mean_difference, number, p_values
from actlab.scoreboard.studies_overview import overviews
from actlab.scoreboard.tables import labels_of

_HEAD = ("", "runs", "median [interval]", "difference [interval]", "p alone / Holm")
_READING = (
    f"Median over seeds [interval of order statistics, or the range of fewer than {FEWEST} runs]; "
    "mean difference to the reference over pairs of seeds [uncorrected 95 % interval of the "
    "sign-flip test]; p of this test, or of the probability of being better where a run failed or "
    "pairs are too few, alone and after Holm's correction within each study."
)


def of_studies(
    studies: Sequence[StudyTable],
    title: str = "",
    tasks: Mapping[str, str] | None = None,
) -> str:
    """Return the tables.

    Args:
        studies: the tables of the studies.
        title: of the first table; by default what the studies compared.
        tasks: the task of a study by its name; every other study is a task.
    """
    # A heading for each grid point, then its rows
    lines: list[list[str]] = []
    bold: set[int] = set()
    for study in studies:
        # A study has no columns if no finished run recorded their metrics
        if not study.rows[0].columns:
            continue
        for point, rows in study.points:
            lines.append([_heading(study, point, rows[0].primary)])
            for row in rows:
                if study.is_own(row):
                    bold.add(len(lines))
                lines.append([study.label(row), *_cells(row.primary)])

    # The table of all studies comes first
    latex_tables = [
        latex.table(_HEAD, lines, bold, _caption(studies, title), "tab:studies")
    ]

    # A table for each overview
    for position, overview in enumerate(overviews(studies, tasks or {}), start=1):
        head = ("", "better", "geometric mean", *overview.columns)
        texts = [
            [line.label, line.better_text, line.mean, *line.texts]
            for line in overview.lines
        ]
        by_user = {index for index, line in enumerate(overview.lines) if line.by_user}
        label = f"tab:overview-{position}"
        latex_tables.append(latex.table(head, texts, by_user, overview.reading, label))
    return latex.with_packages(latex_tables)


def _heading(study: StudyTable, point: str, cell: Cell) -> str:
    """Return the heading of some rows: ``study: point, column, reference relu``."""
    parts = [point, cell.name]
    if study.reference:
        parts.append(f"reference {study.reference}")
    return f"{study.study}: {joined(*parts)}"


def _cells(cell: Cell) -> list[str]:
    """Return the number of runs, the median, the difference and p."""
    median = f"{number(cell.median, cell)} {interval(cell)}".rstrip()
    return [str(cell.n), median, mean_difference(cell), p_values(cell)]


def _caption(studies: Sequence[StudyTable], title: str) -> str:
    """Return the title, how to read the table, and which studies differ from complete ones."""
    # Studies by what sets them apart
    without_columns = []
    unfinished = []
    diverged = []
    on_samples = []
    for study in studies:
        if not study.rows[0].columns:
            without_columns.append(study.study)
        if study.ended < study.planned:
            unfinished.append(
                f"{study.study} ({study.ended} of {plural(study.planned, 'run')})"
            )
        if study.diverged:
            diverged.append(f"{study.study} ({plural(study.diverged, 'run')})")
        if study.on_samples:
            on_samples.append(study.study)

    # A sentence on each kind
    remarks = {
        "Left out without a recorded metric": without_columns,
        "Unfinished": unfinished,
        "Diverged, counted as the worst value": diverged,
        "On samples or a part of the data": on_samples,
    }
    sentences = [f"{title or _title(studies)}.", _READING]
    for remark, names in remarks.items():
        if names:
            sentences.append(f"{remark}: {', '.join(names)}.")
    return " ".join(sentences)


def _title(studies: Sequence[StudyTable]) -> str:
    """Return what was compared: the title of a single study, or the values of several."""
    if len(studies) == 1:
        return studies[0].title
    labels = labels_of(studies)
    names = dict.fromkeys(labels.values())
    return f"{', '.join(names)} in {len(studies)} studies"
