"""Unit natural gradient and bias shift (ELU §2, appendices A, B); variance of predictions (GELU §4).

The unit Fisher matrix of a unit is E(δ² ã ãᵀ) with ã = (a, 1). Here a are the unit's incoming
activations, and δ is the derivative of the log output probability with respect to its net input,
with labels drawn from the model. Each unit weights samples by its own q ∝ δ² p, so moments differ
between units.

All functions accept a batch of units; use float64. Shapes: ``S`` samples, ``I`` incoming units,
``U`` units.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """The blocks of the unit Fisher matrix of each unit (ELU eqs 3, 4), and the mean of the inputs."""

    A: Tensor  # E(δ² a aᵀ), (U, I, I)
    b: Tensor  # E(δ² a), (U, I)
    c: Tensor  # E(δ²), (U,)
    mean: Tensor  # E_p(a), (I,)

    @property
    def mean_q(self) -> Tensor:
        """E_q(a) = b / c, ``(U, I)``."""
        return self.b / self.c.unsqueeze(-1)

    @property
    def variance_q(self) -> Tensor:
        """Var_q(a) = A / c − E_q(a) E_q(a)ᵀ, ``(U, I, I)``."""
        return self.A / self.c[:, None, None] - outer(self.mean_q)

    def of_units(self, chosen: Tensor) -> Moments:
        """Return the moments of the units in a mask ``(U,)``."""
        return Moments(self.A[chosen], self.b[chosen], self.c[chosen], self.mean)


def outer(v: Tensor) -> Tensor:
    """Return v vᵀ: ``(*, I)`` → ``(*, I, I)``."""
    return v.unsqueeze(-1) * v.unsqueeze(-2)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Return xᵀ y: ``(*, I)``, ``(*, I)`` → ``(*)``."""
    return (x * y).sum(-1)


def moments(a: Tensor, delta: Tensor) -> Moments:
    """Compute the moments of units from their incoming activations ``(S, I)`` and their δ ``(S, U)``."""
    weight = delta.square().T / len(a)  # (U, S)
    weighted = torch.stack([(w.unsqueeze(-1) * a).T @ a for w in weight])
    return Moments(weighted, weight @ a, weight.sum(-1), a.mean(0))


def varying(of: Moments, samples: int) -> Tensor:
    """Return which incoming units vary over the samples with non-zero δ of a unit, bool ``(U, I)``.

    Constant incoming units make A and Var_q singular. A variance below the rounding error of the
    sums over ``samples`` in its computation counts as 0.
    """
    second = of.A.diagonal(dim1=-2, dim2=-1) / of.c.unsqueeze(-1)
    variance = second - of.mean_q.square()
    return variance > samples * torch.finfo(second.dtype).eps * second


def without_constant(of: Moments, kept: Tensor) -> Moments:
    """Remove all incoming units but those ``kept``, bool ``(U, I)``, from the moments; shapes stay the same.

    Removed incoming units get E_q(a) = 0, variance 1 and covariance 0. Solving with A or Var_q then
    gives 0 for them, and the solution of the smaller matrix for the others.
    """
    instead = torch.diag_embed((~kept) * of.c.unsqueeze(-1))
    return Moments(of.A * outer(kept) + instead, of.b * kept, of.c, of.mean)


def natural_update(of: Moments, g: Tensor, g0: Tensor) -> tuple[Tensor, Tensor]:
    """Return the unit natural gradient's update of weights and bias (ELU Theorem 1, eqs 5 and 6).

    From the gradients g ``(U, I)`` and g₀ ``(U,)``: Δw = A⁻¹ (g − Δw₀ b) and Δw₀ = s (g₀ − bᵀ A⁻¹
    g), with s = (1 + E_qᵀ Var_q⁻¹ E_q) / E(δ²).
    """
    s = (1 + dot(of.mean_q, torch.linalg.solve(of.variance_q, of.mean_q))) / of.c
    bias = s * (g0 - dot(of.b, torch.linalg.solve(of.A, g)))
    return torch.linalg.solve(of.A, g - bias.unsqueeze(-1) * of.b), bias


def bias_shift(mean: Tensor, update: Tensor, update_of_bias: Tensor) -> Tensor:
    """Return the change of the units' mean net input by an update, E_p(a)ᵀ Δw + Δw₀: ``(U,)``."""
    return dot(mean, update) + update_of_bias


def correction(of: Moments) -> Tensor:
    """Return k = 1 + (E_q(a) − E_p(a))ᵀ Var_q⁻¹(a) E_q(a) of each unit (ELU Theorem 2): ``(U,)``."""
    return 1 + dot(of.mean_q - of.mean, torch.linalg.solve(of.variance_q, of.mean_q))


def is_definite(variance: Tensor) -> Tensor:
    """Return whether covariance matrices ``(*, I, I)`` can be inverted in their precision: bool ``(*)``.

    After scaling to variances of 1, the smallest eigenvalue must exceed the rounding error; for
    linearly dependent units, `solve` would return rounding error only.
    """
    spread = variance.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()
    scaled = (variance / outer(spread)).nan_to_num(0.0, 0.0, 0.0)
    # A bound ≥ the largest eigenvalue
    size, largest = (
        scaled.shape[-1],
        scaled.abs().sum(-1).amax(-1),
    )
    rounding = size * torch.finfo(scaled.dtype).eps * largest
    eye = torch.eye(size, dtype=scaled.dtype, device=scaled.device)
    failed: Tensor = torch.linalg.cholesky_ex(scaled - rounding[..., None, None] * eye).info
    return failed == 0


def soi_variance(x: Tensor) -> Tensor:
    """Return the variance of the SOI map (x with probability Φ(x), else 0): x² Φ(x) (1 − Φ(x)) (GELU §4)."""
    keep: Tensor = torch.special.ndtr(x)
    return x.square() * keep * (1 - keep)


def dropout_variance(x: Tensor, p: float) -> Tensor:
    """Return the variance of dropout (x / (1 − p) with probability 1 − p, else 0): x² p / (1 − p)."""
    return x.square() * (p / (1 - p)) if p < 1 else torch.full_like(x, math.nan)
