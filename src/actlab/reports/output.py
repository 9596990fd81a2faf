"""Files of a study's results: table, curves, figures and page, written together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from actlab.analysis import study_table
from actlab.analysis.comparison import table_of
from actlab.analysis.results import Results
from actlab.analysis.study_table import StudyTable
from actlab.reports import figures, stored, style, table_files
from actlab.reports.pages import study as page
from actlab.storage.files import regular, write_atomically
from actlab.studies.study_folder import VALUES

FIGURES = "figures"


def write(
    opened: Sequence[Results], table: StudyTable, folder: Path, html: bool = False
) -> list[Path]:
    """Write the table, the figures and, if ``html``, the page to a folder; return their paths."""
    # Figures need all rows: leave out runs whose rows are damaged
    stages = [stage.with_rows() for stage in opened]
    for note in _left_out_since(opened, stages):
        print(note)
    last = stages[-1]
    if last is not opened[-1]:
        table = table_of(last)

    # Write all files
    paths = [*table_files.write(table, last, folder), stored.write(last, folder)]
    for name, figure in figures.draw(last).items():
        paths += style.save(figure, folder / FIGURES / name)
    if html:
        paths.append(page.write(stages, table, folder))
    return paths


def described(folder: Path) -> dict[str, str]:
    """Return where the files of a folder are, by their kind."""
    texts: dict[str, str] = {}

    # Tables in one line
    names = (table_files.MARKDOWN, study_table.NAME, VALUES)
    tables = [name for name in names if (folder / name).exists()]
    if tables:
        texts["Tables"] = f"{folder}/{', '.join(tables)}"

    # Figures and the page
    if (folder / FIGURES).is_dir():
        texts["Figures"] = f"{folder / FIGURES}/"
    if (folder / page.NAME).exists():
        texts["Page"] = str(folder / page.NAME)
    return texts


def _left_out_since(opened: Sequence[Results], stages: Sequence[Results]) -> list[str]:
    """Return a note on each run that reading all rows left out."""
    # Notes that the table prints already are not repeated
    earlier: set[str] = set()
    for stage in opened:
        earlier.update(stage.left_out)

    notes: list[str] = []
    for stage in stages:
        notes += [note for note in stage.left_out if note not in earlier]
    return list(dict.fromkeys(notes))


def keep(opened: Sequence[Results], table: StudyTable, folder: Path) -> None:
    """Write ``table.json``, ``table.md``, and again stale figures and pages."""
    # Leave files that are up to date; figures may show more than the table
    file = folder / study_table.NAME
    text = table.to_json()
    markdown = folder / table_files.MARKDOWN
    is_stored = file.is_file() and regular(file).read_bytes() == text.encode()
    if (
        is_stored
        and markdown.exists()
        and not _probed_since(opened[-1], folder / stored.NAME)
    ):
        return

    # Figures and the page only if somebody wrote them before
    if opened[-1].results and (folder / VALUES).exists():
        write(opened, table, folder, html=(folder / page.NAME).exists())
    else:
        write_atomically(file, text)
        table_files.write_text(markdown, table_files.to_markdown(table))


def _probed_since(results: Results, file: Path) -> bool:
    """Return whether a probe has written values since a file was written."""
    if not file.exists():
        return False
    written = file.stat().st_mtime
    for run in results.runs:
        for values in (results.root / run.id / "probes").glob("[!.]*.parquet"):
            if values.stat().st_mtime > written:
                return True
    return False
