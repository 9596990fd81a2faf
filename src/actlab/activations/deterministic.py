"""Builders of the deterministic activations, one per registered name.

Where torch has the function, the builder returns torch's module, so that timings compare torch's
kernels. Torch's edge cases remain:

- ``gelu``, ``gelu_tanh``, ``silu``, ``gelu_sigmoid`` (a scaled SiLU) and ``mish`` may return nan at
  ±∞ (0·∞).
- On the CPU, ``gelu`` rounds the far left tail to 0 and overflows above half the largest float, and
  ``gelu_sigmoid`` overflows above the largest float ÷ 1.702.
- The gradient of ``gelu_tanh`` is nan where x² overflows, its third derivative beyond ±13 (in
  float32); the second derivative of ``mish`` is nan above 88. `actlab.activations.smooth` has
  modules without these places.
- ``softplus`` is linear above 20: its value and slope are off by at most 2.1e-9, and its curvature
  is 0 there.

This package's own modules return the limit at ±∞ and propagate nan. Their values and gradients are
finite for every finite input, except where x² overflows in ``relu_squared``. ``sine`` has no limit:
nan at ±∞.

Sources: P is Hendrycks & Gimpel, "Gaussian Error Linear Units"; E is Clevert, Unterthiner &
Hochreiter, "Fast and Accurate Deep Network Learning by Exponential Linear Units".

All activations here act elementwise on any shape and do the same in training and evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actlab.activations.gates import GATES
from actlab.activations.learnt import GELU, per_channel_or_shared
from actlab.activations.plugins import Function
from actlab.activations.registry import register
from actlab.errors import ActlabError

SLOPE = 1.702  # σ(1.702x) approximates Φ(x) (P §2)
VANISHED = 40.0  # exp(−40²/2) is 0 in float64


class Elementwise(Function):
    """A module that calls a deterministic function of each element, equal in both modes."""

    def __init__(self, function: Callable[..., Tensor], **params: Any) -> None:
        super().__init__(function, params)
        self.elementwise = True
        self.stochastic = False


def gated(x: Tensor, cdf: str) -> Tensor:
    """Return x·P(X ≤ x), with its limits at ±∞ (P §2, §5).

    ``cdf`` is a key of `actlab.activations.gates.GATES`.
    """
    return GATES[cdf](x)


def sigmoid_gelu(x: Tensor) -> Tensor:
    """Return x·σ(1.702x); float16 and bfloat16 are computed in float32 (P §2)."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))

    # silu(1.702x)/1.702 saves half as much for the backward pass as x·σ(1.702x).
    y = F.silu(wide * SLOPE) * (1 / SLOPE)
    return y.to(x.dtype)


def squared_relu(x: Tensor) -> Tensor:
    """Return max(0, x)² (So et al. 2021)."""
    return F.relu(x).square()


