"""The stochastic activations: random in training, expectation or mean slope in evaluation.

Each activation draws one ``u`` in [0, 1) per element from its `actlab.random.streams.Uniform`.
Within a study a draw is a function of the run's seed, the site, the step and the element.
Comparisons use float32, or float64 for float64 inputs.

`actlab.activations.deterministic` names the sources P and E. All activations accept any
shape.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from actlab.activations.gates import CDFS, GATES, widened
from actlab.activations.registry import create, is_elementwise, register
from actlab.errors import ActlabError
from actlab.random.masks import Source, fused, uniform
from actlab.random.streams import Uniform

Distribution = Literal["normal", "logistic", "laplace", "cauchy"]


# Probabilities are computed outside `Uniform.draw`: compiled, they would be rounded
# differently.
def _soi_probability(x: Tensor, cdf: str, mu: float, sigma: float) -> Tensor:
    """Return F((x − μ)/σ)."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if cdf != "normal":
        return CDFS[cdf]((wide - mu) / sigma)

    # ½ + ½·erf costs a quarter of erfc, and rounds the left tail as the uniform numbers
    # do.
    centred = wide - mu if mu else wide
    z = centred.mul(1 / (sigma * math.sqrt(2)))
    return z.erf_().mul_(0.5).add_(0.5)


def _standout_probability(x: Tensor, alpha: float, beta: float) -> Tensor:
    """Return σ(αx + β)."""
    return torch.sigmoid(alpha * widened(x) + beta)


def _rrelu(
    source: Source | None, x: Tensor, lower: float, upper: float
) -> tuple[Tensor, Tensor]:
    """Return x·a and a, which is from U(lower, upper) for negative elements and else 1."""
    slopes = uniform(source, x).mul_(upper - lower).add_(lower)
    # 0 or 1, for which lerp is exact.
    is_negative = x.sign().neg_().relu_().to(slopes.dtype)
    a = torch.lerp(slopes.new_ones(()), slopes, is_negative)
    a = a.to(x.dtype)
    return x * a, a


def _apply_mask(
    source: Source | None, x: Tensor, probability: Tensor
) -> tuple[Tensor, Tensor]:
    """Return x·m, with 0 for a masked −∞, and m ~ Bernoulli(``probability``) as int8."""
    # A product is fastest on the CPU: ``torch.where`` costs 20 times as much, and a
    # mask of bools instead of floats five times.
    m = (uniform(source, x) < probability).to(x.dtype)
    finite = x.clamp_min(torch.finfo(x.dtype).min)
    return finite.mul_(m), m.to(torch.int8)


def _times(gradient: Tensor, m: Tensor) -> Tensor:
    return gradient * m


