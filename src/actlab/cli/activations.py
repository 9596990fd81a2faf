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
    if args.plot is not None:
        path = Path(args.plot)
        if path.suffix not in (".png", ".svg"):
            raise ActlabError(f"--plot: expected a file .png or .svg, got {path.name!r}.")
        print(style.write(activation_figures.plot_activations(), path, dpi=activation_figures.DPI))
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
        description="List the registered activations: formula, parameters, source.",
        examples=["actlab activations", "actlab activations --plot units.png"],
    )
    command.add_argument(
        "--plot", metavar="PICTURE", help="plot value and derivative of each as .png or .svg"
    )
    return command


def activation_table() -> Table:
    """Return a table of all activations.

    Its columns: name, formula, parameters with defaults, stochastic or not, source.
    """
    table = Table("name", "formula", "parameters", "stochastic", "source", title="Activations")
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
