"""A study's table in files: Markdown to read, LaTeX for papers, JSON and CSV with all digits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from actlab.analysis import notes, parameters, selection
from actlab.analysis.results import Results
from actlab.analysis.study_table import FAMILIES, NAME, StudyTable
from actlab.analysis.wording import plural
from actlab.config.labels import in_full
from actlab.reports import latex
from actlab.reports.tables import by_user, grid, sections
from actlab.storage.files import write_atomically
from actlab.studies.study_folder import VALUES

MOST_COLUMNS = 10  # of a single table in Markdown
MARKDOWN = "table.md"


def to_markdown(table: StudyTable) -> str:
    """Return table and footnotes in Markdown; a wide table is split, the user's rows are bold."""
    # Tables
    bold = by_user(table)
    head, body = grid(table)
    parts = [("", head, body)]
    if len(head) > MOST_COLUMNS:
        parts = sections(table)
    texts = [f"# {table.title}"]
    for title, head, body in parts:
        if title:
            texts.append(f"## {title}")
        texts.append(_markdown_table(head, body, bold))

    # Sentences
    for title, sentences in (
        ("Verdict", table.summary),
        (parameters.TITLE, table.parameters),
    ):
        if sentences:
            lines = [f"- {sentence}" for sentence in sentences]
            texts += [f"## {title}", "\n".join(lines)]
    texts.append("## Notes")
    texts += table.footnotes
    return "\n\n".join(texts) + "\n"


def _markdown_table(
    head: Sequence[str], body: Sequence[Sequence[str]], bold: Sequence[bool]
) -> str:
    # The first column is text, all others are numbers
    alignment = ["---"] + ["---:"] * (len(head) - 1)
    lines = [_markdown_line(head), _markdown_line(alignment)]
    for row, is_bold in zip(body, bold, strict=True):
        label, *cells = row
        if is_bold:
            label = f"**{label}**"
        lines.append(_markdown_line([label, *cells]))
    return "\n".join(lines)


def _markdown_line(cells: Sequence[str]) -> str:
    text = " | ".join(cells).replace("\n", " ")  # a cell is a single line
    return f"| {text} |"


def to_latex(table: StudyTable) -> str:
    """Return a LaTeX table for each metric.

    Its columns are median, published value, difference to the reference and Holm's p.
    """
    # The user's rows, and the study's name as a part of labels
    bold = {number for number, is_own in enumerate(by_user(table)) if is_own}
    # LaTeX's labels take letters, digits and hyphens
    study = "".join(c if c.isascii() and c.isalnum() else "-" for c in table.study)

    latex_tables: list[str] = []
    for title, head, body in sections(table, brief=True)[1:]:
        # The caption explains the columns
        names = [name.removesuffix("\nmean [interval]") for name in head]
        caption = _latex_caption(table, title, names)
        label = f"tab:{study}-{len(latex_tables) + 1}"
        latex_tables.append(latex.table(names, body, bold, caption, label))
    return latex.with_packages(latex_tables)


def _latex_caption(table: StudyTable, title: str, head: Iterable[str]) -> str:
    columns = [name.partition("\n")[0] for name in head]
    reference = table.reference_text

    # Columns
    sentences = [
        f"{table.title}: {title}.",
        f"Median over seeds {notes.spans(table.seeds)} [interval].",
    ]
    if f"difference to {reference}" in columns:
        interval = "mean of pairs [uncorrected 95 % interval of the sign-flip test]"
        sentences.append(f"Difference to {reference}: {interval}.")
    if "p" in columns:
        sentences.append(_correction_text(table))

    # State of the study
    if table.ended < table.planned:
        sentences.append(f"Unfinished: {table.ended} of {table.planned} runs.")
    if table.diverged:
        runs = plural(table.diverged, "run")
        sentences.append(f"Diverged and counted as the worst value: {runs}.")
    if table.cut:
        sentences.append(notes.length(table.cut))
    if table.samples:
        sentences.append("Trained on a sample of the data.")
    return " ".join(sentences)


def _correction_text(table: StudyTable) -> str:
    """Return the sentence on what p-values are corrected for."""
    # The number of comparisons in each family
    families = []
    for family in FAMILIES:
        number = table.correction(family).comparisons
        if number:
            families.append(f"{number} {family}")

    # The present look counts in addition to the looks before the study was extended
    looks = ""
    if table.looks:
        looks = f" and for {table.looks + 1} looks"
    return (
        "p: sign-flip test, alone and corrected by Holm within "
        f"{' and '.join(families)} comparisons{looks}."
    )


def to_csv(results: Results) -> str:
    """Return the values of all runs of all settings as CSV.

    Errors are fractions, and the value of a diverged run is ``inf``.
    """
    keys = results.study.keys

    # Add the metric of selection to the columns of the table
    columns = list(results.columns)
    names = [column.key for column in columns]
    selected_by = selection.selected_by(results.study)
    if results.study.select.tune and selected_by.key not in names:
        columns.append(selected_by)
        names.append(selected_by.key)

    # A row for each run
    rows = []
    for run, is_selected in selection.ended(results):
        row: list[Any] = [_in_csv(results, key, run.point[key]) for key in keys]
        row += [run.seed, int(is_selected), results.results[run.id]["status"]]
        row += [results.value(run, column) for column in columns]
        row.append(run.id)
        rows.append(row)
    head = [*keys, "seed", "chosen", "status", *names, "run"]
    frame = pd.DataFrame(rows, columns=head)
    return frame.to_csv(index=False, lineterminator="\n")


def _in_csv(results: Results, key: str, value: Any) -> str:
    """Return a grid value as text, numbers with all digits."""
    if isinstance(value, float):
        return in_full(value)
    return results.text(key, value)


def write_text(path: Path, text: str) -> None:
    """Write a text; half a surrogate pair, which UTF-8 cannot encode, becomes an escape."""
    write_atomically(path, text.encode(errors="backslashreplace"))


def write(table: StudyTable, results: Results, folder: Path) -> list[Path]:
    """Write ``table.md``, ``table.json`` and ``values.csv`` to a folder; return their paths."""
    texts = {
        MARKDOWN: to_markdown(table),
        NAME: table.to_json(),
        VALUES: to_csv(results),
    }
    paths = []
    for name, text in texts.items():
        write_text(folder / name, text)
        paths.append(folder / name)
    return paths
