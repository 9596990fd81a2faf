"""A study's table as text, and in files with all digits."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from actlab.analysis import comparison
from actlab.analysis.columns import Column
from actlab.analysis.comparison import Cell, TableRow
from actlab.analysis.points import short_names
from actlab.analysis.results import Results
from actlab.analysis.scoreboard import Place
from actlab.analysis.statistics import FEWEST
from actlab.files import write_atomically
from actlab.reports.notes import facts, footnotes
from actlab.studies.keys import in_full

NONE = "-"


def grid(results: Results) -> tuple[list[str], list[list[str]]]:
    """Header and lines of the table as text; a column that is empty in every line is left out.

    Raises:
        ActlabError: for a column that is not understood, or that no run recorded.
    """
    return filled([_line(results, row) for row in comparison.rows(results)])


def filled(lines: Sequence[Mapping[str, str]]) -> tuple[list[str], list[list[str]]]:
    """Header and lines without the columns that are empty in every line."""
    head = [name for name in lines[0] if any(line[name] not in ("", NONE) for line in lines)]
    return head, [[line[name] or NONE for name in head] for line in lines]


def _line(results: Results, row: TableRow) -> dict[str, str]:
    """The printed values of one row by their headers, which have one or two lines."""
    reference = comparison.reference_text(results)
    line = point(results, row) | trained(results, row)
    for cell in row.cells:
        line |= _cells(cell, reference)
    return line | cost(row.cost, comparison.cost_base(results))


def point(results: Results, row: TableRow) -> dict[str, str]:
    """What is compared."""
    names = short_names([*row.point, *results.study.select.tune])
    return {names[key]: results.text(key, value) for key, value in row.point.items()}


def trained(results: Results, row: TableRow) -> dict[str, str]:
    """The settings chosen, of how many, and the runs."""
    tune = results.study.select.tune
    star = "*" if row.provisional and row.tried > 1 else ""
    names = short_names([*row.point, *tune])
    line = {
        f"{names[key]}\n(chosen)": results.text(key, row.chosen[key]) + star if key in row.chosen else ""
        for key in tune
    }
    line["settings\ntried"] = settings(row, comparison.reference_text(results)) if tune else ""
    return {**line, "runs": count(row)}


def cost(cost: Mapping[str, Any] | None, base: str | None) -> dict[str, str]:
    """Time and memory of an update; relative ones only where it is known to what."""
    seconds = f"{1e3 * cost['seconds_per_update']:#.3g}".rstrip(".") if cost else ""
    line = {"ms per\nupdate": seconds}
    if base is not None:
        line[f"time\n/ {base}"] = f"{cost['relative_to_reference']:.2f}" if cost else ""
        line[f"memory\n/ {base}"] = f"{cost['bytes_relative']:.2f}" if cost else ""
    return line


def settings(row: TableRow, reference: str) -> str:
    """Number of settings tried; the reference's beside it where that is another: ``9 (relu 3)``."""
    unequal = row.reference_tried is not None and row.reference_tried != row.tried
    return f"{row.tried} ({reference} {row.reference_tried})" if unequal else str(row.tried)


def count(row: TableRow) -> str:
    """Runs that have ended, of those planned: ``5``, ``3 of 5``, ``5, 1 diverged``."""
    ended = row.finished + row.diverged
    words = str(ended) if ended == row.planned else f"{ended} of {row.planned}"
    return f"{words}, {row.diverged} diverged" if row.diverged else words


def _cells(cell: Cell, reference: str) -> dict[str, str]:
    name, ps = cell.column.name, (cell.paired.p, cell.p_holm, cell.p_wilcoxon)
    return {
        f"{name}\nmedian": ours(cell),
        f"{name}\npublished (ours - it)": published(cell),
        f"{name}, difference to {reference}\nmean [interval] / median": difference(cell),
        f"{name}, p vs {reference}\nsign-flip / Holm / Wilcoxon": " / ".join(map(p_value, ps))
        if any(p is not None for p in ps)
        else NONE,
    }


def ours(cell: Cell) -> str:
    """Median and interval; mean and standard deviation where a paper gives those."""
    text, column = number(cell.median, cell.column), cell.column
    if cell.interval and len(cell.values) > 1:
        text += f" [{number(cell.interval.low, column)}, {number(cell.interval.high, column)}]"
    if cell.mean_and_sd:
        text += f", {plus_minus(*cell.mean_and_sd, column)}"
    return text


