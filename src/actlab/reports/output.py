"""Files of a study's results: table, curves, figures and page, written together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from actlab.analysis.results import Results
from actlab.reports import figures, stored, style, table_files
from actlab.reports.pages import study as page
from actlab.storage.files import regular
from actlab.studies.study_folder import VALUES


def write(opened: Sequence[Results], folder: Path, html: bool = False) -> list[Path]:
    """Write the table, the figures and, if ``html``, the page to a folder; return their paths."""
    known = {line for stage in opened for line in stage.left_out}
    opened = [stage.with_rows() for stage in opened]
    for line in dict.fromkeys(line for stage in opened for line in stage.left_out if line not in known):
        print(line)
    last = opened[-1]
    written = [*table_files.write(last, folder), stored.write(last, folder)]
    for name, figure in figures.draw(last).items():
        written += style.save(figure, folder / "figures" / name)
    if html:
        written.append(page.write(opened, folder))
    return written


def keep(opened: Sequence[Results], folder: Path) -> None:
    """Write ``table.json``, which ``actlab report`` reads, and existing figures and pages if they are stale."""
    before = folder / "table.json"
    if (
        before.is_file()
        and regular(before).read_bytes() == table_files.to_json(opened[-1]).encode()
        and not _probed_since(opened[-1], folder / stored.NAME)  # figures may show more than the table
    ):
        return
    if opened[-1].results and (folder / VALUES).exists():
        write(opened, folder, html=(folder / page.NAME).exists())
    else:
        table_files.write(opened[-1], folder, ["table.json"])


def _probed_since(shown: Results, file: Path) -> bool:
    written = file.stat().st_mtime if file.exists() else math.inf
    files = (file for run in shown.runs for file in (shown.root / run.id / "probes").glob("[!.]*.parquet"))
    return any(file.stat().st_mtime > written for file in files)
