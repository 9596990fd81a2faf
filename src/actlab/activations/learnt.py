"""Activations with parameters: GELU for any Gaussian, and slopes and Gaussians learnt per channel."""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter

from actlab.activations.gates import gate, normal_cdf
from actlab.errors import ActlabError


class GELU(nn.Module):
    """The activation x·Φ((x − μ)/σ), with μ and σ each fixed or learnt (P §2).

    σ is learnt as log σ, so it stays positive. ``learnable`` holds "mu", "sigma" or both, whose initial values
    are ``mu`` and ``sigma``; each has one value for all elements or one per channel, dim 1 of the input.
    """

    stochastic = False

    def __init__(self, mu: float, sigma: float, learnable: tuple[str, ...] = (), channels: int = 1) -> None:
        super().__init__()
        if not sigma > 0:
            raise ActlabError(
                f"parameter 'sigma' of gelu must be positive, not {sigma}; relu is its limit at 0"
            )
        self.initial = {"mu": float(mu), "log_sigma": math.log(sigma)}
        self.learnt = tuple("log_sigma" if name == "sigma" else name for name in learnable)
        for name, value in self.initial.items():
            if name in self.learnt:
                self.register_parameter(name, self._learnt(value, channels))

    def _learnt(self, value: float, channels: int) -> nn.Parameter:
        return nn.Parameter(torch.full((channels,), value))

    @property
    def elementwise(self) -> bool:
        """Whether the module acts elementwise without parameters: True when nothing is learnt."""
        return not self.learnt

    def _value(self, name: str, x: Tensor) -> Tensor | float:
        """Return μ or log σ, shaped to broadcast along dim 1 of ``x``."""
        value = self._parameters.get(name)
        if value is None:
            return self.initial[name]
        return value if value.numel() == 1 else value.view(-1, *[1] * (x.dim() - 2))

    def forward(self, x: Tensor) -> Tensor:
        """Return x·Φ((x − μ)/σ) for (B, C, …), or for any shape when nothing is learnt per channel."""
        mu, log_sigma = self._value("mu", x), self._value("log_sigma", x)
        # multiply by 1/σ: the gradient of a quotient would be 0·∞ where (x − μ)/σ overflows
        precision = math.exp(-log_sigma) if isinstance(log_sigma, float) else torch.exp(-log_sigma)
        return gate(x, lambda finite: normal_cdf((finite - mu) * precision))

    def extra_repr(self) -> str:
        """Return μ, σ and the names of the learnt parameters, for printing."""
        mu, log_sigma = self.initial.values()
        return f"mu={mu:.4g}, sigma={math.exp(log_sigma):.4g}, learnt={self.learnt}"


class _PerChannel(LazyModuleMixin):
    """Infers the number of channels of learnt parameters from dim 1 of the first input."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # torch warns that its lazy modules are new, but `UninitializedParameter` is stable
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            super().__init__(*args, **kwargs)  # type: ignore[misc]

    def initialize_parameters(self, x: Tensor) -> None:
        """Give each parameter C values, for ``x`` of shape (B, C, …)."""
        for name, parameter in self._parameters.items():  # type: ignore[attr-defined]
            if isinstance(parameter, UninitializedParameter):
                with torch.no_grad():
                    parameter.materialize((x.shape[1],))
                    parameter.fill_(self.initial[name])  # type: ignore[attr-defined]


class LazyGELU(_PerChannel, GELU):
    """A `GELU` with one value per channel; it becomes a plain `GELU` at the first input."""

    cls_to_become: ClassVar[type[nn.Module]] = GELU  # type: ignore[misc]

    def _learnt(self, value: float, channels: int) -> nn.Parameter:
        return UninitializedParameter()  # type: ignore[return-value]


class LazyPReLU(_PerChannel, nn.PReLU):
    """A ``torch.nn.PReLU`` with one slope per channel; it becomes a plain ``PReLU`` at the first input."""

    cls_to_become: ClassVar[type[nn.Module]] = nn.PReLU  # type: ignore[misc]
    stochastic = False

    def __init__(self, slope: float) -> None:
        super().__init__(1, slope)
        self.initial = {"weight": slope}
        self.weight = UninitializedParameter()  # type: ignore[assignment]

    def initialize_parameters(self, x: Tensor) -> None:
        """Give the slope C values, for ``x`` of shape (B, C, …)."""
        super().initialize_parameters(x)
        self.num_parameters = x.shape[1]


def channel_count(unit: str, channels: int | None, per_channel: bool) -> int:
    """Return the number of values per learnt parameter: ``channels``, or 1 when it is None."""
    if channels is not None and (per_channel or channels < 1):
        raise ActlabError(
            f"parameter 'channels' of {unit} must be positive and cannot be combined with 'per_channel', which "
            f"infers the number from the first input; got channels: {channels}, "
            f"per_channel: {str(per_channel).lower()}"
        )
    return channels or 1
