"""``actlab report``: write one page that lists all studies in a folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from actlab.analysis import study_table
from actlab.cli.parser import Parser
from actlab.cli.study_options import add_folder_option
from actlab.errors import ActlabError
from actlab.scoreboard import (
    page_file,
    studies_latex,
    studies_overview,
    studies_page,
    tables,
)


def main(argv: Sequence[str]) -> None:
    """Write the page that lists all studies, and print its path; or print LaTeX tables."""
    args = parser().parse_args(argv)
    # A page has no title of the user's
    if args.title and not args.latex:
        raise ActlabError(
            "--title requires --latex, because it is the title of the LaTeX table. Add --latex."
        )

    # The page of a scoreboard has the same name
    if page_file.is_in(args.runs_dir) and not args.latex:
        raise ActlabError(
            f"--runs-dir: expected a folder without the {page_file.NAME} of a scoreboard, got "
            f"{str(args.runs_dir)!r}. Use another folder, or add --latex."
        )

    # Read the tables
    stored = tables.read(args.runs_dir)
    if not stored.records:
        # The first folder that was left out explains why there is no table
        if stored.left_out:
            raise ActlabError(stored.left_out[0])
        raise ActlabError(
            f"--runs-dir: expected a folder of studies with {study_table.NAME}, got "
            f"{str(args.runs_dir)!r}. Run a study, such as `actlab study run demo`, or write its "
            "table with `actlab study report`."
        )

    # Read which studies are a task
    study_tables = [record.table for record in stored.records]
    tasks: dict[str, str] = {}
    if args.tasks:
        tasks = studies_overview.read_tasks(args.tasks, study_tables)

    # Write the page, or print the tables
    for line in stored.left_out:
        print(f"note: {line}", file=sys.stderr)
    if args.latex:
        print(studies_latex.of_studies(study_tables, args.title, tasks), end="")
    else:
        print(studies_page.write(args.runs_dir, stored, tasks))


def parser() -> Parser:
    """Return the argument parser of ``actlab report``."""
    command = Parser(
        prog="actlab report",
        description="Write one page that lists all studies of a folder, each with its verdict, its "
        "first figure and a link to its own page. Activations that several studies compare with "
        "the same reference have an overview, in which each study is a task.",
        examples=[
            "actlab report",
            "actlab report --latex --title 'Three activations on two tasks'",
            "actlab report --tasks tasks.yaml",
        ],
    )

    # Where to read, and what to write
    add_folder_option(command)
    command.add_argument(
        "--latex", action="store_true", help="print LaTeX tables of all studies instead"
    )
    command.add_argument(
        "--tasks",
        type=Path,
        metavar="FILE",
        help="YAML file of lines TASK: [STUDY, STUDY], which puts several studies into one task",
    )
    command.add_argument(
        "--title",
        default="",
        metavar="TEXT",
        help="title of the table of --latex; default: the compared activations",
    )
    return command
