"""Unit natural gradient and bias shift (ELU §2, appendices A, B); variance of predictions (GELU §4).

The unit Fisher matrix of a unit is E(δ² ã ãᵀ) with ã = (a, 1). Here a are the unit's incoming activations, and
δ is the derivative of the log output probability with respect to its net input, with labels drawn from the
model. Each unit weights samples by its own q ∝ δ² p, so moments differ between units.

All functions accept a batch of units and compute in the dtype of their arguments; use float64.

Shapes: ``S`` samples, ``I`` incoming units, ``U`` units.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """The blocks of the unit Fisher matrix of each unit (ELU eqs 3, 4), and the mean of the inputs.

    Args:
        A: E(δ² a aᵀ), ``(U, I, I)``.
        b: E(δ² a), ``(U, I)``.
        c: E(δ²), ``(U,)``.
        mean: E_p(a), ``(I,)``.
    """

    A: Tensor
    b: Tensor
    c: Tensor
    mean: Tensor

    @property
    def mean_q(self) -> Tensor:
        """E_q(a) = b / c, ``(U, I)``."""
        return self.b / self.c.unsqueeze(-1)

    @property
    def variance_q(self) -> Tensor:
        """Var_q(a) = A / c − E_q(a) E_q(a)ᵀ, ``(U, I, I)``."""
        return self.A / self.c[:, None, None] - outer(self.mean_q)

    @property
    def fisher(self) -> Tensor:
        """The unit Fisher matrix, weights first, the bias last: ``(U, I + 1, I + 1)``."""
        upper = torch.cat((self.A, self.b.unsqueeze(-1)), dim=-1)
        lower = torch.cat((self.b, self.c.unsqueeze(-1)), dim=-1).unsqueeze(-2)
        return torch.cat((upper, lower), dim=-2)

    def of_units(self, chosen: Tensor) -> Moments:
        """Return the moments of the selected units.

        Args:
            chosen: mask of the units, bool ``(U,)``.
        """
        return Moments(self.A[chosen], self.b[chosen], self.c[chosen], self.mean)


def outer(v: Tensor) -> Tensor:
    """Return v vᵀ: ``(*, I)`` → ``(*, I, I)``."""
    return v.unsqueeze(-1) * v.unsqueeze(-2)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Return xᵀ y: ``(*, I)``, ``(*, I)`` → ``(*)``."""
    return (x * y).sum(-1)


def solve(matrix: Tensor, v: Tensor) -> Tensor:
    """Return M⁻¹ v: ``(*, I, I)``, ``(*, I)`` → ``(*, I)``."""
    solved: Tensor = torch.linalg.solve(matrix, v)
    return solved


def moments(a: Tensor, delta: Tensor) -> Moments:
    """Compute the moments of units over a sample.

    Args:
        a: incoming activations ``(S, I)``, shared by the units.
        delta: δ of each unit ``(S, U)``.
    """
    weight = delta.square().T / len(a)  # (U, S)
    weighted = torch.stack([(w.unsqueeze(-1) * a).T @ a for w in weight])
    return Moments(weighted, weight @ a, weight.sum(-1), a.mean(0))


def varying(of: Moments, samples: int) -> Tensor:
    """Return which incoming units vary over the samples with non-zero δ of a unit, bool ``(U, I)``.

    Constant incoming units make A and Var_q singular. A variance below the rounding error of the sums in its
    computation counts as 0.

    Args:
        of: moments of the units.
        samples: number of samples in the sums.
    """
    second = of.A.diagonal(dim1=-2, dim2=-1) / of.c.unsqueeze(-1)
    variance = second - of.mean_q.square()
    return variance > samples * torch.finfo(second.dtype).eps * second


def without_constant(of: Moments, kept: Tensor) -> Moments:
    """Remove incoming units from the moments of each unit; shapes stay the same.

    Removed incoming units get E_q(a) = 0, variance 1 and covariance 0. Solving with A or Var_q then gives 0 for
    them, and the solution of the smaller matrix for the others.

    Args:
        of: moments of the units.
        kept: mask of the incoming units that each unit keeps, bool ``(U, I)``.
    """
    instead = torch.diag_embed((~kept) * of.c.unsqueeze(-1))
    return Moments(of.A * outer(kept) + instead, of.b * kept, of.c, of.mean)


