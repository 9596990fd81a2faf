"""A study's table in files: Markdown for reading, JSON and CSV with all digits."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from actlab.analysis import comparison, verdict
from actlab.analysis.columns import Column
from actlab.analysis.comparison import Cell
from actlab.analysis.results import Results
from actlab.analysis.wording import plural
from actlab.config.values import in_full, mapped, shareable
from actlab.reports import latex, parameters
from actlab.reports.notes import facts, footnotes, length, spans
from actlab.reports.tables import by_user, grid, sections
from actlab.storage.files import write_atomically
from actlab.studies.study_folder import VALUES

MOST_COLUMNS = 10  # of a single table in Markdown
_VERDICT = ("name", "column", "family", "outcome", "text")


def to_markdown(results: Results) -> str:
    """Return table and footnotes in Markdown; a wide table is split, activations of the user are bold."""
    head, body = grid(results)
    marks = by_user(results)
    parts = [("", head, body)] if len(head) <= MOST_COLUMNS else sections(results)
    texts = [f"# {results.study.title}"]
    for title, names, lines in parts:
        firsts = [f"**{line[0]}**" if mine else line[0] for line, mine in zip(lines, marks, strict=True)]
        rule = ["---"] + ["---:"] * (len(names) - 1)
        texts += [f"## {title}"] if title else []
        marked = ([first, *line[1:]] for first, line in zip(firsts, lines, strict=True))
        cells = ([word.replace("\n", " ") for word in line] for line in [names, rule, *marked])
        texts.append("\n".join(f"| {' | '.join(line)} |" for line in cells))
    if sentences := verdict.lines(results):
        texts += ["## Verdict", "\n".join(f"- {sentence}" for sentence in sentences)]
    if learnt := parameters.lines(results):
        texts += [f"## {parameters.TITLE}", "\n".join(f"- {line}" for line in learnt)]
    return "\n\n".join([*texts, "## Notes", *footnotes(results)]) + "\n"


def to_latex(results: Results) -> str:
    """Return a LaTeX table for each metric: median, published value, difference to the reference, Holm's p."""
    bold = {number for number, mine in enumerate(by_user(results)) if mine}
    study = "".join(c if c.isascii() and c.isalnum() else "-" for c in results.study.name)
    written: list[str] = []
    for title, head, body in sections(results, brief=True)[1:]:
        label = f"tab:{study}-{len(written) + 1}"
        names = [name.removesuffix("\nmean [interval]") for name in head]  # the caption says so
        written.append(latex.table(names, body, bold, _latex_caption(results, title, names), label))
    return latex.with_packages(written)


def _latex_caption(results: Results, title: str, head: Iterable[str]) -> str:
    reference, names = comparison.reference_text(results), [name.partition("\n")[0] for name in head]
    counts = {family: comparison.correction(results, family).comparisons for family in comparison.FAMILIES}
    families = " and ".join(f"{number} {family}" for family, number in counts.items() if number)
    looks = f" and for {results.looks + 1} looks" if results.looks else ""
    interval = "mean of pairs [uncorrected 95 % interval of the sign-flip test]"
    said = {
        f"{results.study.title}: {title}.": True,
        f"Median over seeds {spans(results.study.seeds)} [interval].": True,
        f"Difference to {reference}: {interval}.": f"difference to {reference}" in names,
        f"p: sign-flip test, alone and corrected by Holm within {families} comparisons{looks}.": "p" in names,
        f"Unfinished: {len(results.results)} of {len(results.runs)} runs.": results.missing,
        f"Diverged and counted as the worst value: {plural(results.diverged, 'run')}.": results.diverged,
        length(results): results.study.cut,
        "Trained on a sample of the data.": results.study.samples,
    }
    return " ".join(text for text, holds in said.items() if holds)


