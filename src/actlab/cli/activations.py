"""``actlab activations``: print or plot the registered activations."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from actlab.activations import entry, names
from actlab.cli.parser import Parser
from actlab.errors import ActlabError
from actlab.reports import activation_figures, style


def main(argv: Sequence[str]) -> None:
    """Print the table of activations, or plot them to the file given by ``--plot``."""
    args = parser().parse_args(argv)
    # A picture replaces the table
    if args.plot is not None:
        path = Path(args.plot)
        if path.suffix not in (".png", ".svg"):
            raise ActlabError(
                f"--plot: expected a file .png or .svg, got {path.name!r}."
            )
        print(
            style.write(
                activation_figures.plot_activations(), path, dpi=activation_figures.DPI
            )
        )
        return

    console = Console(file=sys.stdout)
    table = activation_table()
    if not console.is_terminal:  # in a pipe, use the full width of the table
        unlimited = console.options.update_width(10_000)
        console.width = Measurement.get(console, unlimited, table).maximum
    console.print(table)


def parser() -> Parser:
    """Return the argument parser of ``actlab activations``."""
    command = Parser(
        prog="actlab activations",
        description="List the registered activations with formula, parameters and source, or plot "
        "them.",
        examples=["actlab activations", "actlab activations --plot activations.png"],
    )
    command.add_argument(
        "--plot",
        metavar="PICTURE",
        help="plot all activations and their derivatives to this file, .png or .svg",
    )
    return command


def activation_table() -> Table:
    """Return a table of all activations.

    Its columns: name, formula, parameters with defaults, stochastic or not, source.
    """
    table = Table(
        "name", "formula", "parameters", "stochastic", "source", title="Activations"
    )
    # A name stays on one line, so that it can be copied
    table.columns[0].no_wrap = True
    for name in names():
        registered = entry(name)
        parameters = map(_with_default, registered.parameters.items())
        table.add_row(
            name,
            registered.formula,
            ", ".join(parameters),
            "yes" if registered.stochastic else "no",
            registered.source,
        )
    return table


def _with_default(parameter: tuple[str, object]) -> str:
    """Return the name of a parameter with its default, if it has one."""
    name, default = parameter
    if default is inspect.Parameter.empty:
        return name
    if isinstance(default, float):
        return f"{name}={default:.4g}"
    return f"{name}={default}"
