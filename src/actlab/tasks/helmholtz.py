"""Physics-informed networks: the Helmholtz equation on a square, for two known solutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from actlab.tasks.base import Task
from actlab.tasks.batches import matching
from actlab.tasks.evaluation import Batch
from actlab.tasks.quantities import Derived, Quantity, takes_run_axis

# Frequencies of the solution along x and y
FREQUENCIES = (1, 4)
# Weight of the boundary condition
BOUNDARY = 100.0
# The loss of an evaluation uses every seventh point; 7 does not divide the side of a
# grid.
EACH = 7
# Centre and width
BUMP = (0.4, -0.3, 0.2)
# Direction, distance from the origin, and width
RIDGE = (0.6, 0.8, -0.2, 0.15)


def waves(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return u = sin(πx)·sin(4πy) and f = u_xx + u_yy + u at points ``(…, 2)``, each ``(…, 1)``."""
    # A tensor made of numbers would be copied from the host to a GPU, these are not.
    frequencies = torch.cat([points.new_full((1,), n) for n in FREQUENCIES])

    sines = torch.sin(math.pi * points * frequencies)
    u = sines.prod(-1, keepdim=True)
    squares = sum(n**2 for n in FREQUENCIES)
    f = (1 - math.pi**2 * squares) * u
    return u, f


def hills(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return u = w·g and f = u_xx + u_yy + u at points ``(…, 2)``, each ``(…, 1)``.

    g is a Gaussian bump plus a Gaussian ridge, and w = (1 − x²)(1 − y²) is 0 on the sides.
    """
    x, y = points.unbind(-1)

    # The bump at (a, b), with width s
    a, b, s = BUMP
    r2 = (x - a) ** 2 + (y - b) ** 2
    bump = torch.exp(-r2 / (2 * s**2))

    # The ridge along the line cx + dy = p, with width t; (c, d) has length 1
    c, d, p, t = RIDGE
    z = (c * x + d * y - p) / t
    ridge = torch.exp(-(z**2) / 2)

    # g with its gradient and its Laplacian
    g = bump + ridge
    bump_x = -bump * (x - a) / s**2
    bump_y = -bump * (y - b) / s**2
    bump_laplacian = bump * (r2 / s**2 - 2) / s**2
    g_x = bump_x - ridge * z * c / t
    g_y = bump_y - ridge * z * d / t
    g_laplacian = bump_laplacian + ridge * (z**2 - 1) / t**2

    # w with its gradient and its Laplacian
    w = (1 - x**2) * (1 - y**2)
    w_x = -2 * x * (1 - y**2)
    w_y = -2 * y * (1 - x**2)
    w_laplacian = 2 * (x**2 + y**2) - 4

    # u_xx + u_yy by the product rule
    u = w * g
    gradients = w_x * g_x + w_y * g_y
    u_laplacian = w_laplacian * g + 2 * gradients + w * g_laplacian
    return u.unsqueeze(-1), (u_laplacian + u).unsqueeze(-1)


def laplacian(u: Tensor, points: Tensor) -> Tensor:
    """Return u_xx + u_yy ``(…, 1)`` of values ``(…, 1)`` computed from points ``(…, 2)``.

    Each point's value depends on no other point, so the gradient of the sum holds the gradient of
    each value.
    """
    (gradient,) = torch.autograd.grad(u.sum(), points, create_graph=True)

    # The gradient of a function that is linear everywhere is a constant.
    total = torch.zeros_like(u)
    if not gradient.requires_grad:
        return total

    # Add the second derivatives along the axes. A gradient may depend on parameters
    # only, if activations are linear at these points: no path leads to the points, the
    # derivative is 0.
    for axis in range(points.shape[-1]):
        slope = gradient[..., axis].sum()
        (second_derivatives,) = torch.autograd.grad(
            slope, points, create_graph=True, allow_unused=True, materialize_grads=True
        )
        total = total + second_derivatives[..., axis : axis + 1]
    return total


def relative(squared_error: Tensor, squared_solution: Tensor) -> Tensor:
    """Return the relative L2 error, from mean squares."""
    return (squared_error / squared_solution).sqrt()


def on_sides(points: Tensor) -> Tensor:
    """Return points ``(…, B, 2)``, each moved to a side of [−1, 1]².

    Even points move along x and odd points along y, to the nearer of two sides.
    """
    size, axes = points.shape[-2:]
    number = torch.arange(size, device=points.device)
    axis = torch.arange(axes, device=points.device)
    is_moved = number.unsqueeze(-1) % 2 == axis

    nearest = torch.where(points < 0, -1.0, 1.0)
    return torch.where(is_moved, nearest, points)


class HelmholtzTask(Task):
    """Solve u_xx + u_yy + u = f on [−1, 1]², with u = 0 on the sides.

    f belongs to the solution u = sin(πx)·sin(4πy). The loss is the mean squared residual of the
    equation plus 100 times the mean square on the sides (a physics-informed network, Raissi et al.
    2019); in evaluations, at every seventh point. ``relative_error`` is √(Σ(û − u)² ÷ Σu²) over a
    grid; û = 0 has the error 1.

    Training needs the activation's third derivative: where the second derivative is 0, as in ReLU,
    the residual does not depend on the weights as the solution does.

    A subclass with another ``exact_solution`` solves for another solution.

    Arguments and errors as in `Task`.

    Batches of training: points inside and on the sides, each ``(B, 2)``; of evaluation: points
    ``(B, 2)``.
    """

    metric_names: tuple[str, ...] = ("loss", "relative_error")
    derived: ClassVar = {
        "relative_error": Derived(relative, ("squared_error", "squared_solution"))
    }
    prediction = "solution"  # what `predict_step` returns
    exact_solution = staticmethod(waves)  # u and f at points

    @takes_run_axis
    def measure(
        self, network: Callable[..., Tensor], batch: Batch
    ) -> dict[str, Quantity]:
        """Return the loss of points inside and on the sides; in evaluations also squared errors."""
        # A training batch has points inside and on the sides
        if len(batch) == 2:
            inside, sides = batch
            return {"loss": self._loss(network, inside, sides)}

        # Compare with the known solution.
        points = batch[0]
        u, _ = self.exact_solution(points)
        error = matching(network(points), u) - u

        # The Laplacian is expensive, so the loss uses fewer points
        loss_points = points[..., ::EACH, :]
        loss = self._loss(network, loss_points, on_sides(loss_points))
        return {
            "squared_error": Quantity(error.square()),
            "squared_solution": Quantity(u.square()),
            "loss": loss,
        }

    def _loss(
        self, network: Callable[..., Tensor], inside: Tensor, sides: Tensor
    ) -> Quantity:
        inside = inside.detach().requires_grad_()
        solution, f = self.exact_solution(inside.detach())
        u = matching(network(inside), solution)
        residual = laplacian(u, inside) + u - f

        at_sides = matching(network(sides), sides[..., :1])
        loss = residual.square() + BOUNDARY * at_sides.square()
        return Quantity(loss)


class HillsTask(HelmholtzTask):
    """`HelmholtzTask` whose solution has no waves: a bump and a ridge, as in `hills`."""

    exact_solution = staticmethod(hills)
