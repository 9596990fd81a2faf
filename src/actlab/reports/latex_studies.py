"""One LaTeX table of several studies, from their ``table.json``: the primary column of each."""

from __future__ import annotations

from collections.abc import Sequence

from actlab.analysis.columns import Column
from actlab.analysis.points import plural, printers
from actlab.analysis.scoreboard import KeptCell, Record, column_of, primary
from actlab.analysis.statistics import FEWEST
from actlab.reports import latex
from actlab.reports.tables import NONE, number, p_value

_HEAD = ("", "runs", "median [interval]", "difference [interval]", "p alone / Holm")


def to_latex(records: Sequence[Record], title: str = "") -> str:
    """Return the table; by default its title names what the studies compared."""
    lines: list[list[str]] = []
    bold: list[int] = []
    for record in records:
        reference = f"reference {record.table['reference']}" * bool(record.table["reference"])
        write = printers(row["point"] for row in record.table["rows"])
        for point, rows in record.points:
            cells = [primary(row) or row["columns"][0] for row in rows]
            column = column_of(cells[0])
            words = ", ".join(filter(None, (point, column.name, reference)))
            lines.append([f"{record.table['study']}: {words}"])
            for row, cell in zip(rows, cells, strict=True):
                value = row["point"].get(record.compare, "")
                bold += [len(lines)] * record.is_own(value)
                lines.append([write(record.compare, value), *_cells(cell, column)])
    return latex.with_packages([latex.table(_HEAD, lines, bold, _caption(records, title), "tab:studies")])


def _cells(cell: KeptCell, column: Column) -> list[str]:
    def text(value: float | None, signed: bool = False) -> str:
        return number(column.worst if value is None and cell["diverged"] else value, column, signed)

    median, difference, spread, paired = text(cell["median"]), NONE, cell["interval"], cell["paired"]
    if spread and cell["n"] > 1:
        median += f" [{text(spread['low'])}, {text(spread['high'])}]"
    if cell["pairs"] >= FEWEST and paired["mean"] is not None:
        difference = number(paired["mean"], column, signed=True)
        if paired["low"] is not None:
            difference += f" [{text(paired['low'], True)}, {text(paired['high'], True)}]"
    ps = [p_value(p) for p in (cell["p"], cell["p_holm"]) if p is not None]
    return [str(cell["n"]), median, difference, " / ".join(ps) or NONE]


def _caption(records: Sequence[Record], title: str) -> str:
    tables = [record.table for record in records]
    ended = [table["finished"] + table["diverged"] for table in tables]
    remarks = {
        "Unfinished": [
            f"{table['study']} ({number} of {plural(table['planned'], 'run')})"
            for table, number in zip(tables, ended, strict=True)
            if number < table["planned"]
        ],
        "Diverged, counted as the worst value": [
            f"{table['study']} ({plural(table['diverged'], 'run')})" for table in tables if table["diverged"]
        ],
        "On samples or a part of the data": [r.table["study"] for r in records if r.on_samples],
    }
    said = [
        f"{title or _title(records)}.",
        f"Median over seeds [interval of order statistics, or the range of fewer than {FEWEST} runs]; mean "
        "difference to the reference over pairs of seeds [uncorrected 95 % interval of the sign-flip test]; p "
        "of this test, or of the probability of being better where a run diverged, alone and after Holm's "
        "correction within each study.",
        *(f"{what}: {', '.join(studies)}." for what, studies in remarks.items() if studies),
    ]
    return " ".join(said)


def _title(records: Sequence[Record]) -> str:
    if len(records) == 1:
        return records[0].table["title"]
    points = [
        (r.compare, row["point"]) for r in records for row in r.table["rows"] if r.compare in row["point"]
    ]
    write = printers(point for _, point in points)
    names = dict.fromkeys(write(key, point[key]) for key, point in points)
    return f"{', '.join(names)} in {len(records)} studies"
