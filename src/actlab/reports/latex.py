"""Tables in LaTeX, with the package booktabs; all text is escaped.

One table is of several studies, from their ``table.json``: the primary column of each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from actlab.analysis.statistics import FEWEST
from actlab.analysis.study_table import Cell, StudyTable
from actlab.analysis.wording import plural
from actlab.config.values import printers
from actlab.reports import tables
from actlab.reports.tables import NONE

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


def of_studies(studies: Sequence[StudyTable], title: str = "") -> str:
    """Return the table; by default its title names what the studies compared."""
    lines, bold = list[list[str]](), set[int]()
    for study in studies:
        reference = f"reference {study.reference}" if study.reference else ""
        for point, rows in study.points:
            cells = [row.primary or row.columns[0] for row in rows]
            words = ", ".join(filter(None, (point, cells[0].name, reference)))
            lines.append([f"{study.study}: {words}"])
            for row, cell in zip(rows, cells, strict=True):
                if study.is_own(row):
                    bold.add(len(lines))
                lines.append([study.label(row), *_cells(cell)])
    return with_packages([table(_HEAD, lines, bold, _caption(studies, title), "tab:studies")])


def _cells(cell: Cell) -> list[str]:
    middle = " ".join(filter(None, [tables.number(cell.median, cell), tables.interval(cell)]))
    return [str(cell.n), middle, tables.mean_difference(cell), tables.p_values(cell)]


def _caption(studies: Sequence[StudyTable], title: str) -> str:
    # What is said of some studies only
    unfinished, diverged, on_samples = [], [], []
    for study in studies:
        if study.ended < study.planned:
            unfinished.append(f"{study.study} ({study.ended} of {plural(study.planned, 'run')})")
        if study.diverged:
            diverged.append(f"{study.study} ({plural(study.diverged, 'run')})")
        if study.on_samples:
            on_samples.append(study.study)
    remarks = {
        "Unfinished": unfinished,
        "Diverged, counted as the worst value": diverged,
        "On samples or a part of the data": on_samples,
    }

    said = [
        f"{title or _title(studies)}.",
        f"Median over seeds [interval of order statistics, or the range of fewer than {FEWEST} runs]; mean "
        "difference to the reference over pairs of seeds [uncorrected 95 % interval of the sign-flip test]; p "
        "of this test, or of the probability of being better where a run diverged, alone and after Holm's "
        "correction within each study.",
        *(f"{what}: {', '.join(names)}." for what, names in remarks.items() if names),
    ]
    return " ".join(said)


def _title(studies: Sequence[StudyTable]) -> str:
    if len(studies) == 1:
        return studies[0].title
    write = printers(row.point for study in studies for row in study.rows)
    names = dict.fromkeys(write(study.compare, value) for study in studies for value in study.values)
    return f"{', '.join(names)} in {len(studies)} studies"
