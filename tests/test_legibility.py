"""The code of the package stays as easy to read as it is: its figures stay within bounds."""

from pathlib import Path

import pytest

import actlab
from legibility import by_package, counts_of, figures_of

ROOT = Path(actlab.__file__).parent
PACKAGES = by_package(ROOT)

AT_MOST = {
    "nodes a statement": 10.5,
    "nodes a line of code": 8.5,
    "comprehensions": 35,
    "conditional expressions": 18,
    "walruses": 3,
    "lines of code a comment": 9.0,
    "% of names that are pronouns": 0.5,
}
AT_LEAST = {"% of long functions with a blank line": 55}
IN_A_PACKAGE = 11.5  # nodes a statement


def test_the_whole_is_within_the_bounds():
    figures = figures_of(sorted(ROOT.rglob("*.py")))

    above = {name: figures[name] for name, bound in AT_MOST.items() if figures[name] > bound}
    below = {name: figures[name] for name, bound in AT_LEAST.items() if figures[name] < bound}

    assert (above, below) == ({}, {})


@pytest.mark.parametrize("package", PACKAGES)
def test_no_package_is_much_denser_than_the_whole(package):
    assert figures_of(PACKAGES[package])["nodes a statement"] <= IN_A_PACKAGE


def test_what_is_counted(tmp_path):
    """Counted by hand: 2 statements in a function of one line, one comprehension, a pronoun."""
    file = tmp_path / "module.py"
    file.write_text(
        '"""A module."""\n\n\ndef double(values):\n'
        "    # Twice each.\n"
        "    others = [2 * value for value in values]\n"
        "    return others if others else None\n",
        encoding="utf-8",
    )

    counts = counts_of(file)

    assert counts["code"] == 3
    assert counts["statements"] == 4  # the docstring, the function, and two in it
    assert counts["comprehensions"] == counts["conditional expressions"] == 1
    assert (counts["comments"], counts["pronouns"], counts["names"]) == (1, 1, 2)
    assert counts["long functions"] == 0