class _Masked(torch.autograd.Function):
    """Returns a product x·m as a function of x, with gradient m.

    The product is an argument, because it was computed where m was drawn. A mask m takes one byte
    per element.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, masked: Tensor, m: Tensor) -> Tensor:
        # torch.compile and torch.func do not support dirty outputs, such as an input
        # itself.
        if torch.compiler.is_compiling():
            return masked.clone()
        if torch._C._functorch.is_functorch_wrapped_tensor(masked):
            return masked.clone()
        return masked

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor
    ) -> None:
        _, masked, m = inputs
        if output is masked:
            ctx.mark_dirty(output)
        ctx.save_for_backward(m)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (m,) = ctx.saved_tensors
        # torch.compile has no double backward.
        times = _times if torch.is_grad_enabled() else fused(_times)
        return times(gradient, m), None, None


@register(
    "soi",
    formula="x·m, m ~ Bernoulli(Φ(x)); evaluation x·Φ(x)",
    source="P §2, §4 (SOI map)",
    stochastic=True,
)
class SOI(nn.Module):
    """The stochastic zero-or-identity map: x with probability F(x), else 0 (P §2, §4).

    Training: ``x·m`` with ``m ~ Bernoulli(F(x))``, not rescaled; the gradient is the mask.
    Evaluation: ``x·F(x)``, the expectation of training: E[x·m] = x·F(x), Var[x·m] = x²·F(x)(1 −
    F(x)). At −∞ both modes return 0, except that the Cauchy form in evaluation tends to −sigma/π.
    nan stays nan.

    F is Φ in the paper; the other distributions are variants.

    Args:
        cdf: name of the distribution with CDF F.
        mu: location of the distribution.
        sigma: scale of the distribution, positive.

    Raises:
        ActlabError: ``sigma`` is not positive.

    >>> x = torch.ones(10_000)
    >>> sorted(set(SOI().train()(x).tolist()))  # masked or kept
    [0.0, 1.0]
    >>> SOI(mu=1.0).eval()(x[:2])  # x·Φ(0)
    tensor([0.5000, 0.5000])
    """

    elementwise = True

    def __init__(
        self, cdf: Distribution = "normal", mu: float = 0.0, sigma: float = 1.0
    ) -> None:
        super().__init__()
        if not sigma > 0:
            raise ActlabError(
                f"parameter 'sigma' of soi: expected a positive number, got {sigma}"
            )
        self.cdf = cdf
        self.mu = mu
        self.sigma = sigma
        self.uniform = Uniform()

    def forward(self, x: Tensor) -> Tensor:
        """Return x·m in training, x·F(x) in evaluation."""
        if not self.training:
            return GATES[self.cdf](x, self.mu, self.sigma)
        with torch.no_grad():  # the mask has no gradient
            probability = _soi_probability(x, self.cdf, self.mu, self.sigma)
            masked, m = self.uniform.draw(_apply_mask, x, probability)
        y: Tensor = _Masked.apply(x, masked, m)  # type: ignore[no-untyped-call]
        return y

    def extra_repr(self) -> str:
        """Return the distribution and its parameters, for printing."""
        return f"cdf={self.cdf}, mu={self.mu:.4g}, sigma={self.sigma:.4g}"


@register(
    "adaptive_dropout",
    formula="f(x)·m, m ~ Bernoulli(σ(αx + β)); evaluation f(x)·σ(αx + β)",
    source="Ba & Frey 2013; P §2, §4",
    stochastic=True,
)
class AdaptiveDropout(nn.Module):
    """Adaptive dropout ("standout"): f(x) with a probability that depends on x (Ba & Frey 2013).

    Training: ``f(x)·m`` with ``m ~ Bernoulli(σ(αx + β))``, not rescaled. Evaluation:
    ``f(x)·σ(αx + β)``, the expectation of training when f is deterministic. As in Ba & Frey, the
    keep probability uses the unit's own weights, up to α and β. In training the keep probability
    has no gradient.

    Args:
        activation: the nonlinearity f, as a spec for `create`.
        alpha: α.
        beta: β.

    >>> AdaptiveDropout("relu", alpha=0.0).eval()(torch.tensor([-1.0, 1.0]))  # relu(x)·σ(0)
    tensor([0.0000, 0.5000])
    """

    def __init__(
        self, activation: Any = "relu", alpha: float = 1.0, beta: float = 0.0
    ) -> None:
        super().__init__()
        self.activation = create(activation)
        self.alpha = alpha
        self.beta = beta
        self.uniform = Uniform()

    @property
    def elementwise(self) -> bool:
        """Whether the nonlinearity f is elementwise."""
        return is_elementwise(self.activation)

    def forward(self, x: Tensor) -> Tensor:
        """Return f(x)·m in training, f(x)·σ(αx + β) in evaluation."""
        y: Tensor = self.activation(x.clone())  # f may overwrite x
        if not self.training:
            return (y * _standout_probability(x, self.alpha, self.beta)).to(y.dtype)
        with torch.no_grad():
            probability = _standout_probability(x, self.alpha, self.beta)
            masked, m = self.uniform.draw(_apply_mask, y, probability)
        z: Tensor = _Masked.apply(y, masked, m)  # type: ignore[no-untyped-call]
        return z

    def extra_repr(self) -> str:
        """Return α and β, for printing."""
        return f"alpha={self.alpha:.4g}, beta={self.beta:.4g}"


@register(
    "rrelu",
    formula="max(x, 0) + a·min(x, 0), a ~ U(lower, upper); evaluation a = (lower + upper)/2",
    source="Xu et al. 2015 §2.4; E §1",
    stochastic=True,
)
class RReLU(nn.Module):
    """The randomised leaky ReLU (Xu et al. 2015 §2.4).

    Training: each negative element has its own slope from U(lower, upper). Evaluation: the mean
    slope, so the output is the expectation of training. The default bounds are torch's, which match
    the paper's x/a with a ~ U(3, 8).

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
            raise ActlabError(
                f"parameter 'lower' of rrelu: expected at most 'upper' ({upper}), got {lower}"
            )
        self.lower = lower
        self.upper = upper
        self.uniform = Uniform()

    def forward(self, x: Tensor) -> Tensor:
        """Return max(x, 0) + a·min(x, 0), with random a in training, their mean in evaluation."""
        if not self.training:
            return nn.functional.leaky_relu(x, (self.lower + self.upper) / 2)
        with torch.no_grad():  # the slopes have no gradient
            product, a = self.uniform.draw(_rrelu, x, self.lower, self.upper)
        y: Tensor = _Masked.apply(x, product, a)  # type: ignore[no-untyped-call]
        return y

    def extra_repr(self) -> str:
        """Return the bounds, for printing."""
        return f"lower={self.lower:.4g}, upper={self.upper:.4g}"