def to_json(results: Results) -> str:
    """Return the table as JSON with all digits: errors as fractions, a diverged run's value as null."""
    rows = [
        {
            "point": _json_value(shareable(row.point)),
            "chosen": _json_value(shareable(row.chosen)),
            "edges": list(row.edges),
            **({"choice": mapped(row.choice._asdict(), _finite)} if row.choice else {}),
            "settings": row.tried,
            "reference_settings": row.reference_tried,
            **_fields(row, "planned", "finished", "diverged", "provisional"),
            "cost": _json_value(row.cost),
            "columns": [mapped(_record(cell, results.primary), _finite) for cell in row.cells],
        }
        for row in comparison.rows(results)
    ]
    study = results.study
    values = [group.point[study.compare] for group in results.groups if study.compare in group.point]
    users = (in_full(shareable(value)) for value in values if study.is_own(study.compare, value))
    ended = (run for run in results.runs if run.id in results.results)
    sources = {name: digest for run in ended for name, digest in run.sources.items()}
    of = verdict.verdicts(results)
    verdicts = ((v.name, v.column.key, v.correction.family, v.outcome, v.text) for v in of)
    record = {
        "study": study.name,
        "title": study.title,
        "compare": study.compare,
        "reference": in_full(shareable(study.reference)),
        "own": list(dict.fromkeys(users)),
        "sources": {str(shareable(name)): digest for name, digest in sources.items()},
        "looks": results.looks,
        **facts(results),
        "published": study.published.get("source"),
        "cut": study.cut,
        "samples": study.samples,
        "verdicts": [dict(zip(_VERDICT, said, strict=True)) for said in verdicts],
        "rows": rows,
        "notes": list(study.notes),
    }
    return json.dumps(record, indent=1, allow_nan=False, default=str) + "\n"


def _record(cell: Cell, primary: Column | None) -> dict[str, Any]:
    mean, sd = cell.mean_and_sd or (None, None)
    published, published_sd = cell.published or (None, None)
    return {
        **_fields(cell.column, "metric", "at", "condition", "name", "mode", "ranked", "chance"),
        **({"scale": cell.column.scale} if cell.column.scale else {}),
        "percent": cell.column.in_percent,
        "n": len(cell.values),
        "diverged": cell.diverged,
        "median": cell.median,
        "interval": cell.interval and cell.interval._asdict(),
        "mean": mean,
        "sd": sd,
        "published": published,
        "published_sd": published_sd,
        "difference": cell.beyond_published,
        **_fields(cell, "samples", "sampling_error", "at_chance"),
        "primary": cell.column == primary,
        **_fields(cell, "biased", "family"),
        "pairs": cell.difference.pairs,
        "paired": _fields(cell.difference, "mean", "low", "high", "median", "sd"),
        "better": cell.better and dict(zip(("probability", "low", "high", "p"), cell.better, strict=True)),
        "decides": "probability" if cell.by_probability else "mean",
        **_fields(cell, "p", "p_holm", "margin", "p_equivalent", "p_equivalent_holm"),
        "values": cell.values,
    }


def _fields(thing: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def _finite(value: Any) -> Any:
    """Return the value, or None for a number that is not finite, which JSON cannot represent."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json_value(value: Any) -> Any:
    """Return nested grid values for JSON; a number that is not finite becomes text for the same value."""
    return mapped(value, lambda leaf: leaf if _finite(leaf) is leaf else str(leaf))


def to_csv(results: Results) -> str:
    """Return the values of all runs of all settings as CSV: errors as fractions, a diverged run as ``inf``."""
    keys, columns, lines = results.study.keys, list(results.columns), []
    if results.study.select.tune and results.selected_by.key not in {c.key for c in columns}:
        columns.append(results.selected_by)
    for group in results.groups:
        chosen = results.chosen(group)
        for setting in group.settings:
            for run in (r for r in setting.runs if r.id in results.results):
                values = [results.value(run, column) for column in columns]
                point = ((key, run.point[key]) for key in keys)
                texts = [in_full(v) if isinstance(v, float) else results.text(key, v) for key, v in point]
                status = results.results[run.id]["status"]
                lines.append([*texts, run.seed, int(setting is chosen), status, *values, run.id])
    head = [*keys, "seed", "chosen", "status", *(c.key for c in columns), "run"]
    return pd.DataFrame(lines, columns=head).to_csv(index=False, lineterminator="\n")


FILES = {"table.md": to_markdown, "table.json": to_json, VALUES: to_csv}


def write(results: Results, folder: Path, names: Iterable[str] = FILES) -> list[Path]:
    """Write some of `FILES`, by default all, and return their paths; the folder is created."""
    for path in (paths := [folder / name for name in names]):
        write_atomically(path, FILES[path.name](results))
    return paths
