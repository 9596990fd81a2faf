"""``actlab check``: a table about one activation, in seconds."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from actlab.engines import properties
from actlab.errors import Parser
from actlab.studies.reading import ACTIVATION_FORMS, activation

_MARKS = {True: ("ok", "green"), False: ("FAILS", "red"), None: ("", "")}
_NOTE = """\
The first two rows are requirements: `actlab study run` rejects an activation that violates one. All other
rows are information, in evaluation mode."""


def parser() -> Parser:
    """Return the command line of ``actlab check``."""
    found = Parser(
        prog="actlab check",
        description="Measure properties of one activation in seconds: requirements, derivatives, precision, "
        "compilation, state, stacking, course, signals over depth, cost.",
        examples=[
            "actlab check ./my_activation.py:MyActivation",
            "actlab check '{name: elu, alpha: 0.5}'",
        ],
    )
    found.add_argument(
        "activation",
        metavar="NAME",
        help=ACTIVATION_FORMS,
    )
    return found


def main(argv: Sequence[str]) -> int:
    """Print the table.

    Returns:
        0; 1 if the activation violates a requirement.

    Raises:
        ActlabError: if the activation cannot be created.
    """
    given = parser().parse_args(argv).activation
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), title=given, title_justify="left")
    found = []
    for one in properties.measure(activation(given)):
        found.append(one)
        word, colour = _MARKS[one.ok]
        table.add_row(one.name, Text(word, style=colour), one.text)
        if len(found) == len(properties.REQUIRED):
            table.add_section()
    if console.is_terminal:
        console.print(table)
    else:
        console.width = 160
        with console.capture() as captured:
            console.print(table)
        console.print("\n".join(line.rstrip() for line in captured.get().splitlines()))
    console.print(_NOTE)
    if failed := properties.failures(found):
        console.print(f"Studies reject this activation: {', '.join(failed)}.")
    return int(bool(failed))
