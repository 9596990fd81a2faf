"""``actlab report``: write one page about all studies in a folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from actlab.analysis import scoreboard
from actlab.cli.study_output import add_paper_options, paper_of
from actlab.errors import Parser
from actlab.reports import forest
from actlab.reports.pages import index


def main(argv: Sequence[str]) -> None:
    """Write the page about all studies and its forest plots, and print their paths."""
    args = parser().parse_args(argv)
    runs, paper = args.runs_dir, paper_of(args)
    found = scoreboard.read(runs)
    for line in found.left_out:
        print(f"note: {line}", file=sys.stderr)
    boards = scoreboard.boards(found.records)
    for path in [*forest.write(boards, runs), *(forest.write(boards, runs, paper)[1:] if paper else ())]:
        print(path)
    print(index.write(runs, found))


def parser() -> Parser:
    """Return the argument parser of ``actlab report``."""
    found = Parser(
        prog="actlab report",
        description="Write one page about all studies: for each task the differences of the activations to "
        "GELU with intervals, also as a forest plot, then their medians and ranks.",
        examples=["actlab report", "actlab report --runs-dir runs/scoreboard-minutes --paper 1"],
    )
    found.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")
    add_paper_options(found)
    return found
