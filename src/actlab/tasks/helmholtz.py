"""Physics-informed networks: the Helmholtz equation on a square, for two known solutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from actlab.tasks.base import Task
from actlab.tasks.batches import matching
from actlab.tasks.quantities import Derived, Quantity, takes_run_axis
from actlab.tasks.training import Batch

FREQUENCIES = 1, 4  # of the solution along x and y
BOUNDARY = 100.0  # weight of the boundary condition
# Of so many points of an evaluation one is for the loss; 7 does not divide the side of a grid
EACH = 7
# Place and width; direction, distance and width
BUMP, RIDGE = (
    (0.4, -0.3, 0.2),
    (0.6, 0.8, -0.2, 0.15),
)


def waves(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return u = sin(πx)·sin(4πy) and f = u_xx + u_yy + u at points ``(…, 2)``, each ``(…, 1)``."""
    # No copy from the host
    frequencies = torch.cat([points.new_full((1,), n) for n in FREQUENCIES])
    u = torch.sin(math.pi * points * frequencies).prod(-1, keepdim=True)
    return u, (1 - math.pi**2 * sum(n**2 for n in FREQUENCIES)) * u


def hills(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return u = (1 − x²)(1 − y²)·g, g a Gaussian bump and a Gaussian ridge, and f as `waves` does."""
    x, y = points.unbind(-1)
    a, b, width = BUMP
    bump = torch.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * width**2))
    c, d, distance, thin = RIDGE  # (c, d) has length 1
    across = (c * x + d * y - distance) / thin
    ridge = torch.exp(-(across**2) / 2)
    g_x = -bump * (x - a) / width**2 - ridge * across * c / thin
    g_y = -bump * (y - b) / width**2 - ridge * across * d / thin
    g_bent = (
        bump * (((x - a) ** 2 + (y - b) ** 2) / width**2 - 2) / width**2
        + ridge * (across**2 - 1) / thin**2
    )
    g, w, w_bent = bump + ridge, (1 - x**2) * (1 - y**2), 2 * (x**2 + y**2) - 4
    w_x, w_y = -2 * x * (1 - y**2), -2 * y * (1 - x**2)
    bent = w_bent * g + 2 * (w_x * g_x + w_y * g_y) + w * g_bent  # u_xx + u_yy, by the product rule
    return (w * g).unsqueeze(-1), (bent + w * g).unsqueeze(-1)


def laplacian(u: Tensor, points: Tensor) -> Tensor:
    """Return u_xx + u_yy ``(…, 1)`` of values ``(…, 1)`` computed from points ``(…, 2)``.

    Each point's value depends on no other point, so the gradient of the sum holds that of each.
    Where an activation is linear, autograd finds no path to the points: the derivative is 0.
    """
    (slope,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    total = torch.zeros_like(u)
    for axis in range(points.shape[-1]) if slope.requires_grad else ():
        (second,) = torch.autograd.grad(
            *(slope[..., axis].sum(), points),
            create_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        total = total + second[..., axis : axis + 1]
    return total


def relative(squared_error: Tensor, squared_solution: Tensor) -> Tensor:
    """Return the relative L2 error, from mean squares."""
    return (squared_error / squared_solution).sqrt()


def on_sides(points: Tensor) -> Tensor:
    """Return points ``(…, B, 2)`` moved to a side of [−1, 1]²: in turns to the nearest along x and y."""
    number, axis = (torch.arange(size, device=points.device) for size in points.shape[-2:])
    return torch.where(number.unsqueeze(-1) % 2 == axis, torch.where(points < 0, -1.0, 1.0), points)


class HelmholtzTask(Task):
    """Solve u_xx + u_yy + u = f with u = 0 on the sides of [−1, 1]², whose solution is sin(πx)·sin(4πy).

    The loss is the mean squared residual of the equation plus 100 times the mean square on the
    sides (a physics-informed network, Raissi et al. 2019); in evaluations, at every seventh point.
    ``relative_error`` is √(Σ(û − u)² ÷ Σu²) over a grid; 1 is that of û = 0. Training needs the
    activation's third derivative: where the second one is 0, as in ReLU, the residual does not
    depend on the weights as the solution does.

    A subclass with another ``known`` solves for another solution.

    Arguments and errors as in `Task`.

    Batches of training: points inside and on the sides, each ``(B, 2)``; of evaluation: points
    ``(B, 2)``.
    """

    metric_names: tuple[str, ...] = ("loss", "relative_error")
    derived: ClassVar = {"relative_error": Derived(relative, ("squared_error", "squared_solution"))}
    prediction = "solution"  # what `predict_step` returns
    known = staticmethod(waves)  # u and f at points

    @takes_run_axis
    def measure(self, network: Callable[..., Tensor], batch: Batch) -> dict[str, Quantity]:
        """Return the loss of points inside and on the sides; in evaluations also squared errors."""
        if len(batch) == 2:
            return {"loss": self._loss(network, *batch)}
        u, _ = self.known(batch[0])
        some = batch[0][..., ::EACH, :]
        return {
            "squared_error": Quantity((matching(network(batch[0]), u) - u).square()),
            "squared_solution": Quantity(u.square()),
            "loss": self._loss(network, some, on_sides(some)),
        }

    def _loss(self, network: Callable[..., Tensor], inside: Tensor, sides: Tensor) -> Quantity:
        inside = inside.detach().requires_grad_()
        known, source = self.known(inside.detach())
        u = matching(network(inside), known)
        residual = laplacian(u, inside) + u - source
        at_sides = matching(network(sides), sides[..., :1])
        return Quantity(residual.square() + BOUNDARY * at_sides.square())


class HillsTask(HelmholtzTask):
    """`HelmholtzTask` whose solution has no waves: a bump and a ridge, (1 − x²)(1 − y²)·g as in `hills`."""

    known = staticmethod(hills)
