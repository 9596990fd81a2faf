"""A study's table: for a terminal, piped, and as files in all digits."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from actlab.analysis import comparison
from actlab.analysis.columns import Column
from actlab.analysis.comparison import Cell, Row
from actlab.analysis.results import Results
from actlab.analysis.statistics import FEWEST, pairs_needed
from actlab.engines.folders import write_atomically
from actlab.studies.plan import label, short

_NONE = "-"
_WIDEST = 10_000  # to measure how wide a table is that cuts nothing


def render(results: Results) -> Table:
    """The study's table for rich, without the title and notes that `print_table` puts around it.

    Raises:
        ActlabError: for a column that is not understood or whose metric no run recorded.
    """
    head, body = grid(results)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, words in enumerate(head):
        table.add_column(Text(words), justify="left" if i == 0 else "right", overflow="fold")
    for line in body:
        table.add_row(*map(Text, line))
    return table


def print_table(results: Results, file: TextIO | None = None) -> None:
    """Print the table with what one must know to read it; into a pipe as wide as it needs, nothing cut."""
    console = Console(file=file or sys.stdout, highlight=False)
    table = render(results)
    if not console.is_terminal:
        wide = console.options.update_width(_WIDEST)
        console.width = max(80, Measurement.get(console, wide, table).maximum)
    console.print(Text(results.study.title, style="bold"), "", table, "", sep="\n", soft_wrap=False)
    for line in footnotes(results):
        console.print(Text(line), soft_wrap=not console.is_terminal)


def grid(results: Results) -> tuple[list[str], list[list[str]]]:
    """Header and lines of the table as text; a column that would be empty throughout is left out."""
    lines = [_line(results, row) for row in comparison.rows(results)]
    head = [name for name in lines[0] if any(line[name] not in ("", _NONE) for line in lines)]
    return head, [[line[name] or _NONE for name in head] for line in lines]


def _line(results: Results, row: Row) -> dict[str, str]:
    """One row: headers, unique and of one or two lines, to printed values."""
    tune, reference, cost = results.study.select.tune, results.study.reference, row.cost
    star = "*" if row.provisional and row.tried > 1 else ""
    line = {short(key): label(value) for key, value in row.point.items()}
    for key in tune:
        line[f"{short(key)}\n(chosen)"] = label(row.chosen[key]) + star if key in row.chosen else ""
    line["settings\ntried"] = str(row.tried) if tune else ""
    line["runs"] = _count(row)
    for cell in row.cells:
        line |= _cells(cell, reference)
    line["ms per\nupdate"] = f"{1e3 * cost['seconds_per_update']:#.3g}".rstrip(".") if cost else ""
    line[f"time\n/ {reference}"] = f"{cost['relative_to_reference']:.2f}" if cost else ""
    line[f"memory\n/ {reference}"] = f"{cost['bytes_relative']:.2f}" if cost else ""
    return line


def _count(row: Row) -> str:
    """Runs that are over, of those planned: ``5``, ``3 of 5``, ``5, 1 diverged``."""
    over = row.finished + row.diverged
    words = str(over) if over == row.planned else f"{over} of {row.planned}"
    return f"{words}, {row.diverged} diverged" if row.diverged else words


def _cells(cell: Cell, reference: str) -> dict[str, str]:
    column, name = cell.column, cell.column.name
    ours, published, tests = number(cell.median, column), number(cell.published, column), _NONE
    if cell.interval and len(cell.values) > 1:
        ours += f" [{number(cell.interval.low, column)}, {number(cell.interval.high, column)}]"
    if cell.difference is not None:
        published += f" ({number(cell.difference, column, signed=True)})"
    if cell.p is not None:
        tests = " / ".join(map(p_value, (cell.p, cell.p_holm, cell.p_wilcoxon)))
    return {
        f"{name}\nmedian": ours,
        f"{name}\npublished (ours - it)": published,
        f"{name}, p vs {reference}\nsign-flip / Holm / Wilcoxon": tests,
    }


def number(value: float | None, column: Column, signed: bool = False) -> str:
    """A value as printed: percent with two decimals, others with three significant digits."""
    if value is None:
        return _NONE
    if not math.isfinite(value):
        return "diverged"
    sign = "+" if signed else ""
    if column.in_percent:
        return f"{100 * value:{sign}.2f}"
    return f"{value:{sign}.1f}" if column.at == "best_epoch" else f"{value:{sign}#.3g}".rstrip(".")


def p_value(p: float | None) -> str:
    """A p as printed."""
    return _NONE if p is None else f"{p:.2g}" if p >= 1e-4 else f"{p:.0e}"


def footnotes(results: Results) -> list[str]:
    """What stands below the table: state of the study, reading, provenance, the study's notes."""
    rows = comparison.rows(results)
    texts = [state(results), _reading(results, rows), _choice(results, rows), _tests(results, rows)]
    if results.study.published.get("values"):
        texts.append(f"Published: {results.study.published.get('source', 'source not given')}.")
    costs = [row.cost for row in rows if row.cost]
    if costs:
        texts.append(
            "Time of one update (forward, backward, optimiser) and memory kept for its backward pass "
            f"measured on {costs[0].get('hardware', 'hardware not recorded')}."
        )
    return [text for text in [*texts, provenance(results), *results.study.notes] if text]


