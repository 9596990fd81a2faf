"""How densely a package is written: counts of its syntax trees and of its lines.

``python tests/legibility.py src/actlab`` prints the figures of each package and of the whole.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)
LONG_FUNCTION = 10  # lines
NO_CODE = {
    *(tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENDMARKER, tokenize.COMMENT),
}

# Names that say nothing about the thing that they stand for.
PRONOUNS = frozenset(
    {
        *("alike", "apart", "asked", "found", "given", "here", "its", "kept", "known", "left"),
        *("mine", "named", "of", "one", "other", "others", "ours", "own", "right_one", "said"),
        *("shown", "theirs", "there", "told", "wanted", "whole"),
    }
)


def docstring_lines(node: ast.AST) -> int:
    """Return the number of lines of the docstring of a module, class or function."""
    if not isinstance(node, DOCUMENTED) or ast.get_docstring(node) is None:
        return 0
    docstring = node.body[0]
    return (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1


def is_airy(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> bool | None:
    """Return whether a blank line stands in the body of a long function; None for a short one."""
    body = lines[function.body[0].lineno - 1 + docstring_lines(function) : function.end_lineno]
    if len(body) < LONG_FUNCTION:
        return None
    return any(not line.strip() for line in body)


def counts_of(path: Path) -> Counter[str]:
    """Count what a file holds."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    counts: Counter[str] = Counter()

    # Count the nodes of the syntax tree.
    for node in ast.walk(ast.parse(text)):
        counts["nodes"] += 1
        counts["statements"] += isinstance(node, ast.stmt)
        counts["comprehensions"] += isinstance(node, COMPREHENSIONS)
        counts["conditional expressions"] += isinstance(node, ast.IfExp)
        counts["walruses"] += isinstance(node, ast.NamedExpr)
        counts["docstring lines"] += docstring_lines(node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts["names"] += 1
            counts["pronouns"] += node.id in PRONOUNS
        if isinstance(node, FUNCTIONS):
            airy = is_airy(node, lines)
            counts["long functions"] += airy is not None
            counts["airy functions"] += airy is True

    # Count comments, and the lines that hold code outside docstrings.
    lines_of_code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            counts["comments"] += 1
        elif token.type not in NO_CODE:
            lines_of_code.update(range(token.start[0], token.end[0] + 1))
    counts["code"] = len(lines_of_code) - counts["docstring lines"]
    return counts


def figures_of(paths: Iterable[Path]) -> dict[str, float]:
    """Return the figures of some files together, by name; rates are per 1,000 lines of code."""
    counts: Counter[str] = Counter()
    for path in paths:
        counts.update(counts_of(path))

    code = max(counts["code"], 1)
    return {
        "nodes": counts["nodes"],
        "nodes a statement": counts["nodes"] / max(counts["statements"], 1),
        "nodes a line of code": counts["nodes"] / code,
        "comprehensions": 1000 * counts["comprehensions"] / code,
        "conditional expressions": 1000 * counts["conditional expressions"] / code,
        "walruses": 1000 * counts["walruses"] / code,
        "% of long functions with a blank line": 100
        * counts["airy functions"]
        / max(counts["long functions"], 1),
        "lines of code a comment": code / max(counts["comments"], 1),
        "% of names that are pronouns": 100 * counts["pronouns"] / max(counts["names"], 1),
    }


def by_package(root: Path) -> dict[str, list[Path]]:
    """Return the files below a package by folder; files that lie in no folder by an empty name."""
    packages: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*.py")):
        folders = path.relative_to(root).parts[:-1]
        name = folders[0] if folders else ""
        packages.setdefault(name, []).append(path)
    return packages


def main(folder: str) -> None:
    """Print the figures of each package below a folder, and of all."""
    root = Path(folder)
    groups = {**by_package(root), "all": sorted(root.rglob("*.py"))}
    for name, paths in groups.items():
        figures = figures_of(paths)
        print(f"{name:12}", *(f"{key} {value:.1f}" for key, value in figures.items()), sep="  ")


if __name__ == "__main__":
    main(*sys.argv[1:])