def natural_update(of: Moments, g: Tensor, g0: Tensor) -> tuple[Tensor, Tensor]:
    """Return the unit natural gradient's update of weights and bias (ELU Theorem 1, eqs 5 and 6).

    Args:
        of: moments of the units.
        g: gradient of the incoming weights ``(U, I)``.
        g0: gradient of the bias ``(U,)``.

    Returns:
        Δw = A⁻¹ (g − Δw₀ b) and Δw₀ = s (g₀ − bᵀ A⁻¹ g), with s = (1 + E_qᵀ Var_q⁻¹ E_q) / E(δ²).
    """
    s = (1 + dot(of.mean_q, solve(of.variance_q, of.mean_q))) / of.c
    bias = s * (g0 - dot(of.b, solve(of.A, g)))
    return solve(of.A, g - bias.unsqueeze(-1) * of.b), bias


def bias_shift(mean: Tensor, update: Tensor, update_of_bias: Tensor) -> Tensor:
    """Return the change of the units' mean net input by an update, E_p(a)ᵀ Δw + Δw₀: ``(U,)``."""
    return dot(mean, update) + update_of_bias


def correction(of: Moments) -> Tensor:
    """Return k = 1 + (E_q(a) − E_p(a))ᵀ Var_q⁻¹(a) E_q(a) of each unit (ELU Theorem 2): ``(U,)``."""
    return 1 + dot(of.mean_q - of.mean, solve(of.variance_q, of.mean_q))


def is_definite(variance: Tensor) -> Tensor:
    """Return whether covariance matrices ``(*, I, I)`` can be inverted in their precision: bool ``(*)``.

    After scaling to variances of 1, the smallest eigenvalue must exceed the rounding error; it does not if a
    variance is 0. For linearly dependent units, `solve` would return rounding error only.
    """
    spread = variance.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()
    scaled = (variance / outer(spread)).nan_to_num(0.0, 0.0, 0.0)
    size, largest = scaled.shape[-1], scaled.abs().sum(-1).amax(-1)  # a bound ≥ the largest eigenvalue
    rounding = size * torch.finfo(scaled.dtype).eps * largest
    eye = torch.eye(size, dtype=scaled.dtype, device=scaled.device)
    failed: Tensor = torch.linalg.cholesky_ex(scaled - rounding[..., None, None] * eye).info
    return failed == 0


def corrected_shift(of: Moments, g: Tensor, g0: Tensor) -> Tensor:
    """Return the bias shift of the natural gradient in the decomposition of Theorem 2: ``(U,)``.

    The incoming mean is corrected by −k E_q(a), the bias unit by the factor k:
    (E_p(a) − k E_q(a))ᵀ A⁻¹ g + k g₀ / E(δ²).
    """
    k = correction(of)
    return dot(of.mean - k.unsqueeze(-1) * of.mean_q, solve(of.A, g)) + k * g0 / of.c


def block_inverse(A: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Return the inverse of ((A, b), (bᵀ, c)) by its Schur complement (ELU Lemma 1): ``(*, I + 1, I + 1)``."""
    u = -solve(A, b)
    s = 1 / (c + dot(b, u))
    upper = torch.cat(
        (torch.linalg.inv(A) + s[..., None, None] * outer(u), (s.unsqueeze(-1) * u).unsqueeze(-1)), -1
    )
    lower = torch.cat((s.unsqueeze(-1) * u, s.unsqueeze(-1)), -1).unsqueeze(-2)
    return torch.cat((upper, lower), -2)


def lemma_2(second_moment: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Return both sides of (1 − Eᵀ E⁻¹(a aᵀ) E)⁻¹ = 1 + Eᵀ Var⁻¹(a) E (ELU Lemma 2): ``(*)`` each.

    Args:
        second_moment: E(a aᵀ), ``(*, I, I)``.
        mean: E(a), ``(*, I)``.
    """
    left = 1 / (1 - dot(mean, solve(second_moment, mean)))
    return left, 1 + dot(mean, solve(second_moment - outer(mean), mean))


def soi_variance(x: Tensor) -> Tensor:
    """Return the variance of the SOI map (x with probability Φ(x), else 0): x² Φ(x) (1 − Φ(x)) (GELU §4)."""
    keep: Tensor = torch.special.ndtr(x)
    return x.square() * keep * (1 - keep)


def dropout_variance(x: Tensor, p: float) -> Tensor:
    """Return the variance of dropout (x / (1 − p) with probability 1 − p, else 0): x² p / (1 − p)."""
    return x.square() * (p / (1 - p)) if p < 1 else torch.full_like(x, math.nan)
