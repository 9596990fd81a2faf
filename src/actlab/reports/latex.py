"""Tables in LaTeX, with the package booktabs; all text is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

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


def escaped(text: str) -> str:
    r"""Return text as LaTeX prints it literally, with mathematical minus signs before numbers.

    >>> print(escaped("gelu_tanh, -0.10 % & more"))
    gelu\_tanh, $-$0.10 \% \& more
    """
    return "".join(_SPECIAL.get(char, char) for char in _MINUS.sub("−", text.replace("\n", " ")))


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], bold: set[int], caption: str, label: str
) -> str:
    """Return a ``table`` environment with the first column left-aligned and the others right-aligned.

    A row of a single cell is a heading over all columns. ``bold`` are indices of rows whose first
    cell is bold, ``label`` is the name for ``ref``.
    """
    lines = []
    for i, row in enumerate([head, *rows]):
        first, *others = ("--" if cell == NONE else escaped(cell) for cell in row)
        if i - 1 in bold:
            first = f"\\textbf{{{first}}}"
        elif first[:1] in (
            "[",
            "*",
        ):  # which LaTeX would take for an argument of the end of the row before
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
