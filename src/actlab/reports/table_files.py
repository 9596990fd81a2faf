"""A study's table in files: Markdown for reading, JSON and CSV with all digits."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from actlab.analysis import comparison, verdict
from actlab.analysis.columns import Column
from actlab.analysis.comparison import Cell
from actlab.analysis.results import Results
from actlab.config.keys import in_full
from actlab.reports.notes import facts, footnotes
from actlab.reports.tables import grid, sections
from actlab.storage.files import write_atomically

MOST_COLUMNS = 10  # of a single table in Markdown


def to_markdown(results: Results) -> str:
    """Return the table and its footnotes in Markdown; a wide table is split into parts."""
    head, body = grid(results)
    parts = [("", head, body)] if len(head) <= MOST_COLUMNS else sections(results)
    texts = [f"# {results.study.title}"]
    for title, names, lines in parts:
        rule = ["---"] + ["---:"] * (len(names) - 1)
        texts += [f"## {title}"] if title else []
        texts.append(
            "\n".join(
                "| " + " | ".join(w.replace("\n", " ") for w in line) + " |" for line in [names, rule, *lines]
            )
        )
    if sentences := verdict.lines(results):
        texts += ["## Verdict", "\n".join(f"- {one}" for one in sentences)]
    return "\n\n".join([*texts, "## Notes", *footnotes(results)]) + "\n"


def to_json(results: Results) -> str:
    """Return the table as JSON with all digits, values, facts and notes.

    Errors are fractions; the value of a diverged run is null.
    """
    rows = [
        {
            "point": _json_value(row.point),
            "chosen": _json_value(row.chosen),
            "settings": row.tried,
            "reference_settings": row.reference_tried,
            "planned": row.planned,
            "finished": row.finished,
            "diverged": row.diverged,
            "provisional": row.provisional,
            "cost": _json_value(row.cost),
            "columns": [_record(cell) for cell in row.cells],
        }
        for row in comparison.rows(results)
    ]
    study = results.study
    record = {
        "study": study.name,
        "title": study.title,
        "compare": study.compare,
        "reference": in_full(study.reference),
        **facts(results),
        "published": study.published.get("source"),
        "cut": study.cut,
        "samples": study.samples,
        "verdicts": [
            {"name": one.name, "column": one.column.key, "outcome": one.outcome, "text": one.text}
            for one in verdict.verdicts(results)
        ],
        "rows": rows,
        "notes": list(study.notes),
    }
    return json.dumps(record, indent=1, allow_nan=False, default=str) + "\n"


def _record(cell: Cell) -> dict[str, Any]:
    interval: Mapping[str, Any] = cell.interval._asdict() if cell.interval else {}
    mean, sd = cell.mean_and_sd or (None, None)
    theirs, paired = cell.published, cell.paired
    return {
        "metric": cell.column.metric,
        "at": cell.column.at,
        "condition": cell.column.condition,
        "name": cell.column.name,
        "mode": cell.column.mode,
        "ranked": cell.column.ranked,
        "chance": cell.column.chance,
        "percent": cell.column.in_percent,
        "n": len(cell.values),
        "diverged": cell.diverged,
        "median": finite(cell.median),
        "interval": {k: finite(v) for k, v in interval.items()} or None,
        "mean": mean,
        "sd": sd,
        "published": theirs.value if theirs else None,
        "published_sd": theirs.sd if theirs else None,
        "difference": finite(cell.beyond_published),
        "pairs": paired.pairs,
        "paired": {key: finite(getattr(paired, key)) for key in ("mean", "low", "high", "median")},
        "p": paired.p,
        "p_holm": cell.p_holm,
        "p_wilcoxon": cell.p_wilcoxon,
        "values": {str(seed): finite(value) for seed, value in cell.values.items()},
    }


def finite(value: Any) -> Any:
    """Return the value, or None for a number that is not finite, which JSON cannot represent."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json_value(value: Any) -> Any:
    """Return nested grid values for JSON; a number that is not finite becomes text for the same value."""
    if isinstance(value, Mapping):
        return {key: _json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(results: Results) -> str:
    """Return the values of all runs of all settings as CSV, with all digits.

    Errors are fractions; a diverged run is ``inf``. The columns are those of the table and, if settings are
    tuned, the selection metric.
    """
    keys = results.study.keys
    columns = _with_selection(results)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keys, "seed", "chosen", "status", *(c.key for c in columns), "run"])
    for group in results.groups:
        chosen = results.chosen(group)
        for setting in group.settings:
            for run in (r for r in setting.runs if r.id in results.results):
                values = [results.value(run, column) for column in columns]
                point = [_csv_value(results, key, run.point[key]) for key in keys]
                status = results.results[run.id]["status"]
                writer.writerow([*point, run.seed, int(setting is chosen), status, *values, run.id])
    return text.getvalue()


def _with_selection(results: Results) -> list[Column]:
    """Return the table's columns, followed by the selection metric if the table lacks it."""
    columns, by = results.columns, results.selected_by
    return columns if by is None or by.key in {c.key for c in columns} else [*columns, by]


def _csv_value(results: Results, key: str, value: Any) -> str:
    """Return a grid value as text: a float with all digits, any other value as in the table."""
    return in_full(value) if isinstance(value, float) else results.text(key, value)


FILES = {"table.md": to_markdown, "table.json": to_json, "values.csv": to_csv}


def write(results: Results, folder: Path, names: Iterable[str] = FILES) -> list[Path]:
    """Write some of `FILES`, by default all, and return their paths; the folder is created."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (paths := [folder / name for name in names]):
        write_atomically(path, FILES[path.name](results))
    return paths
