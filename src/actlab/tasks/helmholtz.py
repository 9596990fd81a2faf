"""A physics-informed network: the Helmholtz equation on a square."""

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


def solution(points: Tensor) -> Tensor:
    """Return u(x, y) = sin(πx)·sin(4πy) at points ``(…, 2)``, shape ``(…, 1)``."""
    frequencies = torch.cat([points.new_full((1,), n) for n in FREQUENCIES])  # no copy from the host
    waves = torch.sin(math.pi * points * frequencies)
    return waves.prod(-1, keepdim=True)


def laplacian(u: Tensor, points: Tensor) -> Tensor:
    """Return u_xx + u_yy ``(…, 1)`` of values ``(…, 1)`` computed from points ``(…, 2)``.

    Each point's value depends on no other point, so the gradient of the sum holds that of each. Where an
    activation is linear, autograd finds no path to the points: the derivative is 0.
    """
    (slope,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    total = torch.zeros_like(u)
    for axis in range(points.shape[-1]) if slope.requires_grad else ():
        (second,) = torch.autograd.grad(
            *(slope[..., axis].sum(), points), create_graph=True, allow_unused=True, materialize_grads=True
        )
        total = total + second[..., axis : axis + 1]
    return total


def relative(squared_error: Tensor, squared_solution: Tensor) -> Tensor:
    """Return the relative L2 error, from mean squares."""
    return (squared_error / squared_solution).sqrt()


class HelmholtzTask(Task):
    """Solve u_xx + u_yy + u = f with u = 0 on the sides of [−1, 1]², whose solution is sin(πx)·sin(4πy).

    The loss is the mean squared residual of the equation plus 100 times the mean square on the sides (a
    physics-informed network, Raissi et al. 2019). ``relative_error`` is √(Σ(û − u)² ÷ Σu²) over a grid; 1 is
    that of û = 0. Training needs the activation's third derivative: where the second one is 0, as in ReLU, the
    residual does not depend on the weights as the solution does.

    Arguments and errors as in `Task`.

    Batches of training: points inside and on the sides, each ``(B, 2)``; of evaluation: points ``(B, 2)``.
    """

    metric_names = ("relative_error",)
    derived: ClassVar = {"relative_error": Derived(relative, ("squared_error", "squared_solution"))}
    prediction = "solution"  # what `predict_step` returns

    @takes_run_axis
    def measure(self, network: Callable[..., Tensor], batch: Batch) -> dict[str, Quantity]:
        """Return the loss of points inside and on the sides, or the squared errors at points of a grid."""
        if len(batch) == 1:
            u = solution(batch[0])
            return {
                "squared_error": Quantity((matching(network(batch[0]), u) - u).square()),
                "squared_solution": Quantity(u.square()),
            }
        inside, sides = batch[0].detach().requires_grad_(), batch[1]
        known = solution(inside.detach())
        u = matching(network(inside), known)
        k = math.pi**2 * sum(n**2 for n in FREQUENCIES)
        residual = laplacian(u, inside) + u - (1 - k) * known
        on_sides = matching(network(sides), sides[..., :1])
        return {"loss": Quantity(residual.square() + BOUNDARY * on_sides.square())}
