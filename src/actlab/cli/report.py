"""``actlab report``: write one page about all studies in a folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from actlab.analysis import scoreboard
from actlab.cli.study_output import add_paper_options, paper_of
from actlab.errors import ActlabError, Parser
from actlab.reports import boards, latex
from actlab.reports.pages import index


def main(argv: Sequence[str]) -> None:
    """Write the page about all studies, figures and numbers, and print their paths; or print a LaTeX table."""
    args = parser().parse_args(argv)
    runs, paper = args.runs_dir, paper_of(args)
    stored = scoreboard.read(runs)
    for line in stored.left_out if stored.records else ():  # else one of them is the error
        print(f"note: {line}", file=sys.stderr)
    if args.title and not args.latex:
        raise ActlabError(f"--title {args.title}: is the title of a table of --latex: give --latex too")
    if args.latex:
        if not stored.records:
            none = f"{runs} has no {scoreboard.TABLE} of a study: run one, or give --runs-dir"
            raise ActlabError([*stored.left_out, none][0])
        print(latex.of_studies(stored.records, args.title), end="")
        return
    for path in boards.write(scoreboard.boards(stored.records), runs, paper):
        print(path)
    print(index.write(runs, stored))


def parser() -> Parser:
    """Return the argument parser of ``actlab report``."""
    command = Parser(
        prog="actlab report",
        description="Write one page about all studies: for each task the differences of the activations to "
        "GELU with intervals, over tasks the mean probability of being better and performance profiles, both "
        "also as figures and files of all digits, then medians.",
        examples=[
            "actlab report",
            "actlab report --runs-dir runs/scoreboard-minutes --paper 1",
            "actlab report --latex --title 'Three activations on two tasks'",
        ],
    )
    command.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")
    command.add_argument(
        "--latex", action="store_true", help="print one table of all studies for a paper instead"
    )
    command.add_argument("--title", default="", metavar="TEXT", help="of --latex; default: what was compared")
    add_paper_options(command)
    return command
