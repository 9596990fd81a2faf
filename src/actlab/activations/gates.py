"""The gated input x·P(X ≤ x) for several distributions of X (P §2, §5).

Values are accurate in both tails, equal their limits at ±∞ and propagate nan. Values and gradients are finite
for every finite input. float16 and bfloat16 are computed in float32.

Two distributions use closed-form derivatives instead of autograd. For Cauchy, P + x·p cancels nearly equal
numbers in the left tail; for Laplace, the autograd form saves six times as much for the backward pass.
`benchmarks/forms.py` compares both forms.
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


class _Derivative(torch.autograd.Function):
    """x·P((x − μ)/σ) for order 0, its slope for order 1; the derivative of order n has order n + 1.

    Only x is saved for the backward pass.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, name: str, mu: float, sigma: float, order: int) -> Tensor:
        if order == 0:
            return _plain(name, x, mu, sigma)
        return SLOPES[name](_standardise(x, mu, sigma), mu / sigma)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, *ctx.settings = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient * _next_derivative(*ctx.saved_tensors, *ctx.settings), None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return tangent * _next_derivative(*ctx.saved_tensors, *ctx.settings)


def _next_derivative(x: Tensor, name: str, mu: float, sigma: float, order: int) -> Tensor:
    """Return the slope for order 0, the curvature for order 1; autograd can differentiate the curvature."""
    if order == 1:
        return CURVATURES[name](_standardise(x, mu, sigma), mu / sigma) / sigma
    slope: Tensor = _Derivative.apply(x, name, mu, sigma, 1)  # type: ignore[no-untyped-call]
    return slope


# dynamo rejects a Function with a forward-mode derivative; AOTAutograd traces it
@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def _by_formula(name: str, x: Tensor, mu: float = 0.0, sigma: float = 1.0) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    y: Tensor = _Derivative.apply(wide, name, mu, sigma, 0)  # type: ignore[no-untyped-call]
    return y.to(x.dtype)


def _where_above(y: Tensor, x: Tensor, bound: float) -> Tensor:
    """Return ``y`` where x > bound, else 0; ``torch.where`` takes ten times as long on the CPU."""
    picked: Tensor = torch.ops.aten.threshold_backward(y, x, bound)
    return picked


# The slope of x·P(z), z = (x − μ)/σ, is P(z) + z·p(z) + (μ/σ)p(z). Both distributions are symmetric: with
# a = |z|, the first two terms sum to h(a) for z < 0 and to 1 − h(a) for z > 0. Computing h directly keeps the
# small values of the left tail accurate.
def _mirrored(h: Tensor, z: Tensor) -> Tensor:
    """Return 1 − h where z > 0, else h."""
    return _where_above(h.mul(-2).add_(1), z, 0).add_(h)


def _laplace_slope(z: Tensor, ratio: float) -> Tensor:
    """h(a) = ½(1 − a)e⁻ᵃ, p(z) = ½e⁻ᵃ."""
    a = _bounded_above(z).abs_()
    tail = a.neg().exp_().mul_(0.5)
    slope = _mirrored(a.neg_().add_(1).mul_(tail), z)
    return slope.add_(tail, alpha=ratio) if ratio else slope


def _laplace_curvature(z: Tensor, ratio: float) -> Tensor:
    """(2 − a − (μ/σ)sign(z))·½e⁻ᵃ."""
    z = _bounded_above(z)
    a = z.abs()
    return (2 - a - ratio * z.sign()) * 0.5 * torch.exp(-a)


FAR = 8  # above this a the two terms of h nearly cancel, so a series gives their difference
TERMS = {torch.float32: 4, torch.float64: 9}  # of the series: exact to the last bit above FAR


def _cauchy_slope(z: Tensor, ratio: float) -> Tensor:
    """h(a) = (arctan(1/a) − 1/(a + 1/a))/π = (⅔t³ − ⅘t⁵ + …)/π with t = 1/a, p(z) = 1/(π(1 + a²)).

    Both forms of h are computed for every element; the first is used up to `FAR`, the series above it.
    """
    a = z.abs()
    t = a.reciprocal()
    near = torch.atan2(torch.ones_like(a), a).sub_(a.add(t).reciprocal_())
    h = near.sub_(_where_above(near, a, FAR)).add_(_where_above(_series(t), a, FAR)).mul_(1 / math.pi)
    slope = _mirrored(h, z)
    return slope.add_((z * z).add_(1).reciprocal_(), alpha=ratio / math.pi) if ratio else slope


def _series(t: Tensor) -> Tensor:
    """arctan(t) − t/(1 + t²) for small t: Σ (−1)ᵏ (2k + 2)/(2k + 3)·t²ᵏ⁺³."""
    square, total = t * t, torch.zeros_like(t)
    for k in reversed(range(TERMS[t.dtype])):
        total.mul_(square).add_((-1) ** k * (2 * k + 2) / (2 * k + 3))
    return total.mul_(square).mul_(t)


def _cauchy_curvature(z: Tensor, ratio: float) -> Tensor:
    """2(1 − zμ/σ)/(π(1 + z²)²)."""
    # beyond this limit the value is below the smallest float, and at ∞ it would be ∞·0
    limit = torch.finfo(z.dtype).max ** 0.5
    z = F.hardtanh(z, -limit, limit)
    return (1 - z * ratio) * (2 / math.pi) / (1 + z * z).square()


SLOPES = {"laplace": _laplace_slope, "cauchy": _cauchy_slope}
CURVATURES = {"laplace": _laplace_curvature, "cauchy": _cauchy_curvature}

GATES: dict[str, Callable[..., Tensor]] = {
    **{name: partial(_plain, name) for name in CDFS},
    **{name: partial(_by_formula, name) for name in SLOPES},
}
"""Functions (x, μ, σ) → x·P(X ≤ (x − μ)/σ) by the name of X's distribution; σ > 0, elementwise, any shape."""