def gaussian(x: Tensor) -> Tensor:
    """Return exp(−x²/2); float16 and bfloat16 are computed in float32 (Ramasinghe & Lucey 2022)."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    near = F.hardtanh(wide, -VANISHED, VANISHED)  # at ±∞ a derivative would be 0·∞
    return torch.exp(near * near * -0.5).to(x.dtype)


register("identity", formula="x", source="control, P §4")(lambda: nn.Identity())
register("relu", formula="max(0, x)", source="Nair & Hinton 2010; P §1")(
    lambda: nn.ReLU()
)


@register(
    "leaky_relu",
    formula="max(x, 0) + slope·min(x, 0)",
    source="Maas et al. 2013; E Fig. 1",
)
def leaky_relu(slope: float = 0.1) -> nn.Module:
    """Return a leaky ReLU.

    Args:
        slope: slope for negative inputs; by default as in E.

    >>> leaky_relu(slope=0.25)(torch.tensor([-2.0, 2.0])).tolist()
    [-0.5, 2.0]
    """
    return nn.LeakyReLU(slope)


register("srelu", formula="max(−1, x)", source="E §3, Fig. 1")(
    lambda: nn.Threshold(-1.0, -1.0)
)


@register(
    "prelu", formula="max(x, 0) + a·min(x, 0), a learnt", source="He et al. 2015 §2.1"
)
def prelu(
    slope: float = 0.25, channels: int | None = None, per_channel: bool = False
) -> nn.Module | Callable[[int], nn.Module]:
    """Return a parametric ReLU with one learnt slope for all elements or one per channel (dim 1).

    Args:
        slope: initial slope for negative inputs.
        channels: number of channels, each with its own slope; None shares one slope.
        per_channel: learn one slope per channel, for the number of channels that the network gives:
            return a function of it.

    Raises:
        ActlabError: ``channels`` is not positive or is combined with ``per_channel``.

    >>> prelu(slope=0.5, channels=3)
    PReLU(num_parameters=3)
    """
    return per_channel_or_shared(
        "prelu", lambda channels: nn.PReLU(channels, slope), channels, per_channel
    )


@register(
    "elu", formula="x if x > 0 else α(eˣ − 1)", source="Clevert et al. 2016; E §3"
)
def elu(alpha: float = 1.0) -> nn.Module:
    """Return an exponential linear unit, which saturates at −α.

    >>> elu(alpha=0.5)(torch.tensor([-100.0, 2.0])).tolist()
    [-0.5, 2.0]
    """
    return nn.ELU(alpha)


register("silu", formula="x·σ(x)", source="P §2; Elfwing et al. 2017")(
    lambda: nn.SiLU()
)


@register("gelu", formula="x·Φ((x − μ)/σ)", source="Hendrycks & Gimpel 2016; P §2")
def gelu(
    mu: float = 0.0,
    sigma: float = 1.0,
    learnable: bool | Literal["mu", "sigma"] = False,
    channels: int | None = None,
    per_channel: bool = False,
) -> nn.Module | Callable[[int], nn.Module]:
    """Return a Gaussian error linear unit.

    Args:
        mu: μ of the Gaussian, or its initial value.
        sigma: σ > 0 of the Gaussian, or its initial value.
        learnable: ``True`` learns μ and σ; ``"mu"`` or ``"sigma"`` learns only that parameter.
        channels: number of channels (dim 1), each with its own learnt values; None shares one
            value.
        per_channel: learn one value per channel, for the number of channels that the network gives:
            return a function of it.

    Raises:
        ActlabError: ``sigma`` or ``channels`` is not positive, ``channels`` is combined with
            ``per_channel``, or either of these two is set while nothing is learnable.

    >>> gelu()
    GELU(approximate='none')
    >>> gelu(mu=1.0)(torch.tensor([1.0]))  # Φ(0) = ½
    tensor([0.5000])
    >>> gelu(learnable=True, channels=4)
    GELU(mu=0, sigma=1, learnt=('mu', 'log_sigma'))
    """
    # The learnt parameters, by their public names
    learnt: tuple[str, ...] = ()
    if isinstance(learnable, str):
        learnt = (learnable,)
    elif learnable:
        learnt = ("mu", "sigma")

    if not learnt and (channels is not None or per_channel):
        raise ActlabError(
            "parameter 'learnable' of gelu: expected true, mu or sigma with 'channels' or "
            "'per_channel', got false"
        )
    # torch has its own kernel for the standard Gaussian.
    if not learnt and (mu, sigma) == (0, 1):
        return nn.GELU()
    return per_channel_or_shared(
        "gelu",
        lambda channels: GELU(mu, sigma, learnt, channels),
        channels,
        per_channel,
    )


register("gelu_tanh", formula="½x(1 + tanh(√(2/π)(x + 0.044715x³)))", source="P §2")(
    lambda: nn.GELU(approximate="tanh")
)
register("gelu_sigmoid", formula="x·σ(1.702x)", source="P §2")(
    lambda: Elementwise(sigmoid_gelu)
)
# Tends to −1/π at −∞; asymptotic to ELU(α = 1/π), up to 1/π on the positive side
register("cauchy_lu", formula="x·P(C ≤ x), C ~ Cauchy(0, 1)", source="P §5, Fig. 8")(
    lambda: Elementwise(gated, cdf="cauchy")
)
register("laplace_lu", formula="x·P(L ≤ x), L ~ Laplace(0, 1)", source="P §5, Fig. 8")(
    lambda: Elementwise(gated, cdf="laplace")
)
register("tanh", formula="tanh(x)", source="classic")(lambda: nn.Tanh())
register("sigmoid", formula="σ(x) = 1/(1 + e⁻ˣ)", source="classic")(
    lambda: nn.Sigmoid()
)
register("relu_squared", formula="max(0, x)²", source="So et al. 2021 (Primer)")(
    lambda: Elementwise(squared_relu)
)
register("mish", formula="x·tanh(log(1 + eˣ))", source="Misra 2019")(lambda: nn.Mish())
register(
    "softplus", formula="log(1 + eˣ)", source="Dugas et al. 2001; Glorot et al. 2011"
)(lambda: nn.Softplus())
# Without SIREN's frequency ω₀, a factor of the weights, which belongs to the network
register("sine", formula="sin(x)", source="Sitzmann et al. 2020 §3 (SIREN)")(
    lambda: Elementwise(torch.sin)
)
register(
    "gauss", formula="exp(−x²/2)", source="Ramasinghe & Lucey 2022 (Beyond Periodicity)"
)(lambda: Elementwise(gaussian))
