"""Cells of ``table.json`` as a study writes them, by hand, and what the page over studies says of them."""

import html
import json
import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from actlab.analysis.scoreboard import StoredTable, Tables
from actlab.reports.pages import index


def cell(values: dict[str, float | None], median: float | None, **column: Any) -> dict[str, Any]:
    """A cell of test errors, with the values of its runs by seed, or of another column."""
    return {
        **{"metric": "test/error", "at": "last", "condition": "", "mode": "min", "percent": True},
        **{"primary": True, "n": len(values), "median": median, "interval": None, "values": values},
        **{"diverged": None in values.values(), "biased": False, "chance": None, "samples": None},
        **{"pairs": 0, "paired": {}, "p": None, "p_holm": None},
        **column,
    }


def table(name: str, compare: str, rows: list[dict[str, Any]], **given: Any) -> dict[str, Any]:
    """A table with some rows."""
    counts = {"planned": 9, "finished": 9, "diverged": 0}
    state = {"reference": "relu", "own": [], "cut": "", "samples": False, "notes": []}
    return {"study": name, "title": name, "compare": compare, **counts, **state, "rows": rows, **given}


def leave(runs: Path, *tables: dict[str, Any]) -> None:
    """Write tables where studies leave them."""
    for one in tables:
        (runs / one["study"]).mkdir(parents=True)
        (runs / one["study"] / "table.json").write_text(json.dumps(one))


def on_page(records: Iterable[StoredTable]) -> str:
    """The text of the page over studies, without its tags."""
    with TemporaryDirectory() as folder:
        page = index.write(Path(folder), Tables([*records], [])).read_text(encoding="utf-8")
    return " ".join(html.unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)).split())
