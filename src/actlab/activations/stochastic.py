"""The stochastic units: random in training, their expectation or mean slope in evaluation.

Each draws ``u`` in [0, 1) from its `actlab.random.streams.Uniform`, one number an element. Within a study a
draw is a function of the run's seed, the site, the step and the element. Comparisons are in float32 at least,
for float64 inputs in float64.

Sources as in `actlab.activations.deterministic`; any shape to the same shape.
"""

from __future__ import annotations

import math
import os
from functools import lru_cache
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from actlab.activations.gates import CDFS, GATES, widened
from actlab.activations.registry import create, is_elementwise, register
from actlab.errors import ActlabError
from actlab.random.streams import Source, Uniform, fused, uniform

Distribution = Literal["normal", "logistic", "laplace", "cauchy"]


def _soi(source: Source | None, x: Tensor, cdf: str, mu: float, sigma: float) -> tuple[Tensor, Tensor]:
    """x·m and m ~ Bernoulli(F((x − μ)/σ))."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if cdf == "normal":  # erf rounds the left tail where uniform numbers do, at a quarter of erfc's cost
        z = wide - mu if mu else wide
        probability = z.mul(1 / (sigma * math.sqrt(2))).erf_().mul_(0.5).add_(0.5)
    else:
        probability = CDFS[cdf]((wide - mu) / sigma)
    return _drawn(source, x, probability)


def _standout(source: Source | None, y: Tensor, x: Tensor, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    """y·m and m ~ Bernoulli(σ(αx + β))."""
    return _drawn(source, y, _standout_probability(x, alpha, beta))


def _standout_probability(x: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.sigmoid(alpha * widened(x) + beta)


def _rrelu(source: Source | None, x: Tensor, lower: float, upper: float) -> tuple[Tensor, Tensor]:
    """x·a and a: 1, or for negative elements from U(lower, upper)."""
    drawn = uniform(source, x).mul_(upper - lower).add_(lower)
    negative = x.sign().neg_().relu_().to(drawn.dtype)  # 0 or 1, where lerp gives either end to the bit
    slope = torch.lerp(drawn.new_ones(()), drawn, negative).to(x.dtype)
    return x * slope, slope


def _drawn(source: Source | None, x: Tensor, probability: Tensor) -> tuple[Tensor, Tensor]:
    """x·m, with 0 for a masked −∞, and m as bytes.

    What is fast on the CPU was measured: ``torch.where`` costs twenty times a product, a product with bools
    five times one with floats, and a compiled pass that writes bools thirty times one that writes bytes.
    """
    kept = (uniform(source, x) < probability).to(x.dtype)
    return x.clamp_min(torch.finfo(x.dtype).min).mul_(kept), kept.to(torch.int8)


def _times(gradient: Tensor, kept: Tensor) -> Tensor:
    return gradient * kept


def _kernels_for(x: Tensor) -> ModuleType | None:
    """The Triton kernels where they serve ``x``: on CUDA devices, outside transforms, up to float32."""
    if not (x.is_cuda or os.environ.get("TRITON_INTERPRET") == "1") or x.dtype == torch.float64:
        return None
    return None if _transformed(x) else _kernels()


def _transformed(x: Tensor) -> bool:
    """Whether ``torch.compile``, or a function of ``torch.func``, is at work on ``x``."""
    return torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(x)


@lru_cache
def _kernels() -> ModuleType | None:
    try:
        from actlab.activations import kernels
    except ImportError:
        return None
    return kernels


class _Masked(torch.autograd.Function):
    """x·m, already drawn, as a function of x: the gradient is m, which is kept, a mask in one byte an element.

    What was drawn is the output, without a copy ("dirty", for autograd); a copy is it for the transforms, which
    do not know that.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, masked: Tensor, kept: Tensor) -> Tensor:
        return masked.clone() if _transformed(masked) else masked

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        if output is inputs[1]:
            ctx.mark_dirty(output)
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (kept,) = ctx.saved_tensors
        return fused(_times)(gradient, kept), None, None


