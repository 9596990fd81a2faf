"""The ELU paper's networks for CIFAR. Shapes: ``B`` batch, ``C`` channels, ``K`` classes."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from actlab.errors import ActlabError
from actlab.networks.dropout import Dropout, dropout_layers
from actlab.networks.init import initialise
from actlab.networks.mlp import ActivationFactory, activation
from actlab.validation import Count, Shape, validated

Stack = Sequence[Sequence[int]]  # of (number of layers, units, kernel size)
# ELU §4.2, Figs 4 and 5, without the last layer: 1,669,028 parameters with K = 100
LAYERS_11: tuple[Stack, ...] = (
    ((1, 192, 5),),
    ((1, 192, 1), (1, 240, 3)),
    ((1, 240, 1), (1, 260, 2)),
    ((1, 260, 1), (1, 280, 2)),
    ((1, 280, 1), (1, 300, 2)),
    ((1, 300, 1),),
)


class ConvStacks(nn.Sequential):
    """Stacks of (convolution → activation), each followed by 2×2 max pooling and dropout.

    ELU §4.2 and §4.3. Maps keep their size within a stack; 1×1 maps are not pooled. A 1×1
    convolution with K units returns the logits, without activation and batch norm.

    Args:
        act: factory of activations, called once per convolution of the stacks.
        num_classes: K, number of logits.
        input_shape: (C, H, W).
        stacks: the parts (number of layers, units, kernel size) of each stack, without the layer of
            the logits; by default the stacks of §4.2.
        dropout: drop probability after each stack; 0 builds no dropout module. The paper does not
            say whether dropout comes before or after the pool; here it comes after, as in the GELU
            paper's network.
        inner_dropout: whether the other layers of a stack use the same drop probability. This
            dropout has its own schedule, ``schedules: inner_dropout``, so that it can start late
            (§4.3).
        batch_norm: whether to add batch norm between convolution and activation, in place of the
            bias.
        init: a key of `INIT_RULES`.
        channels_last: store maps in the memory order B, H, W, C; changes the speed, not the
            network.

    Shape: ``(B, C, H, W)`` → ``(B, K)``.

    Raises:
        ActlabError: the number of dropouts differs from the number of stacks, or the final maps are
            not 1×1.
    """

    @validated
    def __init__(
        self,
        act: ActivationFactory,
        num_classes: Count,
        input_shape: Shape = (3, 32, 32),
        stacks: Sequence[Stack] = LAYERS_11,
        dropout: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
        inner_dropout: bool = False,
        batch_norm: bool = False,
        init: str = "he",
        channels_last: bool = True,
    ) -> None:
        super().__init__()

        # Otherwise `zip` below would raise without naming the argument
        if len(dropout) != len(stacks):
            raise ActlabError(
                f"dropout: expected {len(stacks)} numbers, one per stack, got {len(dropout)}"
            )

        # Follow the size of the map, which must end at 1×1.
        fan_in, *map_size = input_shape
        for stack, p in zip(stacks, dropout, strict=True):
            # List the layers of the stack.
            layers: list[tuple[int, int]] = []
            for count, units, kernel_size in stack:
                layers += [(units, kernel_size)] * count

            # Add the layers, with dropout between them.
            for number, (units, kernel_size) in enumerate(layers):
                if number and inner_dropout and p:
                    self.append(Dropout(p, setting="inner_dropout"))
                self.extend(_convolution(fan_in, units, kernel_size, batch_norm))
                self.append(activation(act, units))
                fan_in = units

            # Pool the maps.
            if min(map_size) > 1:
                self.append(nn.MaxPool2d(2))
                map_size = [side // 2 for side in map_size]
            self.extend(dropout_layers(p))

        # The logits are a convolution, so one pixel must be left.
        if max(map_size) > 1:
            size = "×".join(map(str, map_size))
            raise ActlabError(
                f"stacks: expected a feature map of 1×1 after the last stack, got {size}. Add a "
                "stack, or use smaller images."
            )

        # Logits
        self.append(nn.Conv2d(fan_in, num_classes, 1))
        self.append(nn.Flatten())
        initialise(self, init, channels_last=channels_last)


def _convolution(
    fan_in: int, fan_out: int, size: int, batch_norm: bool
) -> list[nn.Module]:
    """Return a convolution that keeps the size of the map, with batch norm in place of the bias."""
    # An odd kernel has equal padding on all sides
    layers: list[nn.Module] = []
    half = size // 2
    padding = half

    # An even kernel needs one row more below, and one column more on the right.
    if size % 2 == 0:
        sides = (half - 1, half, half - 1, half)  # left, right, top, bottom
        layers.append(nn.ZeroPad2d(sides))
        padding = 0

    # Batch norm would cancel a bias
    convolution = nn.Conv2d(fan_in, fan_out, size, padding=padding, bias=not batch_norm)
    layers.append(convolution)
    if batch_norm:
        layers.append(nn.BatchNorm2d(fan_out))
    return layers
