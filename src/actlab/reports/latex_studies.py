"""One LaTeX table of several studies, from their ``table.json``: the primary column of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from actlab.analysis.columns import Column
from actlab.analysis.points import in_words, plural, printers
from actlab.analysis.scoreboard import Cell, Record, TableRow, primary
from actlab.analysis.statistics import FEWEST
from actlab.config.keys import canonical, in_full, mode_of, plain_unit, without
from actlab.reports import latex
from actlab.reports.tables import NONE, number, p_value

_HEAD = ("", "runs", "median [interval]", "difference [interval]", "p alone / Holm")


def to_latex(records: Sequence[Record], title: str = "") -> str:
    """Return the table; by default its title names what the studies compared."""
    rows: list[list[str]] = []
    bold: list[int] = []
    for record in records:
        for heading, compared in _tasks(record):
            rows.append([heading])
            for cells, own in compared:
                bold += [len(rows)] * own
                rows.append(["--" if cell == NONE else cell for cell in cells])
    return latex.with_packages([latex.table(_HEAD, rows, bold, _caption(records, title), "tab:studies")])


def _tasks(record: Record) -> Iterator[tuple[str, list[tuple[list[str], bool]]]]:
    """Yield a heading for each grid point but for the compared key, and the cells of each compared value."""
    table: Mapping[str, Any] = record.table
    compare, rows = record.compare, table["rows"]
    write = printers(row["point"] for row in rows)
    reference = f"reference {table['reference']}" if table.get("reference") else ""
    points = {canonical(rest): rest for rest in (without(row["point"], [compare]) for row in rows)}
    for key, rest in points.items():
        mine = [row for row in rows if canonical(without(row["point"], [compare])) == key]
        first = _primary(mine[0])
        mode = first.get("mode") or mode_of(first["metric"])
        column = Column(
            first["metric"], first["at"], bool(first.get("percent")), mode, first.get("condition", "")
        )
        where = [in_words(rest, text=write), table.get("cut", ""), column.name, reference]
        values = [row["point"].get(compare, "") for row in mine]
        owned = [in_full(plain_unit(value)) in table.get("own", ()) for value in values]
        cells = [[write(compare, v), *_cells(_primary(r), column)] for v, r in zip(values, mine, strict=True)]
        yield f"{table['study']}: {', '.join(filter(None, where))}", list(zip(cells, owned, strict=True))


def _primary(row: TableRow) -> Cell:
    """Return the primary cell of a row, the first of one that ranks nothing."""
    return primary(row) or row["columns"][0]


def _cells(cell: Mapping[str, Any], column: Column) -> list[str]:
    """Return runs, median, difference and p-values as printed."""
    worst = column.worst if cell.get("diverged") else None

    def text(value: float | None, signed: bool = False) -> str:
        return number(worst if value is None else value, column, signed)

    median, paired, spread = text(cell["median"]), cell.get("paired") or {}, cell.get("interval")
    if spread and cell["n"] > 1:
        median += f" [{text(spread['low'])}, {text(spread['high'])}]"
    mean, low, high = (paired.get(key) for key in ("mean", "low", "high"))
    difference = NONE
    if cell.get("pairs", 0) >= FEWEST and mean is not None:
        difference = number(mean, column, signed=True)
        if low is not None and high is not None:
            difference += f" [{text(low, True)}, {text(high, True)}]"
    p = cell.get("p")
    ps = NONE if p is None else " / ".join(p_value(x) for x in (p, cell.get("p_holm")) if x is not None)
    return [str(cell["n"]), median, difference, ps]


def _caption(records: Sequence[Record], title: str) -> str:
    tables: list[Mapping[str, Any]] = [record.table for record in records]
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
        "On samples or a part of the data": [str(r.table["study"]) for r in records if r.on_samples],
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
    """Return what was compared in how many studies, or the title of the only one."""
    if len(records) == 1:
        return str(records[0].table["title"])
    points = [
        (r.compare, row["point"]) for r in records for row in r.table["rows"] if r.compare in row["point"]
    ]
    write = printers(point for _, point in points)
    names = dict.fromkeys(write(key, point[key]) for key, point in points)
    return f"{', '.join(names)} in {len(records)} studies"
