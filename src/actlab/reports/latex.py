"""Tables in LaTeX, with the package booktabs; all text is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from actlab.reports.tables import NONE

_ESCAPES = str.maketrans(
    {
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
)
LAST_OF_PDFLATEX = 0x17F  # last letter that pdfLaTeX sets without further packages
_MINUS = re.compile(r"(?<![\w.-])-(?=\d|∞)")  # of a number, not within a name


def escaped(text: str) -> str:
    r"""Return text as LaTeX prints it literally, with mathematical minus signs before numbers.

    >>> print(escaped("gelu_tanh, -0.10 % & more"))
    gelu\_tanh, $-$0.10 \% \& more
    """
    line = text.replace("\n", " ")
    return _MINUS.sub("−", line).translate(_ESCAPES)


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    bold: set[int],
    caption: str,
    label: str,
) -> str:
    """Return a ``table`` environment, with the first column left-aligned, the others right-aligned.

    Args:
        head: the names of the columns, at least one.
        rows: the cells of each row; a row of a single cell is a heading over all columns.
        bold: indices of rows whose first cell is bold.
        caption: text above the table.
        label: name for ``ref``.
    """
    # The header, and a rule below it; a heading has a rule of its own
    body = [r"\toprule", _line(head)]
    # booktabs would draw two rules in a row
    has_heading = bool(rows) and _is_heading(rows[0], head)
    if not has_heading:
        body.append(r"\midrule")

    # Rows
    for number, row in enumerate(rows):
        if _is_heading(row, head):
            text = _first_cell(row[0], number in bold)
            body.append(f"\\midrule\n\\multicolumn{{{len(head)}}}{{l}}{{{text}}} \\\\")
        else:
            body.append(_line(row, number in bold))
    body.append(r"\bottomrule")

    # Numbers are right-aligned
    alignment = "l" + "r" * (len(head) - 1)
    lines = [
        r"\begin{table}",
        r"\centering",
        f"\\caption{{{escaped(caption)}}}",
        f"\\label{{{label}}}",
        f"\\begin{{tabular}}{{{alignment}}}",
        *body,
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _is_heading(row: Sequence[str], head: Sequence[str]) -> bool:
    return len(row) == 1 < len(head)


def _line(row: Sequence[str], bold: bool = False) -> str:
    label, *cells = row
    texts = [_first_cell(label, bold), *map(_cell, cells)]
    return " & ".join(texts) + r" \\"


def _first_cell(text: str, bold: bool) -> str:
    text = _cell(text)
    if bold:
        return f"\\textbf{{{text}}}"
    # LaTeX would take these for an argument of the end of the row before
    if text.startswith(("[", "*")):
        return f"{{}}{text}"
    return text


def _cell(text: str) -> str:
    return "--" if text == NONE else escaped(text)


def with_packages(tables: Sequence[str]) -> str:
    """Return tables below comments that name the required package.

    A second comment names the required engine if pdfLaTeX does not set all letters.
    """
    text = "\n\n".join(["% \\usepackage{booktabs}", *tables]) + "\n"
    # Names of activations may have any letter
    outside = sorted({char for char in text if ord(char) > LAST_OF_PDFLATEX})
    if outside:
        text = f"% XeLaTeX or LuaLaTeX only, because of: {' '.join(outside)}\n{text}"
    return text
