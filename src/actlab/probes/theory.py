"""Unit natural gradient and bias shift (ELU §2, appendices A, B); variance of predictions (GELU §4).

The unit Fisher matrix of one unit is E(δ² ã ãᵀ) with ã = (a, 1): a are its incoming activations, δ is the
derivative of the log output probability with respect to its net input, the label drawn from the model. A unit
weighs samples by q ∝ δ² p, so every unit has moments of its own.

All functions take a batch of units at once and compute in the type of what they are given; float64 is meant.

Shapes: ``S`` samples, ``I`` incoming units, ``U`` units.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """What the unit Fisher matrix of each unit is made of (ELU eqs 3, 4).

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
        """The moments of some units alone.

        Args:
            chosen: bool ``(U,)``.
        """
        return Moments(self.A[chosen], self.b[chosen], self.c[chosen], self.mean)


def outer(v: Tensor) -> Tensor:
    """V vᵀ: ``(*, I)`` → ``(*, I, I)``."""
    return v.unsqueeze(-1) * v.unsqueeze(-2)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """xᵀ y: ``(*, I)``, ``(*, I)`` → ``(*)``."""
    return (x * y).sum(-1)


def solve(matrix: Tensor, v: Tensor) -> Tensor:
    """M⁻¹ v: ``(*, I, I)``, ``(*, I)`` → ``(*, I)``."""
    solved: Tensor = torch.linalg.solve(matrix, v)
    return solved


def moments(a: Tensor, delta: Tensor) -> Moments:
    """The moments of some units over a sample.

    Args:
        a: incoming activations ``(S, I)``, shared by the units.
        delta: δ of each unit ``(S, U)``.
    """
    weight = delta.square().T / len(a)  # (U, S)
    weighted = torch.stack([(w.unsqueeze(-1) * a).T @ a for w in weight])
    return Moments(weighted, weight @ a, weight.sum(-1), a.mean(0))


def varying(of: Moments, samples: int) -> Tensor:
    """Which incoming units vary over the samples that move a unit, ``(U, I)`` bool.

    Constant ones make A and Var_q singular. A variance counts as 0 where it is below the rounding of the sums
    that it was computed from.

    Args:
        of: moments of the units.
        samples: number of samples that were summed.
    """
    second = of.A.diagonal(dim1=-2, dim2=-1) / of.c.unsqueeze(-1)
    variance = second - of.mean_q.square()
    return variance > samples * torch.finfo(second.dtype).eps * second


def without_constant(of: Moments, kept: Tensor) -> Moments:
    """The moments without some incoming units of each unit, in the same shapes.

    What is left out gets mean 0, variance 1 and no covariance: solving by A or Var_q gives 0 for it and the
    values of the smaller matrix for the others.

    Args:
        of: moments of the units.
        kept: incoming units of each unit that stay, bool ``(U, I)``.
    """
    instead = torch.diag_embed((~kept) * of.c.unsqueeze(-1))
    return Moments(of.A * outer(kept) + instead, of.b * kept, of.c, of.mean)


def natural_update(of: Moments, g: Tensor, g0: Tensor) -> tuple[Tensor, Tensor]:
    """The unit natural gradient's update of weights and bias (ELU Theorem 1, eqs 5 and 6).

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
    """The change of the units' mean net input by an update, E_p(a)ᵀ Δw + Δw₀: ``(U,)``."""
    return dot(mean, update) + update_of_bias


def correction(of: Moments) -> Tensor:
    """K = 1 + (E_q(a) − E_p(a))ᵀ Var_q⁻¹(a) E_q(a) of each unit (ELU Theorem 2): ``(U,)``."""
    return 1 + dot(of.mean_q - of.mean, solve(of.variance_q, of.mean_q))


def is_definite(variance: Tensor) -> Tensor:
    """Whether covariance matrices ``(*, I, I)`` can be inverted in their precision: ``(*)`` bool.

    Scaled to variances of 1, their smallest eigenvalue must exceed rounding; a variance of 0 does not. What
    `solve` gives for linearly dependent units is rounding alone.
    """
    spread = variance.diagonal(dim1=-2, dim2=-1).clamp_min(0).sqrt()
    scaled = (variance / outer(spread)).nan_to_num(0.0, 0.0, 0.0)
    size, largest = scaled.shape[-1], scaled.abs().sum(-1).amax(-1)  # at least the largest eigenvalue
    rounding = size * torch.finfo(scaled.dtype).eps * largest
    eye = torch.eye(size, dtype=scaled.dtype, device=scaled.device)
    failed: Tensor = torch.linalg.cholesky_ex(scaled - rounding[..., None, None] * eye).info
    return failed == 0


def corrected_shift(of: Moments, g: Tensor, g0: Tensor) -> Tensor:
    """The bias shift of the natural gradient as Theorem 2 decomposes it: ``(U,)``.

    The incoming mean is corrected by −k E_q(a), the bias unit by the factor k:
    (E_p(a) − k E_q(a))ᵀ A⁻¹ g + k g₀ / E(δ²).
    """
    k = correction(of)
    return dot(of.mean - k.unsqueeze(-1) * of.mean_q, solve(of.A, g)) + k * g0 / of.c


def block_inverse(A: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The inverse of ((A, b), (bᵀ, c)) by its Schur complement (ELU Lemma 1): ``(*, I + 1, I + 1)``."""
    u = -solve(A, b)
    s = 1 / (c + dot(b, u))
    upper = torch.cat(
        (torch.linalg.inv(A) + s[..., None, None] * outer(u), (s.unsqueeze(-1) * u).unsqueeze(-1)), -1
    )
    lower = torch.cat((s.unsqueeze(-1) * u, s.unsqueeze(-1)), -1).unsqueeze(-2)
    return torch.cat((upper, lower), -2)


def lemma_2(second_moment: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Both sides of (1 − Eᵀ E⁻¹(a aᵀ) E)⁻¹ = 1 + Eᵀ Var⁻¹(a) E (ELU Lemma 2): ``(*)`` each.

    Args:
        second_moment: E(a aᵀ), ``(*, I, I)``.
        mean: E(a), ``(*, I)``.
    """
    left = 1 / (1 - dot(mean, solve(second_moment, mean)))
    return left, 1 + dot(mean, solve(second_moment - outer(mean), mean))


def soi_variance(x: Tensor) -> Tensor:
    """Variance of the SOI map, which gives x with probability Φ(x), else 0: x² Φ(x) (1 − Φ(x)) (GELU §4)."""
    keep: Tensor = torch.special.ndtr(x)
    return x.square() * keep * (1 - keep)


def dropout_variance(x: Tensor, p: float) -> Tensor:
    """Variance of dropout, which gives x / (1 − p) with probability 1 − p, else 0: x² p / (1 − p)."""
    return x.square() * (p / (1 - p)) if p < 1 else torch.full_like(x, math.nan)
