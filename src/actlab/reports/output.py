"""Files of a study's results: table, curves, figures and page, written together."""

from __future__ import annotations

import math
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


def write(
    opened: Sequence[Results], table: StudyTable, folder: Path, html: bool = False
) -> list[Path]:
    """Write the table, the figures and, if ``html``, the page to a folder; return their paths."""
    # Figures need all rows: leave out runs whose rows are damaged
    known = {line for stage in opened for line in stage.left_out}
    read = [stage.with_rows() for stage in opened]
    for line in dict.fromkeys(
        line for stage in read for line in stage.left_out if line not in known
    ):
        print(line)
    last = read[-1]
    if last is not opened[-1]:
        table = table_of(last)

    written = [*table_files.write(table, last, folder), stored.write(last, folder)]
    for name, figure in figures.draw(last).items():
        written += style.save(figure, folder / "figures" / name)
    if html:
        written.append(page.write(read, table, folder))
    return written


def keep(opened: Sequence[Results], table: StudyTable, folder: Path) -> None:
    """Write ``table.json``, which ``actlab report`` reads, and existing figures and pages if they are stale."""
    file, text = folder / study_table.NAME, table.to_json()
    is_kept = file.is_file() and regular(file).read_bytes() == text.encode()
    # Figures may show more than the table
    if is_kept and not _probed_since(opened[-1], folder / stored.NAME):
        return
    if opened[-1].results and (folder / VALUES).exists():
        write(opened, table, folder, html=(folder / page.NAME).exists())
    else:
        write_atomically(file, text)


def _probed_since(shown: Results, file: Path) -> bool:
    written = file.stat().st_mtime if file.exists() else math.inf
    files = (
        file
        for run in shown.runs
        for file in (shown.root / run.id / "probes").glob("[!.]*.parquet")
    )
    return any(file.stat().st_mtime > written for file in files)
