"""One LaTeX table of several studies: the primary column of each, from their ``table.json``."""

from __future__ import annotations

from collections.abc import Sequence

from actlab.analysis.columns import Column
from actlab.analysis.statistics import FEWEST, p_text
from actlab.analysis.wording import joined, plural
from actlab.reports import latex
from actlab.reports.tables import NONE, mean_difference, number
from actlab.scoreboard.tables import KeptCell, StoredTable, column_of, labels_of, primary

_HEAD = ("", "runs", "median [interval]", "difference [interval]", "p alone / Holm")
_READING = (
    f"Median over seeds [interval of order statistics, or the range of fewer than {FEWEST} runs]; "
    "mean difference to the reference over pairs of seeds [uncorrected 95 % interval of the "
    "sign-flip test]; p of this test, or of the probability of being better where a run diverged, "
    "alone and after Holm's correction within each study."
)


def of_studies(records: Sequence[StoredTable], title: str = "") -> str:
    """Return the table; by default its title names what the studies compared."""
    lines: list[list[str]] = []
    bold: set[int] = set()
    for record in records:
        write = record.text
        for point, rows in record.points:
            column = column_of(primary(rows[0]))
            lines.append([_heading(record, point, column)])
            for row in rows:
                value = row["point"].get(record.compare, "")
                if record.is_own(value):
                    bold.add(len(lines))
                lines.append([write(record.compare, value), *_cells(primary(row), column)])
    table = latex.table(_HEAD, lines, bold, _caption(records, title), "tab:studies")
    return latex.with_packages([table])


def _heading(record: StoredTable, point: str, column: Column) -> str:
    """Return the heading of some rows: ``study: point, column, reference relu``."""
    reference = record.table["reference"]
    if reference:
        reference = f"reference {reference}"
    return f"{record.table['study']}: {joined(point, column.name, reference)}"


def _cells(cell: KeptCell, column: Column) -> list[str]:
    """Return the number of runs, the median, the difference and p."""

    def text(value: float | None) -> str:
        if value is None and cell["diverged"]:
            value = column.worst
        return number(value, column)

    median, spread = text(cell["median"]), cell["interval"]
    if spread and cell["n"] > 1:
        median += f" [{text(spread['low'])}, {text(spread['high'])}]"
    difference, paired = NONE, cell["paired"]
    if cell["pairs"] >= FEWEST:
        difference = mean_difference(paired["mean"], paired["low"], paired["high"], column)
    ps = [p_text(p) for p in (cell["p"], cell["p_holm"]) if p is not None]
    return [str(cell["n"]), median, difference, " / ".join(ps) or NONE]


def _caption(records: Sequence[StoredTable], title: str) -> str:
    """Return the title, how to read the table, and which studies differ from complete ones."""
    unfinished, diverged, on_samples = [], [], []
    for record in records:
        table = record.table
        name, planned, failed = table["study"], table["planned"], table["diverged"]
        ended = table["finished"] + failed
        if ended < planned:
            unfinished.append(f"{name} ({ended} of {plural(planned, 'run')})")
        if failed:
            diverged.append(f"{name} ({plural(failed, 'run')})")
        if record.on_samples:
            on_samples.append(name)

    remarks = {
        "Unfinished": unfinished,
        "Diverged, counted as the worst value": diverged,
        "On samples or a part of the data": on_samples,
    }
    sentences = [f"{title or _title(records)}.", _READING]
    sentences += [f"{remark}: {', '.join(names)}." for remark, names in remarks.items() if names]
    return " ".join(sentences)


def _title(records: Sequence[StoredTable]) -> str:
    """Return what was compared: the title of a single study, or the values of several."""
    if len(records) == 1:
        return records[0].table["title"]
    labels = dict.fromkeys(labels_of(records).values())
    return f"{', '.join(labels)} in {len(records)} studies"
