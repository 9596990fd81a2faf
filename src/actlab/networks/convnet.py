"""The nine-layer network for CIFAR-10. Shapes: ``B`` batch, ``C`` channels, ``K`` classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from annotated_types import Len
from torch import nn

from actlab.networks.dropout import dropout_layers
from actlab.networks.init import initialise
from actlab.networks.mlp import ActivationFactory, activation
from actlab.validation import Count, Shape, validated


class ConvNet(nn.Sequential):
    """Nine blocks (convolution → batch norm → activation), then dense → batch norm for the logits.

    GELU §3.5, CIFAR-10, after Salimans & Kingma 2016::

        3 × [3×3, 96], max pool 2×2, dropout, 3 × [3×3, 192], max pool 2×2, dropout,
        3×3, 192, unpadded, 2 × [1×1, 192], mean over the map, dense K

    No layer has a bias, because batch norm follows. The default has 1,408,244 parameters.

    Args:
        act: factory of activations, called once per convolution.
        num_classes: K, number of logits.
        input_shape: (C, H, W).
        widths: number of channels up to the first pool, and after it.
        dropout: drop probability after both pools; 0 builds no dropout module.
        init: a key of `INIT_RULES`.
        channels_last: store maps in the memory order B, H, W, C; changes the speed, not the
            network.

    Shape: ``(B, C, H, W)`` → ``(B, K)``.
    """

    @validated
    def __init__(
        self,
        act: ActivationFactory,
        num_classes: Count,
        input_shape: Shape = (3, 32, 32),
        widths: Annotated[Sequence[Count], Len(2, 2)] = (96, 192),
        dropout: float = 0.5,
        init: str = "glorot",
        channels_last: bool = True,
    ) -> None:
        super().__init__()
        narrow, wide = widths

        # Name the repeated parts.
        def convolution(
            fan_in: int, fan_out: int, size: int = 3, padding: int = 1
        ) -> list[nn.Module]:
            layer = nn.Conv2d(fan_in, fan_out, size, padding=padding, bias=False)
            return [layer, nn.BatchNorm2d(fan_out), activation(act, fan_out)]

        def pool() -> list[nn.Module]:
            return [nn.MaxPool2d(2), *dropout_layers(dropout)]

        # Two stacks of three convolutions
        fan_in = input_shape[0]
        for width in (narrow, wide):
            for _ in range(3):
                self.extend(convolution(fan_in, width))
                fan_in = width
            self.extend(pool())

        # Three convolutions without padding
        self.extend(convolution(wide, wide, padding=0))
        self.extend(convolution(wide, wide, size=1, padding=0))
        self.extend(convolution(wide, wide, size=1, padding=0))

        # Logits
        self.append(nn.AdaptiveAvgPool2d(1))
        self.append(nn.Flatten())
        self.append(nn.Linear(wide, num_classes, bias=False))
        self.append(nn.BatchNorm1d(num_classes))
        initialise(self, init, channels_last=channels_last)