def published(cell: Cell) -> str:
    """What a paper gives, and how far ours is from it."""
    if cell.published is None:
        return NONE
    text = plus_minus(*cell.published, cell.column)
    if cell.beyond_published is not None:
        text += f" ({number(cell.beyond_published, cell.column, signed=True)})"
    return text


def plus_minus(mean: float, sd: float | None, column: Column) -> str:
    """A mean as printed, with its standard deviation where there is one: ``2.10 ± 0.05``."""
    return number(mean, column) + ("" if sd is None else f" ± {number(sd, column)}")


def difference(cell: Cell, median: bool = True) -> str:
    """Mean paired difference with its interval, and the median one where it is asked for.

    ``-0.10 [-0.17, -0.03] / -0.09``; infinite by which side diverged; nothing for too few pairs to test.
    """
    paired, column = cell.paired, cell.column
    if paired.pairs < FEWEST:
        return NONE
    mean, low, high, middle = (
        f"{v:+}".replace("inf", "∞") if v and math.isinf(v) else number(v, column, signed=True)
        for v in paired[:4]
    )
    text = f"{mean} [{low}, {high}]" if paired.low is not None else mean
    return f"{text} / {middle}" if median else text


def number(value: float | None, column: Column, signed: bool = False) -> str:
    """A value as printed: percent with two decimals, an epoch with one, others with three digits.

    Args:
        value: None for a value that is missing; not finite for a diverged run.
        column: says whether the value is a percentage or an epoch.
        signed: with a sign, for differences.
    """
    if value is None:
        return NONE
    if not math.isfinite(value):
        return "never" if str(column.at).startswith("below") else "diverged"
    sign = "+" if signed else ""
    if column.in_percent:
        return f"{100 * value:{sign}.2f}"
    return f"{value:{sign}.1f}" if column.is_epoch else f"{value:{sign}#.3g}".rstrip(".")


def place(found: Place | None, column: Column) -> str:
    """A unit's median and rank in a task: ``12.60 (3)``."""
    return NONE if found is None else f"{number(found.median, column)} ({found.rank:g})"


def share(value: float) -> str:
    """A share as printed: ``67 %``."""
    return NONE if math.isnan(value) else f"{100 * value:.0f} %"


def p_value(p: float | None) -> str:
    """A p as printed: two digits."""
    return NONE if p is None else f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"


def to_markdown(results: Results) -> str:
    """The table and its footnotes in Markdown."""
    head, body = grid(results)
    rule = ["---"] + ["---:"] * (len(head) - 1)
    lines = ["| " + " | ".join(w.replace("\n", " ") for w in line) + " |" for line in [head, rule, *body]]
    return "\n\n".join([f"# {results.study.title}", "\n".join(lines), *footnotes(results)]) + "\n"


def to_json(results: Results) -> str:
    """The table in all digits, with values, facts and notes; errors are fractions, a diverged run is null."""
    rows = [
        {
            "point": row.point,
            "chosen": row.chosen,
            "settings": row.tried,
            "reference_settings": row.reference_tried,
            "planned": row.planned,
            "finished": row.finished,
            "diverged": row.diverged,
            "provisional": row.provisional,
            "cost": row.cost,
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
        "percent": cell.column.in_percent,
        "n": len(cell.values),
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
    """The value, or None for a number that is not finite: JSON has none."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(results: Results) -> str:
    """The values of all runs of all settings in all digits; errors are fractions, a diverged run is ``inf``."""
    keys = results.study.keys
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keys, "seed", "chosen", "status", *(c.key for c in results.columns), "run"])
    for group in results.groups:
        chosen = results.chosen(group)
        for setting in group.settings:
            for run in (r for r in setting.runs if r.id in results.results):
                values = [results.value(run, column) for column in results.columns]
                point = [results.text(key, run.point[key]) for key in keys]
                status = results.results[run.id]["status"]
                writer.writerow([*point, run.seed, int(setting is chosen), status, *values, run.id])
    return text.getvalue()


FILES = {"table.md": to_markdown, "table.json": to_json, "values.csv": to_csv}


def write(results: Results, folder: Path, names: Iterable[str] = FILES) -> list[Path]:
    """Write some of `FILES`, all of them by default, and return their paths; the folder is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (paths := [folder / name for name in names]):
        write_atomically(path, FILES[path.name](results))
    return paths
