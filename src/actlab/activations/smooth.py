"""x·P(X ≤ x) for fixed distributions, with derivatives by hand: few passes over memory, nothing kept but x.

A form is a value f, a slope f′ and a curvature f″, elementwise in float32 at least. The logistic form is a SiLU
whose input is scaled. The other two X are symmetric about 0; with ``a = |x|`` and the tail T(a) = P(X > a)::

    f(x) = max(x, 0) − a·T(a)        f′(x) = h(a) for x ≤ 0, else 1 − h(a)        f″(x) = −h′(a)

where h is the derivative of a·T(a). So the left side is computed from its own small numbers, not as a
difference of large ones. Tests hold the forms to the plain ``x * cdf(x)`` and to its derivatives.

What is fast on the CPU was measured: an operation in place costs about half of one that allocates, arctan a
third of arctan2, ``torch.where`` eight times ``threshold_backward`` (ReLU's gradient: g where x > 0, else 0).
After `actlab.streams.compile_masks` each direction is one compiled pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from actlab.streams import fused

SLOPE = 1.702  # of the logistic function that is near Φ (P §2)
BOUND = 1e18  # beyond it each form is at its limit to the last bit of float64; its square is finite in float32


class Form(NamedTuple):
    """f, f′ and f″ of one form; the last is plain torch, so higher derivatives follow from it."""

    value: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    curvature: Callable[[Tensor], Tensor]


def _magnitude(x: Tensor) -> Tensor:
    return x.abs().clamp_max_(BOUND)


def _mirrored(h: Tensor, x: Tensor) -> Tensor:
    """``h`` for x ≤ 0, else 1 − h."""
    difference = h.mul(-2).add_(1)
    right: Tensor = torch.ops.aten.threshold_backward(difference, x, 0)
    return right.add_(h)


def _logistic(x: Tensor) -> Tensor:
    """x·σ(cx)."""
    return x.mul(SLOPE).sigmoid_().mul_(x.clamp_min(-BOUND))


def _logistic_slope(x: Tensor) -> Tensor:
    """σ(z)(1 + z·σ(−z)), z = cx: the derivative of z·σ(z)."""
    slope: Tensor = torch.ops.aten.silu_backward(x.new_ones(()), x.clamp(-BOUND, BOUND).mul_(SLOPE))
    return slope


def _logistic_curvature(x: Tensor) -> Tensor:
    """c·σ(z)σ(−z)(2 + z(σ(−z) − σ(z))), z = cx."""
    z = (SLOPE * x).clamp(-BOUND, BOUND)
    s, rest = torch.sigmoid(z), torch.sigmoid(-z)
    return SLOPE * s * rest * (2 + z * (rest - s))


def _laplace(x: Tensor) -> Tensor:
    """max(x, 0) − ½a·e⁻ᵃ."""
    a = _magnitude(x)
    return x.relu().sub_(a.neg().exp_().mul_(a), alpha=0.5)


def _laplace_slope(x: Tensor) -> Tensor:
    """h(a) = ½(1 − a)e⁻ᵃ."""
    a = _magnitude(x)
    e = a.neg().exp_()
    return _mirrored(e.mul_(a.mul_(-0.5).add_(0.5)), x)


def _laplace_curvature(x: Tensor) -> Tensor:
    """(1 − a/2)e⁻ᵃ."""
    a = x.abs().clamp_max(BOUND)
    return (1 - a / 2) * torch.exp(-a)


def _cauchy(x: Tensor) -> Tensor:
    """max(x, 0) − a·arctan(1/a)/π."""
    a = _magnitude(x)
    return x.relu().sub_(a.reciprocal().atan_().mul_(a), alpha=1 / math.pi)


def _cauchy_slope(x: Tensor) -> Tensor:
    """h(a) = (arctan(1/a) − 1/(a + 1/a))/π, which is finite for every a and 0 for large ones."""
    a = _magnitude(x)
    inverse = a.reciprocal()
    density = a.add_(inverse).reciprocal_()
    return _mirrored(inverse.atan_().sub_(density).mul_(1 / math.pi), x)


def _cauchy_curvature(x: Tensor) -> Tensor:
    """2/(π(1 + a²)²)."""
    return 2 / math.pi / (1 + x.clamp(-BOUND, BOUND).square()).square()


FORMS = {
    "logistic": Form(_logistic, _logistic_slope, _logistic_curvature),
    "laplace": Form(_laplace, _laplace_slope, _laplace_curvature),
    "cauchy": Form(_cauchy, _cauchy_slope, _cauchy_curvature),
}


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _value(x: Tensor, form: str) -> Tensor:
    return FORMS[form].value(_wide(x)).to(x.dtype)


def _pulled(gradient: Tensor, x: Tensor, form: str) -> Tensor:
    return (gradient * FORMS[form].slope(_wide(x))).to(x.dtype)


class _Value(torch.autograd.Function):
    """f(x), of which only x is kept; its gradient is `_Pulled`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, form: str) -> Tensor:
        y: Tensor = fused(_value)(x, form)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str], output: Tensor) -> None:
        x, ctx.form = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return _Pulled.apply(gradient, x, ctx.form), None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        (x,) = ctx.saved_tensors
        y: Tensor = _Pulled.apply(tangent, x, ctx.form)  # type: ignore[no-untyped-call]
        return y


class _Pulled(torch.autograd.Function):
    """g·f′(x): linear in g, and in x with the derivative g·f″(x), which is plain torch."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, x: Tensor, form: str) -> Tensor:
        y: Tensor = fused(_pulled)(gradient, x, form)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, str], output: Tensor) -> None:
        gradient, x, ctx.form = inputs
        ctx.save_for_backward(gradient, x)
        ctx.save_for_forward(gradient, x)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, Tensor, None]:
        gradient, x = ctx.saved_tensors
        bent = outer * gradient * FORMS[ctx.form].curvature(_wide(x))
        return _Pulled.apply(outer, x, ctx.form), bent.to(x.dtype), None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, outer: Tensor, tangent: Tensor, _: None) -> Tensor:
        gradient, x = ctx.saved_tensors
        bent: Tensor = tangent * gradient * FORMS[ctx.form].curvature(_wide(x))
        straight: Tensor = _Pulled.apply(outer, x, ctx.form)  # type: ignore[no-untyped-call]
        return straight + bent.to(x.dtype)


class Gate(nn.Module):
    """x·P(X ≤ x) for a fixed distribution of X (P §2, §5), with the limits at ±∞; nan is passed on.

    Finite for every finite input, value and gradient; float16 and bfloat16 are computed in float32.

    Args:
        form: a name of `FORMS`: ``laplace`` and ``cauchy`` of scale 1, ``logistic`` of scale 1/1.702.

    >>> Gate("cauchy")(torch.tensor([-1.0, 1.0]))
    tensor([-0.2500,  0.7500])
    """

    elementwise = True
    stochastic = False

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same shape."""
        y: Tensor = _Value.apply(x, self.form)  # type: ignore[no-untyped-call]
        return y

    def extra_repr(self) -> str:
        """The form."""
        return self.form
