"""Tables in LaTeX, with the package booktabs; all text is escaped.

One table is of several studies, from their ``table.json``: the primary column of each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from actlab.analysis.columns import Column
from actlab.analysis.scoreboard import KeptCell, StoredTable, column_of, primary
from actlab.analysis.statistics import FEWEST, p_text
from actlab.analysis.wording import plural
from actlab.config.values import printers
from actlab.reports.tables import NONE, mean_difference, number

_SPECIAL = {
    **{char: f"\\{char}" for char in "#$%&_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{char: f"${char}$" for char in "<>|"},
    '"': r"\textquotedbl{}",
    "+": "$+$",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "…": r"\dots{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "∞": r"$\infty$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\rightarrow$",
    "§": r"\S{}",
}
LAST_OF_PDFLATEX = 0x17F  # last letter that pdfLaTeX sets without further packages
_MINUS = re.compile(r"(?<![\w.-])-(?=\d|∞)")  # of a number, not within a name
_HEAD = ("", "runs", "median [interval]", "difference [interval]", "p alone / Holm")


def escaped(text: str) -> str:
    r"""Return text as LaTeX prints it literally, with mathematical minus signs before numbers.

    >>> print(escaped("gelu_tanh, -0.10 % & more"))
    gelu\_tanh, $-$0.10 \% \& more
    """
    return "".join(_SPECIAL.get(char, char) for char in _MINUS.sub("−", text.replace("\n", " ")))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], bold: set[int], caption: str, label: str) -> str:
    """Return a ``table`` environment with the first column left-aligned and the others right-aligned.

    A row of a single cell is a heading over all columns. ``bold`` are indices of rows whose first cell is bold,
    ``label`` is the name for ``ref``.
    """
    lines = []
    for i, row in enumerate([head, *rows]):
        first, *others = ("--" if cell == NONE else escaped(cell) for cell in row)
        if i - 1 in bold:
            first = f"\\textbf{{{first}}}"
        elif first[:1] in ("[", "*"):  # which LaTeX would take for an argument of the end of the row before
            first = f"{{}}{first}"
        line = " & ".join([first, *others]) + r" \\"
        heading = f"\\midrule\n\\multicolumn{{{len(head)}}}{{l}}{{{first}}} \\\\"
        lines.append(heading if len(row) == 1 < len(head) else line)
    rule = [] if lines[1:] and lines[1].startswith(r"\midrule") else [r"\midrule"]
    body = "\n".join([r"\toprule", lines[0], *rule, *lines[1:], r"\bottomrule"])
    tabular = f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}\n{body}\n\\end{{tabular}}"
    above = f"\\begin{{table}}\n\\centering\n\\caption{{{escaped(caption)}}}\n\\label{{{label}}}"
    return f"{above}\n{tabular}\n\\end{{table}}"


def with_packages(tables: Sequence[str]) -> str:
    """Return tables below comments that name the package, and where it is so the engine, that they require."""
    text = "\n\n".join(["% \\usepackage{booktabs}", *tables])
    outside = sorted({char for char in text if ord(char) > LAST_OF_PDFLATEX})
    hint = f"% XeLaTeX or LuaLaTeX only, because of: {' '.join(outside)}\n" if outside else ""
    return hint + text + "\n"


def of_studies(records: Sequence[StoredTable], title: str = "") -> str:
    """Return the table; by default its title names what the studies compared."""
    lines, bold = list[list[str]](), set[int]()
    for record in records:
        reference = f"reference {name}" if (name := record.table["reference"]) else ""
        write = printers(row["point"] for row in record.table["rows"])
        for point, rows in record.points:
            cells = [primary(row) or row["columns"][0] for row in rows]
            column = column_of(cells[0])
            words = ", ".join(filter(None, (point, column.name, reference)))
            lines.append([f"{record.table['study']}: {words}"])
            for row, cell in zip(rows, cells, strict=True):
                value = row["point"].get(record.compare, "")
                if record.is_own(value):
                    bold.add(len(lines))
                lines.append([write(record.compare, value), *_studies_cells(cell, column)])
    return with_packages([table(_HEAD, lines, bold, _caption(records, title), "tab:studies")])


def _studies_cells(cell: KeptCell, column: Column) -> list[str]:
    def text(value: float | None) -> str:
        return number(column.worst if value is None and cell["diverged"] else value, column)

    median, difference, spread, paired = text(cell["median"]), NONE, cell["interval"], cell["paired"]
    if spread and cell["n"] > 1:
        median += f" [{text(spread['low'])}, {text(spread['high'])}]"
    if cell["pairs"] >= FEWEST:
        difference = mean_difference(paired["mean"], paired["low"], paired["high"], column)
    ps = [p_text(p) for p in (cell["p"], cell["p_holm"]) if p is not None]
    return [str(cell["n"]), median, difference, " / ".join(ps) or NONE]


def _caption(records: Sequence[StoredTable], title: str) -> str:
    tables = [record.table for record in records]
    remarks = {
        "Unfinished": [
            f"{table['study']} ({ended} of {plural(table['planned'], 'run')})"
            for table in tables
            if (ended := table["finished"] + table["diverged"]) < table["planned"]
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


def _title(records: Sequence[StoredTable]) -> str:
    if len(records) == 1:
        return records[0].table["title"]
    write = printers(row["point"] for record in records for row in record.table["rows"])
    names = dict.fromkeys(write(record.compare, value) for record in records for value in record.values)
    return f"{', '.join(names)} in {len(records)} studies"
