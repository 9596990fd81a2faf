"""The page of a study: ``report.html``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from actlab.analysis import verdict
from actlab.analysis.results import Results
from actlab.config.values import shareable
from actlab.reports import plots
from actlab.reports.notes import duration, facts, remarks, state
from actlab.reports.pages import rendering
from actlab.reports.pages.cells import table
from actlab.reports.pages.drawings import drawing
from actlab.reports.pages.heat import heat_map
from actlab.storage.mappings import written
from actlab.studies.plan import Study

NAME = "report.html"
INDEX = "index.html"  # page over all studies, in the folder that contains theirs
_FILES = ("table.md", "table.json", "values.csv", "curves.csv", "figures")  # in the folder of the page


def write(stages: Sequence[Results], folder: Path) -> Path:
    """Write ``report.html``, which links to the run folders, and return its path."""
    first, last = stages[0], stages[-1]  # the first selected settings, the last that has opened is shown
    # Stages may share runs.
    ended = {name: result for stage in stages for name, result in stage.results.items()}
    return rendering.write(
        "study.html",
        folder / NAME,
        title=last.study.title,
        name=last.study.name,
        notes=last.study.notes,
        verdict=verdict.lines(last),
        remarks=remarks(last),
        missing=last.missing,
        state=state(last),
        facts=facts(last),
        planned=len(last.runs),
        figures=[drawing(plot) for plot in plots.read(last)],
        table=table(last),
        heat_map=heat_map(first),
        seconds=duration(sum(result.get("seconds", 0.0) for result in ended.values())),
        runs=list({run["id"]: run for stage in stages for run in _runs(stage, folder)}.values()),
        config=config(first.study),
        index=_link(index, folder) if (index := last.root.parent / INDEX).exists() else None,
        files=[name for name in _FILES if (folder / name).exists()],
    )


def _link(path: Path, folder: Path) -> str:
    return quote(Path(os.path.relpath(path, folder)).as_posix())


def _runs(results: Results, folder: Path) -> Iterator[dict[str, Any]]:
    for group in results.groups:
        chosen = results.chosen(group)
        for setting in group.settings:
            for run in (r for r in setting.runs if r.id in results.results):
                result = results.results[run.id]
                yield {
                    "id": run.id,
                    "href": f"{_link(results.root / run.id, folder)}/",
                    "status": result["status"],
                    "chosen": setting is chosen,
                    "seed": run.seed,
                    "seconds": result.get("seconds"),
                    "engine": result.get("engine", ""),
                }


def config(study: Study) -> str:
    """Return the study as YAML: base config, grid, seeds, selection, table, published values and figures."""
    blocks = [
        {"name": block.name, "grid": block.grid, "set": block.settings, "base": block.base}
        for block in study.blocks
    ]
    record = {
        "name": study.name,
        "compare": study.compare,
        "reference": study.reference,
        "seeds": study.seeds,
        "select": study.select,
        "stages": [{k: v for k, v in vars(stage).items() if v is not None} for stage in study.stages],
        "blocks": blocks,
        "probes": study.probes,
        "table": study.table,
        "published": study.published,
        "figures": study.figures,
    }
    given = shareable({key: value for key, value in record.items() if value not in ((), [], {}, None)})
    return written(given, allow_unicode=True, width=100)
