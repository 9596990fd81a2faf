"""The figure of all activations: value, derivative and, for stochastic activations, random draws."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from actlab.activations import Activation, create, entry, names
from actlab.errors.messages import described
from actlab.random.streams import Stream, attach
from actlab.reports import style
from actlab.reports.canvas import Axes, Figure, Line2D, mpl

_BLUE, _ORANGE, _DOTS = "#2a6fbb", "#e07b00", "#4a4f57"
_COLUMNS = 6
DPI = 150  # of PNG files


def plot_compared(units: Mapping[str, Activation]) -> Figure:
    """Return a figure of value and derivative of activations by label, which names failed ones below."""
    left_out = []
    x = torch.linspace(-4, 4, 801, dtype=torch.float64)
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        sides: Any = figure.subplots(1, 2, sharex=True)
        for label, spec in units.items():
            try:
                curves = _evaluate(spec, x)
            except Exception as error:  # a user-defined activation may not accept single numbers
                left_out.append(f"{label} is not drawn: {described(error, 100)}")
                continue
            for axes, y in zip(sides, curves, strict=True):
                axes.plot(x.numpy(), y.numpy(), lw=1.6, label=style.in_legend(label))
        for axes, name in zip(sides, ("f(x)", "f′(x)"), strict=True):
            _axes_through_0(axes)
            axes.set(xlabel="x", title=name, xlim=(-4, 4))
        if len(left_out) < len(units):
            sides[0].legend(loc="upper left")
        figure.supxlabel("\n".join(left_out), fontsize=7)
    return figure


def plot_units() -> Figure:
    """Return a figure of value and derivative of every activation.

    For stochastic activations, draws in training mode appear as faint dots under the curve of
    evaluation mode.
    """
    rows = math.ceil(len(names()) / _COLUMNS)
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(14, 0.4 + 2.35 * rows), layout="constrained")
        handles = [
            Line2D([], [], color=_BLUE, lw=2, label="value (in evaluation)"),
            Line2D([], [], color=_ORANGE, lw=1.2, ls="--", label="derivative"),
            Line2D(
                [], [], color=_DOTS, marker="o", ms=3, alpha=0.6, ls="", label="draws in training"
            ),
        ]
        figure.legend(handles=handles, loc="outside upper right", ncols=3)
        grid: Any = figure.subplots(rows, _COLUMNS, sharex=True, sharey=True)
        for axes, name in zip(grid.flat, names(), strict=False):
            _unit_panel(axes, name)
        for unused in grid.flat[len(names()) :]:
            unused.set_visible(False)
    return figure


def _axes_through_0(axes: Axes) -> None:
    axes.axhline(0, color=style.GREY, lw=0.5, zorder=0)
    axes.axvline(0, color=style.GREY, lw=0.5, zorder=0)


def _unit_panel(axes: Axes, name: str) -> None:
    _axes_through_0(axes)
    x = torch.linspace(-4, 4, 801, dtype=torch.float64)
    if entry(name).stochastic:
        unit, at = create(name).train(), torch.linspace(-4, 4, 400)
        attach(unit, Stream(0))  # the same draws in every figure
        axes.plot(at.numpy(), unit(at).detach().numpy(), ".", color=_DOTS, ms=3, alpha=0.5, mew=0)
    value, derivative = _evaluate(name, x)
    axes.plot(x.numpy(), value.numpy(), color=_BLUE, lw=2)
    axes.plot(x.numpy(), derivative.numpy(), color=_ORANGE, lw=1.2, ls="--")
    axes.set(xlim=(-4, 4), ylim=(-1.6, 3.2))
    # Formula in training above that in evaluation
    formula = entry(name).formula.replace("; ", "\n")
    axes.annotate(formula, (0, 1), (0, 3), "axes fraction", "offset points", fontsize=6.5)
    pad = 13 + 9 * formula.count("\n")
    axes.set_title(name, loc="left", pad=pad, fontfamily="monospace", fontweight="bold")


def _evaluate(spec: Activation, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    y: Tensor = create(spec).to(x.dtype).eval()(x)
    (derivative,) = torch.autograd.grad(y.sum(), x)
    return y.detach(), derivative
