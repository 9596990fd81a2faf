"""The gated input x·P(X ≤ x) for several distributions of X (P §2, §5).

Values are accurate in both tails, equal their limits at ±∞ and propagate nan. Values and gradients are finite
for every finite input. float16 and bfloat16 are computed in float32.

Laplace has closed-form derivatives: autograd saves six times as much for the backward pass
(`benchmarks/forms.py`). For Cauchy, the slope P + x·p cancels nearly equal numbers in the far left tail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

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

    With the sign s of x (±1 at ±0), both cases are [s = 1] − ½s·exp(−sx), which is faster than ``torch.where``.

    >>> laplace_cdf(torch.tensor([-math.inf, 0.0, math.log(2)])).tolist()
    [0.0, 0.5, 0.75]
    """
    sign = torch.copysign(x.new_ones(()), x.detach())
    return torch.addcmul(sign.relu(), sign, torch.exp(x * -sign), value=-0.5)


def cauchy_cdf(x: Tensor) -> Tensor:
    """Return P(C ≤ x) = ½ + arctan(x)/π for C ~ Cauchy(0, 1).

    Computed as the angle of the point (−x, 1), which keeps the left tail.

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
    """Return ``x`` in float32 or wider, with ±∞ clamped to the largest finite numbers (zero gradient)."""
    return _bounded_above(_bounded_below(x))


# torch's backward of `clamp` is a slow ``where``; `threshold` and `hardtanh` have fast single-pass backwards
def _bounded_below(x: Tensor) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    least = torch.finfo(wide.dtype).min
    return F.threshold(wide, least, least)


def _bounded_above(x: Tensor) -> Tensor:
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
    return (bounded * cdf(_bounded_above(bounded))).to(x.dtype)


def _standardise(x: Tensor, mu: float, sigma: float) -> Tensor:
    return x if (mu, sigma) == (0, 1) else (x - mu) / sigma


def _plain(name: str, x: Tensor, mu: float = 0.0, sigma: float = 1.0) -> Tensor:
    return gate(x, lambda finite: CDFS[name](_standardise(finite, mu, sigma)))


class _Laplace(torch.autograd.Function):
    """x·P((x − μ)/σ) for order 0, its slope for order 1; saves only x for the backward pass."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, mu: float, sigma: float, order: int) -> Tensor:
        if order == 0:
            return _plain("laplace", x, mu, sigma)
        return _laplace_slope(_standardise(x, mu, sigma), mu / sigma)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, *ctx.settings = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient * _next_derivative(*ctx.saved_tensors, *ctx.settings), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return tangent * _next_derivative(*ctx.saved_tensors, *ctx.settings)


def _next_derivative(x: Tensor, mu: float, sigma: float, order: int) -> Tensor:
    """Return the slope for order 0, the curvature for order 1; autograd can differentiate the curvature."""
    if order == 1:
        return _laplace_curvature(_standardise(x, mu, sigma), mu / sigma) / sigma
    slope: Tensor = _Laplace.apply(x, mu, sigma, 1)  # type: ignore[no-untyped-call]
    return slope


# dynamo rejects a Function with a forward-mode derivative; AOTAutograd traces it
@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def _laplace(x: Tensor, mu: float = 0.0, sigma: float = 1.0) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    y: Tensor = _Laplace.apply(wide, mu, sigma, 0)  # type: ignore[no-untyped-call]
    return y.to(x.dtype)


# The slope of x·P(z), z = (x − μ)/σ, is P(z) + z·p(z) + (μ/σ)p(z). By symmetry, with a = |z|, the first two
# terms sum to h(a) for z < 0 and to 1 − h(a) for z > 0. Computing h directly keeps the left tail accurate.
def _laplace_slope(z: Tensor, ratio: float) -> Tensor:
    """h(a) = ½(1 − a)e⁻ᵃ, p(z) = ½e⁻ᵃ."""
    a = _bounded_above(z).abs_()
    tail = a.neg().exp_().mul_(0.5)
    h = a.neg_().add_(1).mul_(tail)
    # 1 − h where z > 0, else h; `torch.where` takes ten times as long on the CPU
    slope: Tensor = torch.ops.aten.threshold_backward(h.mul(-2).add_(1), z, 0).add_(h)
    return slope.add_(tail, alpha=ratio) if ratio else slope


def _laplace_curvature(z: Tensor, ratio: float) -> Tensor:
    """(2 − a − (μ/σ)sign(z))·½e⁻ᵃ."""
    z = _bounded_above(z)
    a = z.abs()
    return (2 - a - ratio * z.sign()) * 0.5 * torch.exp(-a)


GATES: dict[str, Callable[..., Tensor]] = {
    **{name: partial(_plain, name) for name in CDFS},
    "laplace": _laplace,
}
"""Functions (x, μ, σ) → x·P(X ≤ (x − μ)/σ) by the name of X's distribution; σ > 0, elementwise, any shape."""
