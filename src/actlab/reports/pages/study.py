"""The page of a study, ``report.html``, whose figures a script draws in the browser."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from actlab.analysis import verdict
from actlab.analysis.results import Results
from actlab.analysis.wording import duration
from actlab.config.values import shareable
from actlab.reports import plots, style
from actlab.reports.notes import facts, remarks, state
from actlab.reports.pages import rendering
from actlab.reports.pages.cells import heat_map, table
from actlab.reports.panels import Line, Panel, Plot, limits
from actlab.storage.mappings import written
from actlab.studies.plan import Study

NAME = "report.html"
INDEX = "index.html"  # page over all studies, in the folder that contains theirs
_FILES = ("table.md", "table.json", "values.csv", "curves.csv", "figures")  # in the folder of the page
_CONFIG = (
    *("name", "compare", "reference", "seeds", "select", "stages", "blocks"),
    *("probes", "table", "published", "figures"),
)


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
    stages = [{key: value for key, value in vars(stage).items() if value is not None} for stage in study.stages]
    record = {key: getattr(study, key) for key in _CONFIG} | {"stages": stages, "blocks": blocks}
    given = shareable({key: value for key, value in record.items() if value not in ((), [], {}, None)})
    return written(given, allow_unicode=True, width=100)


def drawing(plot: Plot) -> dict[str, Any]:
    """Return a figure: panels with their lines, and a colour per label on light and on dark background."""
    lines, users = plot.lines, plot.users
    colours = style.colours((line.label for line in lines), users)
    bands = ["bands"] if any(line.ours.n > 1 for line in lines) else []
    return {
        "name": plot.name,
        "caption": plot.caption,
        "units": [
            {"label": x, "light": c, "dark": style.on_dark(c), "own": x in users} for x, c in colours.items()
        ],
        "kinds": [*plot.kinds, *bands],
        "panels": [_panel(panel) for panel in plot.panels],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "title": panel.title or panel.ylabel,
        "xlabel": panel.xlabel,
        "ylabel": panel.ylabel,
        "over_epochs": panel.over_epochs,
        "seconds": panel.seconds,
        "log": panel.log,
        "ylim": _rounded(limits(panel)),
        "lines": [_line(line, panel.scale) for line in panel.lines],
    }


def _line(line: Line, scale: float) -> dict[str, Any]:
    band = line.ours.band
    return {
        "label": line.label,
        "metric": line.metric,
        "kind": line.kind,
        "n": line.ours.n,
        "x": _rounded(line.ours.x),
        "median": _rounded(band.median * scale),
        "low": _rounded(band.low * scale),
        "high": _rounded(band.high * scale),
        "published": [*map(_rounded, line.published[:2])] if line.published else None,
    }


def _rounded(values: Iterable[float]) -> list[float | None]:
    """Return numbers with six digits, more than a screen shows; None if not finite, which JSON lacks."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]
