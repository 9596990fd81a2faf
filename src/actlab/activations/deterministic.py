"""The deterministic units: registered builders, one for each name.

Where torch has the function, the builder returns torch's module, so costs compare torch's kernels. It keeps
torch's behaviour: ``gelu``, ``gelu_tanh``, ``silu`` and ``gelu_sigmoid``, a scaled SiLU, may give nan at ±∞
(0·∞); on the CPU ``gelu`` rounds the far left tail to 0 and overflows above half the largest number,
``gelu_sigmoid`` above the largest ÷ 1.702; the slope of ``gelu_tanh`` is nan where x² overflows. This package's
own modules return the limit at ±∞, pass nan on, and are finite for every finite input, value and gradient.

Sources: P is Hendrycks & Gimpel, "Gaussian Error Linear Units"; E is Clevert, Unterthiner & Hochreiter, "Fast
and Accurate Deep Network Learning by Exponential Linear Units". All act elementwise, on any shape, the same
in training and evaluation.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actlab.activations.gates import GATES
from actlab.activations.learnt import GELU, LazyGELU, LazyPReLU, channel_count
from actlab.activations.registry import register
from actlab.errors import ActlabError

SLOPE = 1.702  # of the logistic function that is near Φ (P §2)


class Gate(nn.Module):
    """x·P(X ≤ x) for a fixed distribution of X, with the limits at ±∞ (P §2, §5).

    Args:
        cdf: a name of `actlab.activations.gates.GATES`; location 0, scale 1.
    """

    elementwise = True
    stochastic = False

    def __init__(self, cdf: str) -> None:
        super().__init__()
        self.cdf = cdf

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same shape."""
        return GATES[self.cdf](x)

    def extra_repr(self) -> str:
        """The distribution."""
        return self.cdf


class SigmoidGELU(nn.Module):
    """x·σ(1.702x) as torch's SiLU of 1.702x: it keeps half of what a product with a sigmoid keeps (P §2)."""

    elementwise = True
    stochastic = False

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same shape; float16 and bfloat16 are computed in float32."""
        z = x.to(torch.promote_types(x.dtype, torch.float32)) * SLOPE
        return (F.silu(z) * (1 / SLOPE)).to(x.dtype)


@register("identity", formula="x", source="control, P §4")
def identity() -> nn.Module:
    """The linear unit."""
    return nn.Identity()


@register("relu", formula="max(0, x)", source="Nair & Hinton 2010; P §1")
def relu() -> nn.Module:
    """The rectified linear unit."""
    return nn.ReLU()


@register("leaky_relu", formula="max(x, 0) + slope·min(x, 0)", source="Maas et al. 2013; E Fig. 1")
def leaky_relu(slope: float = 0.1) -> nn.Module:
    """The leaky ReLU, with the slope of E.

    >>> leaky_relu(slope=0.25)(torch.tensor([-2.0, 2.0])).tolist()
    [-0.5, 2.0]
    """
    return nn.LeakyReLU(slope)


@register("srelu", formula="max(−1, x)", source="E §3, Fig. 1")
def srelu() -> nn.Module:
    """The shifted ReLU.

    >>> srelu()(torch.tensor([-2.0, -0.5, 2.0])).tolist()
    [-1.0, -0.5, 2.0]
    """
    return nn.Threshold(-1.0, -1.0)


@register("prelu", formula="max(x, 0) + a·min(x, 0), a learnt", source="He et al. 2015 §2.1")
def prelu(slope: float = 0.25, channels: int | None = None, per_channel: bool = False) -> nn.Module:
    """The parametric ReLU: one learnt slope, or one per channel (dim 1), from ``slope`` on.

    >>> prelu(slope=0.5, channels=3)
    PReLU(num_parameters=3)
    """
    number = channel_count("prelu", channels, per_channel)
    return LazyPReLU(slope) if per_channel else nn.PReLU(number, slope)


@register("elu", formula="x if x > 0 else α(eˣ − 1)", source="Clevert et al. 2016; E §3")
def elu(alpha: float = 1.0) -> nn.Module:
    """The exponential linear unit, saturating at −α.

    >>> elu(alpha=0.5)(torch.tensor([-100.0, 2.0])).tolist()
    [-0.5, 2.0]
    """
    return nn.ELU(alpha)


@register("silu", formula="x·σ(x)", source="P §2; Elfwing et al. 2017")
def silu() -> nn.Module:
    """The sigmoid linear unit."""
    return nn.SiLU()


@register("gelu", formula="x·Φ((x − μ)/σ)", source="Hendrycks & Gimpel 2016; P §2")
def gelu(
    mu: float = 0.0,
    sigma: float = 1.0,
    learnable: bool | Literal["mu", "sigma"] = False,
    channels: int | None = None,
    per_channel: bool = False,
) -> nn.Module:
    """The Gaussian error linear unit.

    Args:
        mu: μ of the Gaussian, or its initial value.
        sigma: σ > 0 of the Gaussian, or its initial value.
        learnable: True learns both, a name one.
        channels: one learnt value per channel (dim 1) for that many channels; one for all when not given.
        per_channel: the same, with the number of channels read off the first input.

    Raises:
        ActlabError: ``sigma`` or ``channels`` is not positive, or channels are asked for with nothing learnt.

    >>> gelu()
    GELU(approximate='none')
    >>> gelu(mu=1.0)(torch.tensor([1.0]))  # Φ(0) = ½
    tensor([0.5000])
    >>> gelu(learnable=True, channels=4)
    GELU(mu=0, sigma=1, learnt=('mu', 'log_sigma'))
    """
    learnt = ("mu", "sigma") if learnable is True else (learnable,) if isinstance(learnable, str) else ()
    if not learnt and (channels is not None or per_channel):
        raise ActlabError("'channels' and 'per_channel' of gelu need 'learnable': true, mu or sigma")
    if not learnt and (mu, sigma) == (0, 1):
        return nn.GELU()
    number = channel_count("gelu", channels, per_channel)
    return LazyGELU(mu, sigma, learnt) if per_channel else GELU(mu, sigma, learnt, number)


@register("gelu_tanh", formula="½x(1 + tanh(√(2/π)(x + 0.044715x³)))", source="P §2")
def gelu_tanh() -> nn.Module:
    """The tanh approximation of the GELU."""
    return nn.GELU(approximate="tanh")


@register("gelu_sigmoid", formula="x·σ(1.702x)", source="P §2")
def gelu_sigmoid() -> nn.Module:
    """The sigmoid approximation of the GELU."""
    return SigmoidGELU()


@register("cauchy_lu", formula="x·P(C ≤ x), C ~ Cauchy(0, 1)", source="P §5, Fig. 8")
def cauchy_lu() -> nn.Module:
    """The Cauchy form: −1/π at −∞, asymptotic to ELU(α = 1/π), up to 1/π on the positive side.

    >>> cauchy_lu()(torch.tensor([-1.0, 1.0])).tolist()
    [-0.25, 0.75]
    """
    return Gate("cauchy")


@register("laplace_lu", formula="x·P(L ≤ x), L ~ Laplace(0, 1)", source="P §5, Fig. 8")
def laplace_lu() -> nn.Module:
    """The Laplace form."""
    return Gate("laplace")


@register("tanh", formula="tanh(x)", source="classic")
def tanh() -> nn.Module:
    """The hyperbolic tangent."""
    return nn.Tanh()


@register("sigmoid", formula="σ(x) = 1/(1 + e⁻ˣ)", source="classic")
def sigmoid() -> nn.Module:
    """The logistic function."""
    return nn.Sigmoid()
