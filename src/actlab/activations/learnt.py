"""Activations with trainable parameters: GELU for any Gaussian, and parameters per channel."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from actlab.activations.gates import gate, normal_cdf
from actlab.errors import ActlabError


class GELU(nn.Module):
    """The activation x·Φ((x − μ)/σ), with μ and σ each fixed or learnt (P §2).

    σ is learnt as log σ, so it stays positive. ``learnable`` holds "mu", "sigma" or both, whose
    initial values are ``mu`` and ``sigma``; each has one value for all elements or one per channel,
    dim 1 of the input.
    """

    stochastic = False

    def __init__(
        self,
        mu: float,
        sigma: float,
        learnable: tuple[str, ...] = (),
        channels: int = 1,
    ) -> None:
        super().__init__()

        # The logarithm of σ must exist
        if not sigma > 0:
            raise ActlabError(
                f"parameter 'sigma' of gelu: expected a positive number, got {sigma}. For the "
                "limit at 0, use relu."
            )

        # Fixed and initial values
        self.initial = {"mu": float(mu), "log_sigma": math.log(sigma)}

        # Learnt values: σ by its logarithm
        parameters = {"sigma": "log_sigma"}
        self.learnt = tuple(parameters.get(name, name) for name in learnable)
        for name, value in self.initial.items():
            if name in self.learnt:
                parameter = nn.Parameter(torch.full((channels,), value))
                self.register_parameter(name, parameter)

    @property
    def elementwise(self) -> bool:
        """Whether the module acts elementwise without parameters: True when nothing is learnt."""
        return not self.learnt

    def _value(self, name: str, x: Tensor) -> Tensor | float:
        """Return μ or log σ, shaped to broadcast along dim 1 of ``x``."""
        value = self._parameters.get(name)
        if value is None:
            return self.initial[name]
        # One value broadcasts to any shape
        if value.numel() == 1:
            return value

        # One value per channel
        trailing = [1] * (x.dim() - 2)
        return value.view(-1, *trailing)

    def forward(self, x: Tensor) -> Tensor:
        """Return x·Φ((x − μ)/σ).

        ``x`` is (B, C, …), or of any shape when nothing is learnt per channel.
        """
        mu = self._value("mu", x)
        log_sigma = self._value("log_sigma", x)

        # Multiply by 1/σ: the gradient of a quotient would be 0·∞ where (x − μ)/σ
        # overflows.
        precision = (
            math.exp(-log_sigma)
            if isinstance(log_sigma, float)
            else torch.exp(-log_sigma)
        )
        return gate(x, lambda finite: normal_cdf((finite - mu) * precision))

    def extra_repr(self) -> str:
        """Return μ, σ and the names of the learnt parameters, for printing."""
        mu, log_sigma = self.initial.values()
        return f"mu={mu:.4g}, sigma={math.exp(log_sigma):.4g}, learnt={self.learnt}"


def per_channel_or_shared(
    name: str,
    build: Callable[[int], nn.Module],
    channels: int | None,
    per_channel: bool,
) -> nn.Module | Callable[[int], nn.Module]:
    """Return the module of an activation for ``channels``, or a function of the number of channels.

    With ``per_channel`` it is the function ``build``, which is called with the width of each site.
    Without ``channels`` all elements share one value.
    """
    # Two ways to state one number exclude each other
    if channels is not None and (per_channel or channels < 1):
        raise ActlabError(
            f"parameter 'channels' of {name}: expected a positive number without 'per_channel', "
            f"got channels: {channels}, per_channel: {str(per_channel).lower()}"
        )
    return build if per_channel else build(channels or 1)
