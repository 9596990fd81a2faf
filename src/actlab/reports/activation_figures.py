"""Figures of activations: value, derivative and, for stochastic activations, random draws.

`sampled` returns the points of small pictures, which a page draws itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from actlab.activations import Activation, create, entry, names
from actlab.errors.messages import described
from actlab.random.streams import Stream, attach
from actlab.reports import style
from actlab.reports.canvas import Axes, Figure, Line2D, mpl

_VALUE_COLOUR = "#2a6fbb"
_DERIVATIVE_COLOUR = "#e07b00"
_DRAWS_COLOUR = "#4a4f57"
_COLUMNS = 6
DPI = 150  # of PNG files


def plot_compared(activations: Mapping[str, Activation]) -> Figure:
    """Return a figure of value and derivative of activations by label.

    An activation that cannot be evaluated is named below, with its error.
    """
    # A panel of values and a panel of derivatives
    left_out = []
    x = torch.linspace(-4, 4, 801, dtype=torch.float64)
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        value_axes, derivative_axes = figure.subplots(1, 2, sharex=True)

        # Curves
        for label, activation in activations.items():
            try:
                value, derivative = _evaluate(activation, x)
            except Exception as error:
                # A user-defined activation may not accept single numbers.
                left_out.append(f"{label} is not drawn: {described(error, 100)}")
                continue
            text = style.in_legend(label)
            value_axes.plot(x.numpy(), value.numpy(), lw=1.6, label=text)
            derivative_axes.plot(x.numpy(), derivative.numpy(), lw=1.6, label=text)

        # Axes and texts
        for axes, title in ((value_axes, "f(x)"), (derivative_axes, "f′(x)")):
            _draw_axes_through_0(axes)
            axes.set(xlabel="x", title=title, xlim=(-4, 4))
        if len(left_out) < len(activations):
            value_axes.legend(loc="upper left")
        figure.supxlabel("\n".join(left_out), fontsize=7)
    return figure


def plot_activations() -> Figure:
    """Return a figure of value and derivative of every activation.

    For stochastic activations, draws in training mode appear as faint dots under the curve of
    evaluation mode.
    """
    # As many rows of panels as the activations need
    rows = math.ceil(len(names()) / _COLUMNS)
    with mpl.rc_context(style.RC):
        figure = Figure(figsize=(14, 0.4 + 2.35 * rows), layout="constrained")

        # Legend
        value = Line2D([], [], color=_VALUE_COLOUR, lw=2, label="value (in evaluation)")
        derivative = Line2D(
            [], [], color=_DERIVATIVE_COLOUR, lw=1.2, ls="--", label="derivative"
        )
        dots: dict[str, Any] = {"marker": "o", "ms": 3, "alpha": 0.6, "ls": ""}
        draws = Line2D([], [], color=_DRAWS_COLOUR, label="draws in training", **dots)
        figure.legend(
            handles=[value, derivative, draws], loc="outside upper right", ncols=3
        )

        # Panels
        grid: Any = figure.subplots(rows, _COLUMNS, sharex=True, sharey=True)
        for axes, name in zip(grid.flat, names(), strict=False):
            _draw_panel(axes, name)
        for unused in grid.flat[len(names()) :]:
            unused.set_visible(False)
    return figure


def sampled(labels: Iterable[str]) -> dict[str, list[tuple[float, float]]]:
    """Return points of the curves of activations, for x from -3 to 3.

    Only deterministic activations of the registry have a curve; other labels are left out.
    """
    x = torch.linspace(-3, 3, 61, dtype=torch.float64)

    # Draws of a stochastic activation have no curve
    curves = {}
    for label in labels:
        if label in names() and not entry(label).stochastic:
            value, _ = _evaluate(label, x)
            curves[label] = list(zip(x.tolist(), value.tolist(), strict=True))
    return curves


def _draw_axes_through_0(axes: Axes) -> None:
    axes.axhline(0, color=style.GREY, lw=0.5, zorder=0)
    axes.axvline(0, color=style.GREY, lw=0.5, zorder=0)


def _draw_panel(axes: Axes, name: str) -> None:
    _draw_axes_through_0(axes)

    # Draws in training
    if entry(name).stochastic:
        activation = create(name).train()
        attach(activation, Stream(0))  # the same draws in every figure
        x = torch.linspace(-4, 4, 400)
        draws = activation(x).detach()
        axes.plot(
            x.numpy(), draws.numpy(), ".", color=_DRAWS_COLOUR, ms=3, alpha=0.5, mew=0
        )

    # Curves
    x = torch.linspace(-4, 4, 801, dtype=torch.float64)
    value, derivative = _evaluate(name, x)
    axes.plot(x.numpy(), value.numpy(), color=_VALUE_COLOUR, lw=2)
    axes.plot(x.numpy(), derivative.numpy(), color=_DERIVATIVE_COLOUR, lw=1.2, ls="--")
    axes.set(xlim=(-4, 4), ylim=(-1.6, 3.2))

    # The formula in training above the formula in evaluation, and the name above both
    formula = entry(name).formula.replace("; ", "\n")
    axes.annotate(
        formula, (0, 1), (0, 3), "axes fraction", "offset points", fontsize=6.5
    )
    pad = 13 + 9 * formula.count("\n")
    axes.set_title(name, loc="left", pad=pad, fontfamily="monospace", fontweight="bold")


def _evaluate(activation: Activation, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return value and derivative in evaluation mode."""
    x = x.clone().requires_grad_()
    module = create(activation).to(x.dtype).eval()
    y: Tensor = module(x)
    (derivative,) = torch.autograd.grad(y.sum(), x)
    return y.detach(), derivative
