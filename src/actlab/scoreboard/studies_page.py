"""The page of all studies in a folder, ``index.html``.

It shows name, state, verdict, picture and link of each study, and an overview of several studies.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from actlab.analysis.study_table import StudyTable
from actlab.analysis.verdict import SMOKE
from actlab.analysis.wording import plural
from actlab.reports.pages import rendering
from actlab.reports.pages import study as page
from actlab.scoreboard.studies_overview import overviews
from actlab.scoreboard.tables import StoredTable, Tables
from actlab.storage.files import regular


def write(runs: Path, tables: Tables, tasks: Mapping[str, str] | None = None) -> Path:
    """Write ``index.html`` on the studies in ``runs``, and return its path.

    Args:
        runs: the folder of the studies.
        tables: their tables.
        tasks: the task of a study by its name; every other study is a task.
    """
    studies = [_study(record) for record in tables.records]
    study_tables = [record.table for record in tables.records]
    return rendering.write(
        "index.html",
        runs / page.INDEX,
        notes=tables.left_out,
        overviews=overviews(study_tables, tasks or {}),
        studies=studies,
    )


def _study(record: StoredTable) -> dict[str, Any]:
    """Return what the page shows of a study: name, link, state, verdict and first figure."""
    table = record.table

    # Prefer the verdicts on the primary quantity
    verdicts = [
        verdict.text for verdict in table.verdicts if verdict.family == "primary"
    ]
    verdicts = verdicts or [verdict.text for verdict in table.verdicts]
    if table.smoke:
        verdicts = [SMOKE]

    # Embed the first figure
    picture = ""
    figures = sorted(record.folder.glob("figures/*.svg"))
    if figures:
        picture = base64.b64encode(regular(figures[0]).read_bytes()).decode()

    # Link only to a page that exists
    has_page = (record.folder / page.NAME).exists()
    return {
        "name": table.study,
        "title": table.title,
        "href": f"{quote(record.folder.name)}/{page.NAME}" if has_page else "",
        "state": _state(table),
        "verdicts": verdicts
        or ["No verdict: the study has no reference or no test quantity."],
        "picture": picture,
    }


def _state(table: StudyTable) -> str:
    """Return how much of a study was run: ``11 of 12 runs, 1 diverged, 3 seeds, on samples``."""
    state = [f"{table.ended} of {plural(table.planned, 'run')}"]
    if table.diverged:
        state.append(f"{table.diverged} diverged")
    state.append(plural(len(table.seeds), "seed"))
    if table.on_samples:
        state.append("on samples")
    return ", ".join(state)
