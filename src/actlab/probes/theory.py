"""Unit natural gradient and bias shift (ELU §2, A, B); variance of predictions (GELU §4).

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
    """The blocks of each unit's Fisher matrix (ELU eqs 3, 4), and the mean of the inputs."""

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

    def of_units(self, selected: Tensor) -> Moments:
        """Return the moments of the units in a mask ``(U,)``."""
        return Moments(self.A[selected], self.b[selected], self.c[selected], self.mean)


def outer(v: Tensor) -> Tensor:
    """Return v vᵀ: ``(*, I)`` → ``(*, I, I)``."""
    return v.unsqueeze(-1) * v.unsqueeze(-2)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Return xᵀ y: ``(*, I)``, ``(*, I)`` → ``(*)``."""
    return (x * y).sum(-1)


def unit_moments(a: Tensor, delta: Tensor) -> Moments:
    """Return the moments of units.

    Args:
        a: incoming activations, ``(S, I)``.
        delta: δ of each unit, ``(S, U)``.
    """
    weight = delta.square().T / len(a)  # (U, S)
    second = []
    for unit_weight in weight:
        weighted = unit_weight.unsqueeze(-1) * a
        second.append(weighted.T @ a)
    return Moments(torch.stack(second), weight @ a, weight.sum(-1), a.mean(0))


def varying(moments: Moments, samples: int) -> Tensor:
    """Return which incoming units vary over the samples with non-zero δ of a unit, bool ``(U, I)``.

    Constant incoming units make A and Var_q singular. A variance below the rounding error of the
    sums over ``samples`` in its computation counts as 0.
    """
    second = moments.A.diagonal(dim1=-2, dim2=-1) / moments.c.unsqueeze(-1)
    variance = second - moments.mean_q.square()
    rounding = samples * torch.finfo(second.dtype).eps * second
    return variance > rounding


def without_constant(moments: Moments, varies: Tensor) -> Moments:
    """Remove incoming units that do not vary, from bool ``(U, I)``; shapes stay the same.

    Removed incoming units get E_q(a) = 0, variance 1 and covariance 0. Solving with A or Var_q then
    gives 0 for them, and the solution of the smaller matrix for the others.
    """
    diagonal = torch.diag_embed((~varies) * moments.c.unsqueeze(-1))
    second = moments.A * outer(varies) + diagonal
    return Moments(second, moments.b * varies, moments.c, moments.mean)


def natural_update(moments: Moments, g: Tensor, g0: Tensor) -> tuple[Tensor, Tensor]:
    """Return the unit natural gradient's update of weights and bias (ELU Theorem 1, eqs 5 and 6).

    From the gradients g ``(U, I)`` and g₀ ``(U,)``: Δw = A⁻¹ (g − Δw₀ b) and Δw₀ = s (g₀ − bᵀ A⁻¹
    g), with s = (1 + E_qᵀ Var_q⁻¹ E_q) / E(δ²).
    """
    A, b, c, _ = moments
    mean = moments.mean_q
    scaled_mean = torch.linalg.solve(moments.variance_q, mean)
    s = (1 + dot(mean, scaled_mean)) / c
    scaled_g = torch.linalg.solve(A, g)
    bias = s * (g0 - dot(b, scaled_g))
    weights = torch.linalg.solve(A, g - bias.unsqueeze(-1) * b)
    return weights, bias


def bias_shift(mean: Tensor, update: Tensor, update_of_bias: Tensor) -> Tensor:
    """Return the change of the units' mean net input by an update, E_p(a)ᵀ Δw + Δw₀: ``(U,)``."""
    return dot(mean, update) + update_of_bias


def correction(moments: Moments) -> Tensor:
    """Return the correction factor k of each unit (ELU Theorem 2): ``(U,)``.

    k = 1 + (E_q(a) − E_p(a))ᵀ Var_q⁻¹(a) E_q(a).
    """
    mean_q = moments.mean_q
    scaled_mean = torch.linalg.solve(moments.variance_q, mean_q)
    return 1 + dot(mean_q - moments.mean, scaled_mean)


def is_definite(variance: Tensor) -> Tensor:
    """Return whether covariances ``(*, I, I)`` can be inverted in their precision: bool ``(*)``.

    After scaling to variances of 1, the smallest eigenvalue must exceed the rounding error; for
    linearly dependent units, `solve` would return rounding error only.
    """
    # Scale to variances of 1
    spread = variance.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()
    scaled = (variance / outer(spread)).nan_to_num(0.0, 0.0, 0.0)

    # Subtract the rounding error from the eigenvalues
    size = scaled.shape[-1]
    bound = scaled.abs().sum(-1).amax(-1)  # at least the largest eigenvalue
    rounding = size * torch.finfo(scaled.dtype).eps * bound
    eye = torch.eye(size, dtype=scaled.dtype, device=scaled.device)
    shifted = scaled - rounding[..., None, None] * eye
    failed: Tensor = torch.linalg.cholesky_ex(shifted).info
    return failed == 0


def soi_variance(x: Tensor) -> Tensor:
    """Return the variance x² Φ(x) (1 − Φ(x)) of the SOI map (GELU §4).

    The map is x with probability Φ(x), else 0.
    """
    p: Tensor = torch.special.ndtr(x)
    return x.square() * p * (1 - p)


def dropout_variance(x: Tensor, p: float) -> Tensor:
    """Return the variance x² p / (1 − p) of dropout, which is NaN for p = 1.

    Dropout is x / (1 − p) with probability 1 − p, else 0.
    """
    if p < 1:
        return x.square() * (p / (1 - p))
    return torch.full_like(x, math.nan)