@register(
    "soi", formula="x·m, m ~ Bernoulli(Φ(x)); evaluation x·Φ(x)", source="P §2, §4 (SOI map)", stochastic=True
)
class SOI(nn.Module):
    """The stochastic zero-or-identity map: masks its input, the larger the likelier to stay (P §2, §4).

    Training: ``x·m`` with ``m ~ Bernoulli(F(x))``, not rescaled; the gradient is the mask. Evaluation:
    ``x·F(x)``, the expectation of training: E[x·m] = x·F(x), Var[x·m] = x²·F(x)(1 − F(x)). At −∞ both are 0
    for all but the Cauchy distribution, whose evaluation goes to −sigma/π. nan stays nan.

    F is Φ in the paper; any of the named distributions gives a member of the family.

    Args:
        cdf: the distribution of F.
        mu: its location.
        sigma: its scale, positive.

    Raises:
        ActlabError: ``sigma`` is not positive.

    >>> x = torch.ones(10_000)
    >>> sorted(set(SOI().train()(x).tolist()))  # masked or kept
    [0.0, 1.0]
    >>> SOI(mu=1.0).eval()(x[:2])  # x·Φ(0)
    tensor([0.5000, 0.5000])
    """

    elementwise = True

    def __init__(self, cdf: Distribution = "normal", mu: float = 0.0, sigma: float = 1.0) -> None:
        super().__init__()
        if not sigma > 0:
            raise ActlabError(f"parameter 'sigma' of soi must be positive, not {sigma}")
        self.cdf, self.mu, self.sigma = cdf, mu, sigma
        self.uniform = Uniform()

    def probability(self, x: Tensor) -> Tensor:
        """F(x): the probability that ``x`` stays."""
        return CDFS[self.cdf]((x - self.mu) / self.sigma)

    def forward(self, x: Tensor) -> Tensor:
        """Random in training; its expectation in evaluation."""
        if not self.training:
            return GATES[self.cdf](x, self.mu, self.sigma)
        y: Tensor
        if self.cdf == "normal" and (kernels := _kernels_for(x)):
            y = kernels.soi(x, *self.uniform.position(x), self.mu, self.sigma)
            return y
        with torch.no_grad():  # the mask is a constant of the step
            masked, kept = self.uniform.draw(_soi, x, self.cdf, self.mu, self.sigma)
        y = _Masked.apply(x, masked, kept)  # type: ignore[no-untyped-call]
        return y

    def extra_repr(self) -> str:
        """The distribution."""
        return f"cdf={self.cdf}, mu={self.mu:.4g}, sigma={self.sigma:.4g}"


@register(
    "adaptive_dropout",
    formula="f(x)·m, m ~ Bernoulli(σ(αx + β)); evaluation f(x)·σ(αx + β)",
    source="Ba & Frey 2013; P §2, §4",
    stochastic=True,
)
class AdaptiveDropout(nn.Module):
    """Adaptive dropout ("standout"): masks the output of a nonlinearity f by its input (Ba & Frey 2013).

    Training: ``f(x)·m`` with ``m ~ Bernoulli(σ(αx + β))``, not rescaled. Evaluation: ``f(x)·σ(αx + β)``, the
    expectation of training when f is deterministic. The keep probability shares the unit's own weights, up
    to α and β, as in Ba & Frey; in training no gradient passes through it.

    Args:
        activation: the nonlinearity f, a name or a mapping as for `create`.
        alpha: α.
        beta: β.

    >>> AdaptiveDropout("relu", alpha=0.0).eval()(torch.tensor([-1.0, 1.0]))  # relu(x)·σ(0)
    tensor([0.0000, 0.5000])
    """

    def __init__(self, activation: Any = "relu", alpha: float = 1.0, beta: float = 0.0) -> None:
        super().__init__()
        self.activation = create(activation)
        self.alpha, self.beta = alpha, beta
        self.uniform = Uniform()

    @property
    def elementwise(self) -> bool:
        """What the nonlinearity is."""
        return is_elementwise(self.activation)

    def probability(self, x: Tensor) -> Tensor:
        """σ(αx + β): the probability that f(x) stays."""
        return _standout_probability(x, self.alpha, self.beta)

    def forward(self, x: Tensor) -> Tensor:
        """Random in training; its expectation in evaluation."""
        y: Tensor = self.activation(x.clone())  # f may overwrite x
        if not self.training:
            return (y * self.probability(x)).to(y.dtype)
        with torch.no_grad():
            masked, kept = self.uniform.draw(_standout, y, x, self.alpha, self.beta)
        z: Tensor = _Masked.apply(y, masked, kept)  # type: ignore[no-untyped-call]
        return z

    def extra_repr(self) -> str:
        """α and β."""
        return f"alpha={self.alpha:.4g}, beta={self.beta:.4g}"


@register(
    "rrelu",
    formula="max(x, 0) + a·min(x, 0), a ~ U(lower, upper); evaluation a = (lower + upper)/2",
    source="Xu et al. 2015 §2.4; E §1",
    stochastic=True,
)
class RReLU(nn.Module):
    """The randomised leaky ReLU (Xu et al. 2015 §2.4).

    Training: each negative element has a slope of its own from U(lower, upper). Evaluation: the mean slope,
    which is the expectation of training. Bounds default to torch's, the paper's x/a with a ~ U(3, 8).

    Args:
        lower: smallest slope.
        upper: largest slope.

    Raises:
        ActlabError: ``lower`` exceeds ``upper``.

    >>> RReLU(lower=0.0, upper=0.5).eval()(torch.tensor([-1.0, 1.0]))
    tensor([-0.2500,  1.0000])
    """

    elementwise = True

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3) -> None:
        super().__init__()
        if lower > upper:
            raise ActlabError(f"parameter 'lower' of rrelu must not exceed 'upper': {lower} > {upper}")
        self.lower, self.upper = lower, upper
        self.uniform = Uniform()

    def forward(self, x: Tensor) -> Tensor:
        """Random in training; its expectation in evaluation."""
        if not self.training:
            return nn.functional.leaky_relu(x, (self.lower + self.upper) / 2)
        with torch.no_grad():  # the slopes are constants of the step
            y, slope = self.uniform.draw(_rrelu, x, self.lower, self.upper)
        z: Tensor = _Masked.apply(x, y, slope)  # type: ignore[no-untyped-call]
        return z

    def extra_repr(self) -> str:
        """The bounds."""
        return f"lower={self.lower:.4g}, upper={self.upper:.4g}"
