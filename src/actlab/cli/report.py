"""``actlab report``: one page over all studies of a folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from actlab.analysis import scoreboard
from actlab.errors import Parser
from actlab.reports.pages import index


def main(argv: Sequence[str]) -> None:
    """``actlab report``: write the page over all studies and say where.

    Raises:
        ActlabError: for words it does not know, or a folder without a study's table.
    """
    runs = parser().parse_args(argv).runs_dir
    found = scoreboard.read(runs)
    for line in found.left_out:
        print(f"note: {line}", file=sys.stderr)
    print(index.write(runs, found))


def parser() -> Parser:
    """The command line of ``actlab report``."""
    found = Parser(
        prog="actlab report",
        description="Write one page over all studies: each unit's median and rank in each task.",
        examples=["actlab report", "actlab report --runs-dir runs/scoreboard-small"],
    )
    found.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")
    return found
