"""Torch's activations for losses of a network's derivatives, finite at every order.

The second derivative of torch's Mish is nan above 88, the third of its tanh GELU beyond ±13 (in
float32): its kernels divide overflowed or vanished terms. The modules here are made of functions
without such places. They are slower, so only tasks whose loss sees the network use them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from actlab.activations.deterministic import Elementwise

FLAT = 10.0  # from here on tanh(√(2/π)(x + 0.044715x³)) is 1 to the last bit of float64


def smooth_mish(x: Tensor) -> Tensor:
    """Return Mish, x·tanh(log(1 + eˣ))."""
    return x * torch.tanh(F.softplus(x))


def smooth_tanh_gelu(x: Tensor) -> Tensor:
    """Return the tanh form of GELU, ½x(1 + tanh(√(2/π)(x + 0.044715x³)))."""
    # The cube of a large x would overflow, and its derivatives would be nan
    near = F.hardtanh(x, -FLAT, FLAT)
    z = math.sqrt(2 / math.pi) * near * (1 + 0.044715 * near * near)
    return 0.5 * x * (1 + torch.tanh(z))


def differentiable(factory: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Return a factory of smooth activations.

    They are the factory's activations, without torch's modules that have nan derivatives.
    """

    def smooth_factory(*width: int) -> nn.Module:
        # A factory may take the width or not
        activation = factory(*width)

        # A user's activation may hold torch's modules.
        for parent in list(activation.modules()):
            for name, child in parent.named_children():
                setattr(parent, name, _smooth(child))
        return _smooth(activation)

    return smooth_factory


def _smooth(activation: nn.Module) -> nn.Module:
    """Return the smooth form of a module of torch, or the module itself."""
    if type(activation) is nn.Mish:
        return Elementwise(smooth_mish)
    if type(activation) is nn.GELU and activation.approximate == "tanh":
        return Elementwise(smooth_tanh_gelu)
    return activation
