"""x·P(X ≤ x): an input gated by how likely a random variable is to lie below it (P §2, §5).

Accurate in the tails, with the limit at ±∞, nan passed on, and finite for every finite input, value and
gradient; float16 and bfloat16 are computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

CDF = Callable[[Tensor], Tensor]


def normal_cdf(x: Tensor) -> Tensor:
    """Φ(x) of N(0, 1); by erfc, which keeps the left tail (torch's ``ndtr`` rounds it to 0 below −8).

    >>> normal_cdf(torch.tensor([0.0, 40.0])).tolist()
    [0.5, 1.0]
    """
    return 0.5 * torch.erfc(-x / math.sqrt(2))


def laplace_cdf(x: Tensor) -> Tensor:
    """P(L ≤ x) for L ~ Laplace(0, 1).

    >>> laplace_cdf(torch.tensor([-math.inf, 0.0, math.log(2)])).tolist()
    [0.0, 0.5, 0.75]
    """
    return torch.where(x < 0, 0.5 * x.clamp_max(0).exp(), 1 - 0.5 * (-x.clamp_min(0)).exp())


def cauchy_cdf(x: Tensor) -> Tensor:
    """P(C ≤ x) for C ~ Cauchy(0, 1): ½ + arctan(x)/π, as the angle of (−x, 1), which keeps the left tail.

    >>> cauchy_cdf(torch.tensor([-1.0, 0.0, 1.0])).tolist()
    [0.25, 0.5, 0.75]
    """
    return torch.atan2(torch.ones_like(x), -x) / math.pi


CDFS: dict[str, CDF] = {
    "normal": normal_cdf,
    "logistic": torch.sigmoid,
    "laplace": laplace_cdf,
    "cauchy": cauchy_cdf,
}


def widened(x: Tensor) -> Tensor:
    """``x`` in float32 at least, and finite: ±∞ become the largest numbers, which no gradient passes."""
    return _bounded_above(_bounded_below(x))


def _bounded_below(x: Tensor) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return wide.clamp_min(torch.finfo(wide.dtype).min)


def _bounded_above(x: Tensor) -> Tensor:
    return x.clamp_max(torch.finfo(x.dtype).max)


def gate(x: Tensor, cdf: CDF) -> Tensor:
    """x·P(X ≤ x), with its limits at ±∞; shape and dtype of ``x``.

    Args:
        x: any shape.
        cdf: P(X ≤ ·), elementwise.

    >>> gate(torch.tensor([-1.0, 1.0]), cauchy_cdf).tolist()
    [-0.25, 0.75]
    >>> gate(torch.tensor([-math.inf, math.inf]), normal_cdf).tolist()
    [-0.0, inf]
    """
    bounded = _bounded_below(x)  # ∞·1 is the limit, −∞·0 is not
    return (bounded * cdf(_bounded_above(bounded))).to(x.dtype)
