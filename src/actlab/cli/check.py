"""``actlab check``: a table about one activation, in seconds."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from actlab.checks.rows import NAMES, REQUIRED, Property
from actlab.cli.parser import Parser
from actlab.config.labels import label
from actlab.engines.running import untried
from actlab.engines.workers import EndedError, Worker
from actlab.errors import ActlabError
from actlab.studies.reading import ACTIVATION_FORMS, activation

_MARKS = {True: ("ok", "green"), False: ("FAILS", "red"), None: ("", "")}
_NOTE = (
    "The first three rows are requirements: `actlab study run` rejects an activation that violates "
    "one. All other\nrows are information, in evaluation mode."
)


def parser() -> Parser:
    """Return the command line of ``actlab check``."""
    command = Parser(
        prog="actlab check",
        description="Measure properties of one activation in seconds: requirements, derivatives, "
        "precision, state, stacking and cost.",
        examples=[
            "actlab check ./my_activation.py:MyActivation",
            "actlab check '{name: elu, alpha: 0.5}'",
        ],
    )
    command.add_argument(
        "activation", metavar="NAME", help=f"the activation: {ACTIVATION_FORMS}"
    )
    return command


def main(argv: Sequence[str]) -> int:
    """Print the table, measured in a child process, which the activation may end.

    Returns:
        1 if the activation violates a requirement, else 0.
    """
    text = parser().parse_args(argv).activation
    spec = activation(text)

    # Measure the rows, as far as the process gets
    rows: list[Property] = []
    report = "actlab.checks.properties:report_rows"
    try:
        with Worker() as helper:
            helper.call(report, spec, on=lambda _, row: rows.append(row))
    except EndedError as ended:
        # Before the required rows are measured, the activation cannot be judged at all
        if len(rows) < len(REQUIRED):
            raise ActlabError(untried(f"activation {label(spec)}", ended)) from ended
        _print(text, rows)

        # The rows come in the order of `NAMES`, so this one was being measured
        missing = NAMES[len(rows)]
        message = f"{missing!r} cannot be measured, because the process {ended.ending}"
        raise ActlabError(message) from ended

    _print(text, rows)
    print(_NOTE)

    # Only requirements decide about the exit code
    violated = [row.name for row in rows if row.required and row.ok is False]
    if violated:
        print(f"Studies reject this activation: {', '.join(violated)}.")
        return 1
    return 0


def _print(title: str, rows: Sequence[Property]) -> None:
    """Print the rows as a table, with a line below the requirements."""
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        # A pipe has no width to fit
        console.width = 160

    # Requirements first, apart from the other rows
    table = Table(
        box=None,
        show_header=False,
        padding=(0, 2, 0, 0),
        title=title,
        title_justify="left",
    )
    for number, row in enumerate(rows, 1):
        word, colour = _MARKS[row.ok]
        table.add_row(row.name, Text(word, style=colour), row.text)
        if number == len(REQUIRED):
            table.add_section()

    console.print(table)
