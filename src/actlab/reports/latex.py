"""Tables in LaTeX, with the package booktabs; all text is escaped."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

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
_MINUS = re.compile(r"(?<![\w.-])-(?=\d|∞)")  # of a number, not within a name
# Letters without a command: those that look like Latin ones.
_LIKE_LATIN = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True))


def escaped(text: str) -> str:
    r"""Return text as LaTeX prints it literally, with mathematical minus signs before numbers.

    >>> print(escaped("gelu_tanh, -0.10 % & α"))
    gelu\_tanh, $-$0.10 \% \& $\alpha$
    """
    return "".join(_SPECIAL.get(char) or _greek(char) for char in _MINUS.sub("−", text.replace("\n", " ")))


def _greek(char: str) -> str:
    """Return a Greek letter as a command, and any other character unchanged."""
    name = unicodedata.name(char, "")
    found = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", name)
    if char in _LIKE_LATIN or not found:
        return _LIKE_LATIN.get(char, char)
    word = found[2].replace("LAMDA", "lambda").lower()
    return f"$\\{word.capitalize() if found[1] == 'CAPITAL' else word}$"


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], bold: Collection[int], caption: str, label: str
) -> str:
    """Return a ``table`` environment with the first column left-aligned and the others right-aligned.

    ``bold`` are indices of rows whose first cell is bold, ``label`` is the name for ``ref``.
    """
    lines = []
    for i, row in enumerate([head, *rows]):
        first, *others = map(escaped, row)
        if i - 1 in bold:
            first = f"\\textbf{{{first}}}"
        elif first[:1] in ("[", "*"):  # which LaTeX would take for an argument of the end of the row before
            first = f"{{}}{first}"
        lines.append(" & ".join([first, *others]) + r" \\")
    body = "\n".join([r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"])
    tabular = f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}\n{body}\n\\end{{tabular}}"
    above = f"\\begin{{table}}\n\\centering\n\\caption{{{escaped(caption)}}}\n\\label{{{label}}}"
    return f"{above}\n{tabular}\n\\end{{table}}"
