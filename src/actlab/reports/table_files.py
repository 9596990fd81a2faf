"""A study's table in files: Markdown for reading, LaTeX for papers, JSON and CSV with all digits."""

from __future__ import annotations

from collections.abc import Iterable
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
    """Return table and footnotes in Markdown; a wide table is split, activations of the user are bold."""
    head, body = grid(table)
    parts = [("", head, body)] if len(head) <= MOST_COLUMNS else sections(table)
    own = by_user(table)

    # Tables
    texts = [f"# {table.title}"]
    for title, names, rows in parts:
        if title:
            texts.append(f"## {title}")
        lines = [names, ["---"] + ["---:"] * (len(names) - 1)]
        for (first, *others), mine in zip(rows, own, strict=True):
            lines.append([f"**{first}**" if mine else first, *others])
        cells = [[word.replace("\n", " ") for word in line] for line in lines]
        texts.append("\n".join(f"| {' | '.join(line)} |" for line in cells))

    # Sentences
    for title, sentences in (("Verdict", table.summary), (parameters.TITLE, table.parameters)):
        if sentences:
            texts += [f"## {title}", "\n".join(f"- {sentence}" for sentence in sentences)]
    return "\n\n".join([*texts, "## Notes", *table.footnotes]) + "\n"


def to_latex(table: StudyTable) -> str:
    """Return a LaTeX table for each metric: median, published value, difference to the reference, Holm's p."""
    bold = {number for number, mine in enumerate(by_user(table)) if mine}
    study = "".join(c if c.isascii() and c.isalnum() else "-" for c in table.study)
    written: list[str] = []
    for title, head, body in sections(table, brief=True)[1:]:
        label = f"tab:{study}-{len(written) + 1}"
        names = [name.removesuffix("\nmean [interval]") for name in head]  # the caption says so
        written.append(latex.table(names, body, bold, _latex_caption(table, title, names), label))
    return latex.with_packages(written)


def _latex_caption(table: StudyTable, title: str, head: Iterable[str]) -> str:
    names = [name.partition("\n")[0] for name in head]
    reference = table.reference_text
    said = [f"{table.title}: {title}.", f"Median over seeds {notes.spans(table.seeds)} [interval]."]
    if f"difference to {reference}" in names:
        interval = "mean of pairs [uncorrected 95 % interval of the sign-flip test]"
        said.append(f"Difference to {reference}: {interval}.")
    if "p" in names:
        counts = [(table.correction(family).comparisons, family) for family in FAMILIES]
        families = " and ".join(f"{number} {family}" for number, family in counts if number)
        looks = f" and for {table.looks + 1} looks" if table.looks else ""
        said.append(
            f"p: sign-flip test, alone and corrected by Holm within {families} comparisons{looks}."
        )
    if table.ended < table.planned:
        said.append(f"Unfinished: {table.ended} of {table.planned} runs.")
    if table.diverged:
        said.append(f"Diverged and counted as the worst value: {plural(table.diverged, 'run')}.")
    if table.cut:
        said.append(notes.length(table.cut))
    if table.samples:
        said.append("Trained on a sample of the data.")
    return " ".join(said)


def to_csv(results: Results) -> str:
    """Return the values of all runs of all settings as CSV: errors as fractions, a diverged run as ``inf``."""
    keys, columns, lines = results.study.keys, list(results.columns), []
    selected_by = selection.selected_by(results.study)
    if results.study.select.tune and selected_by.key not in {column.key for column in columns}:
        columns.append(selected_by)
    for run, is_chosen in selection.ended(results):
        point = [_in_csv(results, key, run.point[key]) for key in keys]
        status = results.results[run.id]["status"]
        values = [results.value(run, column) for column in columns]
        lines.append([*point, run.seed, int(is_chosen), status, *values, run.id])
    head = [*keys, "seed", "chosen", "status", *(column.key for column in columns), "run"]
    return pd.DataFrame(lines, columns=head).to_csv(index=False, lineterminator="\n")


def _in_csv(results: Results, key: str, value: Any) -> str:
    return in_full(value) if isinstance(value, float) else results.text(key, value)


def write(table: StudyTable, results: Results, folder: Path) -> list[Path]:
    """Write ``table.md``, ``table.json`` and ``values.csv``; return their paths. The folder is created."""
    texts = {MARKDOWN: to_markdown(table), NAME: table.to_json(), VALUES: to_csv(results)}
    for name, text in texts.items():
        write_atomically(folder / name, text)
    return [folder / name for name in texts]
