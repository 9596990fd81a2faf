"""Cells of ``table.json`` as a study writes them, by hand."""

import json
from pathlib import Path
from typing import Any

from actlab.analysis.study_table import StudyTable
from actlab.storage.json_files import checked


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
    texts = {"study": name, "title": name, "compare": compare, "verdicts": [], "sources": {}}
    counts = {"planned": 9, "finished": 9, "diverged": 0}
    state = {"reference": "relu", "own": [], "cut": "", "samples": False, "seeds": [0, 1, 2]}
    return {**texts, **counts, **state, "rows": rows, **given}


def as_record(one: dict[str, Any]) -> StudyTable:
    """A table as reports read it."""
    return checked(one, StudyTable)


def leave(runs: Path, *tables: dict[str, Any]) -> None:
    """Write tables where studies leave them."""
    for one in tables:
        (runs / one["study"]).mkdir(parents=True)
        (runs / one["study"] / "table.json").write_text(json.dumps(one))