def state(results: Results) -> str:
    """How far the study is: ``17 of 90 runs finished``."""
    over = f"{len(results.results)} of {len(results.runs)} runs finished"
    if results.diverged:
        over += f", {results.diverged} of them by diverging"
    return over + ("; the study is unfinished, its values are preliminary." if results.missing else ".")


def _reading(results: Results, rows: Sequence[Row]) -> str:
    kinds = {c.interval.kind for row in rows for c in row.cells if c.interval and len(c.values) > 1}
    meaning = {
        "interval": "a bootstrap 95 % interval of the median",
        "range": f"the range of the runs (fewer than {FEWEST} give no interval)",
    }
    if not kinds:
        return ""
    words = " or ".join(meaning[kind] for kind in sorted(kinds))
    worst = " A diverged run counts as the worst value." if results.diverged else ""
    return f"Medians over seeds; in brackets {words}.{worst}"


def _choice(results: Results, rows: Sequence[Row]) -> str:
    select = results.study.select
    if not select.tune:
        return ""
    tuned = " and ".join(map(short, select.tune))
    text = f"Chosen per row: {tuned} with the best median over seeds of the best {select.metric} reached."
    if any(row.provisional and row.tried > 1 and row.chosen for row in rows):
        text += " * chosen while runs are missing."
    return text


def _tests(results: Results, rows: Sequence[Row]) -> str:
    count, reference = comparison.hypotheses(results), results.study.reference
    if not count:
        return ""
    if tested := sum(cell.p is not None for row in rows for cell in row.cells):
        return (
            f"p against {reference}, paired by seed: exact two-sided sign-flip test; the same corrected by "
            f"Holm over the table's {tested} comparisons; Wilcoxon's signed-rank test."
        )
    pairs = max((cell.pairs for row in rows for cell in row.cells), default=0)
    return (
        f"No p against {reference} from {pairs} pairs: {FEWEST} are needed for a single p below 0.05, "
        f"{pairs_needed(count)} for the table's {count} comparisons together."
    )


def provenance(results: Results) -> str:
    """Seeds, versions and hardware of the runs, in one line."""
    facts = facts_of(results)
    if not results.results:
        return ""
    versions = ", ".join(f"{name} {' / '.join(found)}" for name, found in facts["versions"].items())
    return f"Seeds {', '.join(map(str, facts['seeds']))}. {versions}. {' / '.join(facts['hardware'])}."


def facts_of(results: Results) -> dict[str, Any]:
    """Counts, seeds, versions and hardware, each version and machine once."""
    versions: dict[str, list[str]] = {}
    for result in results.results.values():
        for name, version in result["versions"].items():
            found = versions.setdefault(name, [])
            found += [version] if version not in found else []
    return {
        "planned": len(results.runs),
        "finished": results.finished,
        "diverged": results.diverged,
        "seeds": list(results.study.seeds),
        "versions": versions,
        "hardware": list(dict.fromkeys(result["hardware"] for result in results.results.values())),
    }


def to_markdown(results: Results) -> str:
    """The table and its footnotes in Markdown."""
    head, body = grid(results)
    rule = ["---"] + ["---:"] * (len(head) - 1)
    lines = ["| " + " | ".join(w.replace("\n", " ") for w in line) + " |" for line in [head, rule, *body]]
    return "\n\n".join([f"# {results.study.title}", "\n".join(lines), *footnotes(results)]) + "\n"


def to_json(results: Results) -> str:
    """The table in all digits with its raw values and provenance; errors are fractions, diverged is null."""
    rows = [
        {
            "point": row.point,
            "chosen": row.chosen,
            "settings": row.tried,
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
        "reference": study.reference,
        **facts_of(results),
        "published": study.published.get("source"),
        "rows": rows,
        "notes": list(study.notes),
    }
    return json.dumps(record, indent=1, allow_nan=False, default=str) + "\n"


def _record(cell: Cell) -> dict[str, Any]:
    interval: Mapping[str, Any] = cell.interval._asdict() if cell.interval else {}
    return {
        "metric": cell.column.metric,
        "at": cell.column.at,
        "n": len(cell.values),
        "median": finite(cell.median),
        "interval": {k: finite(v) for k, v in interval.items()} or None,
        "published": cell.published,
        "difference": finite(cell.difference),
        "pairs": cell.pairs,
        "p": cell.p,
        "p_holm": cell.p_holm,
        "p_wilcoxon": cell.p_wilcoxon,
        "values": {str(seed): finite(value) for seed, value in cell.values.items()},
    }


def finite(value: Any) -> Any:
    """The value, None for an infinite one: JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def to_csv(results: Results) -> str:
    """Every run's values, of every setting, in all digits; errors are fractions, diverged is ``inf``."""
    keys = results.study.keys
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [*keys, "seed", "chosen", "status", *(f"{c.metric}@{c.at}" for c in results.columns), "run"]
    )
    for group in results.groups:
        chosen = results.chosen(group)
        for setting in group.settings:
            for run in (r for r in setting.runs if r.id in results.results):
                values = [results.value(run, column) for column in results.columns]
                point = [label(run.point[key]) for key in keys]
                status = results.results[run.id]["status"]
                writer.writerow([*point, run.seed, int(setting is chosen), status, *values, run.id])
    return text.getvalue()


def write(results: Results, folder: Path) -> list[Path]:
    """Write ``table.md``, ``table.json`` and ``values.csv`` and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"table.md": to_markdown, "table.json": to_json, "values.csv": to_csv}
    for name, text in texts.items():
        write_atomically(folder / name, text(results))
    return [folder / name for name in texts]
