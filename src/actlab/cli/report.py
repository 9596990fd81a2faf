"""``actlab report``: write one page about all studies in a folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from actlab.analysis import scoreboard
from actlab.errors import Parser
from actlab.reports.pages import index


def main(argv: Sequence[str]) -> None:
    """Write the page about all studies and print its path.

    Raises:
        ActlabError: for unknown arguments, or if no study in the folder has a table.
    """
    runs = parser().parse_args(argv).runs_dir
    found = scoreboard.read(runs)
    for line in found.left_out:
        print(f"note: {line}", file=sys.stderr)
    print(index.write(runs, found))


def parser() -> Parser:
    """Return the argument parser of ``actlab report``."""
    found = Parser(
        prog="actlab report",
        description="Write one page about all studies: median and rank of each activation in each task.",
        examples=["actlab report", "actlab report --runs-dir runs/scoreboard-small"],
    )
    found.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")
    return found
