"""The gated input x·P(X ≤ x) for several distributions of X (P §2, §5).

Values are accurate in both tails, equal their limits at ±∞ and propagate nan. Values and gradients
are finite for every finite input. float16 and bfloat16 are computed in float32.

For Cauchy, the slope P + x·p cancels nearly equal numbers in the far left tail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

CDF = Callable[[Tensor], Tensor]


def normal_cdf(x: Tensor) -> Tensor:
    """Return Φ(x), the CDF of N(0, 1).

    Computed by erfc, which keeps the left tail; torch's ``ndtr`` rounds it to 0 below −8.

    >>> normal_cdf(torch.tensor([0.0, 40.0])).tolist()
    [0.5, 1.0]
    """
    return 0.5 * torch.erfc(-x / math.sqrt(2))


def laplace_cdf(x: Tensor) -> Tensor:
    """Return P(L ≤ x) for L ~ Laplace(0, 1): ½eˣ for x < 0, 1 − ½e⁻ˣ for x > 0.

    With the sign s of x (±1 at ±0), both cases are [s = 1] − ½s·exp(−sx), which is faster than
    ``torch.where``.

    >>> laplace_cdf(torch.tensor([-math.inf, 0.0, math.log(2)])).tolist()
    [0.0, 0.5, 0.75]
    """
    s = torch.copysign(x.new_ones(()), x.detach())
    tail = torch.exp(x * -s)
    return torch.addcmul(s.relu(), s, tail, value=-0.5)


def cauchy_cdf(x: Tensor) -> Tensor:
    """Return P(C ≤ x) = ½ + arctan(x)/π for C ~ Cauchy(0, 1).

    Computed as the angle of the point (−x, 1), which keeps the left tail.

    >>> cauchy_cdf(torch.tensor([-1.0, 0.0, 1.0])).tolist()
    [0.25, 0.5, 0.75]
    """
    return torch.atan2(torch.ones_like(x), -x) / math.pi


# By the names that configs use
CDFS: dict[str, CDF] = {
    "normal": normal_cdf,
    "logistic": torch.sigmoid,
    "laplace": laplace_cdf,
    "cauchy": cauchy_cdf,
}


def widened(x: Tensor) -> Tensor:
    """Return ``x`` in float32 or wider, with ±∞ clamped to the largest finite numbers.

    Clamped elements have zero gradient.
    """
    return _bounded_above(_bounded_below(x))


# torch's backward pass of `clamp` is a slow ``where``, while `threshold` and `hardtanh`
# have fast ones in a single pass over memory.
def _bounded_below(x: Tensor) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    # Values at most ``least``, −∞ among them, become ``least``; nan stays nan
    least = torch.finfo(wide.dtype).min
    return F.threshold(wide, least, least)


def _bounded_above(x: Tensor) -> Tensor:
    # Elements outside have gradient 0, as the limits are constants
    limits = torch.finfo(x.dtype)
    return F.hardtanh(x, limits.min, limits.max)


def gate(x: Tensor, cdf: CDF) -> Tensor:
    """Return x·P(X ≤ x), with its limits at ±∞, in the shape and dtype of ``x``.

    >>> gate(torch.tensor([-1.0, 1.0]), cauchy_cdf).tolist()
    [-0.25, 0.75]
    >>> gate(torch.tensor([-math.inf, math.inf]), normal_cdf).tolist()
    [-0.0, inf]
    """
    bounded = _bounded_below(x)  # +∞·1 is the limit, but −∞·0 would be nan
    probability = cdf(_bounded_above(bounded))
    return (bounded * probability).to(x.dtype)


def _gate_of(name: str, x: Tensor, mu: float = 0.0, sigma: float = 1.0) -> Tensor:
    """Return x·P(X ≤ (x − μ)/σ) for the distribution X of a name."""
    cdf = CDFS[name]
    # Without a shift and a division, for every bit of the plain gate
    if (mu, sigma) == (0, 1):
        return gate(x, cdf)
    return gate(x, lambda finite: cdf((finite - mu) / sigma))


GATES: dict[str, Callable[..., Tensor]] = {
    name: partial(_gate_of, name) for name in CDFS
}
"""Functions (x, μ, σ) → x·P(X ≤ (x − μ)/σ) by the name of X's distribution.

σ > 0; elementwise, any shape.
"""
