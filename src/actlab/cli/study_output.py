"""Output of a study: the table on the terminal, figures and the HTML page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from actlab.analysis.results import Results
from actlab.analysis.study_table import StudyTable
from actlab.studies.study_folder import StudyFolder

if TYPE_CHECKING:
    from actlab.reports.style import Paper

GUIDE = "docs/concepts/verdicts.md"


def show(table: StudyTable, form: str | None = None) -> None:
    """Print the table as text (default), ``json`` or ``latex``."""
    from actlab.reports import table_files, terminal

    if form is None:
        terminal.print_table(table, sys.stdout)
    elif form == "json":
        print(table.to_json(), end="")
    else:
        print(table_files.to_latex(table), end="")


def show_values(results: Results) -> None:
    """Print the values of every run as CSV."""
    from actlab.reports import table_files

    print(table_files.to_csv(results), end="")


def folder_of(folder: StudyFolder, stage: str | None) -> Path:
    """Return the folder for table, figures and page; an earlier stage has its own subfolder."""
    stages = folder.study.stages
    # The last stage is the comparison, for which people look in the folder itself
    if stage is None or stage == stages[-1].name:
        return folder.path
    return folder.path / stage


def show_summary(table: StudyTable, results: Results) -> None:
    """Print what ran, the verdict, a single table and short notes."""
    from actlab.reports import summary

    summary.print_summary(table, results)


def show_files(folder: Path) -> None:
    """Print where table, figures and page are in a folder, and how to read them."""
    from actlab.reports import output

    print()
    for kind, text in output.described(folder).items():
        print(f"{kind}: {text}")
    print(f"How to read this: {GUIDE}")


def report(
    stages: Sequence[Results], table: StudyTable, folder: Path, html: bool = False
) -> list[Path]:
    """Write table, figures and, if ``html``, the page to a folder; return their paths."""
    from actlab.reports import output  # imported lazily: loads templates and figures

    return output.write(stages, table, folder, html)


def store(stages: Sequence[Results], table: StudyTable, folder: Path) -> None:
    """Store the table in a folder, without figures; see `actlab.reports.output.keep`."""
    from actlab.reports import output

    output.keep(stages, table, folder)


def draw_for_paper(results: Results, folder: Path, paper: Paper) -> None:
    """Write each figure of a study as PDF for a paper.

    The path of a figure is printed with its caption, which is not drawn.
    """
    from actlab.reports import figures, plots, style

    # A journal sets captions itself, so that they are printed, not drawn
    captions = {plot.name: plot.caption for plot in plots.read(results)}
    drawn = figures.draw(results.with_rows(), paper)
    for name, figure in drawn.items():
        for path in style.save(figure, folder / "figures" / name, paper):
            print(path)
        print(f"  caption: {captions[name]}")
