"""The ELU paper's network for ImageNet, with spatial pyramid pooling.

Shapes: ``B`` batch, ``C`` channels, ``H W`` map, ``K`` classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_max_pool2d

from actlab.errors import ActlabError
from actlab.networks.dropout import Dropout
from actlab.networks.init import initialise
from actlab.networks.mlp import ActivationFactory


class SpatialPyramidPool(nn.Module):
    """The maxima of a map over grids of ever finer bins (He et al. 2014): as many numbers for any map.

    Args:
        levels: bins along each side, of each level.

    Shape: ``(B, C, H, W)`` → ``(B, C · Σ levels²)``, level by level.
    """

    stochastic = False

    def __init__(self, levels: Sequence[int]) -> None:
        super().__init__()
        self.levels = tuple(levels)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return torch.cat([adaptive_max_pool2d(x, level).flatten(1) for level in self.levels], dim=1)

    def extra_repr(self) -> str:
        """The levels, for printing."""
        return f"levels={self.levels}"


class PyramidNet(nn.Sequential):
    """Stacks of convolutions, spatial pyramid pooling, dense layers: fifteen layers with weights by default.

    ELU §4.4, ImageNet, layers × units × receptive field::

        1×96×6, 3×512×3, 5×768×3, 3×1024×3, max pool 2×2 after each of these stacks,
        spatial pyramid pooling of 3 levels, 2 × [dense 4096, dropout ½], dense K

    A unit follows each layer but the last, every layer has a bias, and maps keep their size up to the pools.
    By default 164,867,528 parameters, of which the first dense layer has 88 million. The paper states neither
    the stride of the first convolution nor the bins of the levels nor the initial weights: our choice is 2,
    1 + 4 + 16 bins a channel (He et al. 2014) and He's rule.

    Args:
        act: factory of units, called once per hidden layer.
        num_classes: K, number of logits.
        input_shape: (C, H, W).
        stacks: layers, units and receptive field of each stack of convolutions.
        stride: of the first convolution.
        levels: bins along each side of the pyramid's levels.
        dense: widths of the hidden dense layers.
        dropout: drop probability after each of these; at 0 no dropout module is built.
        init: a name of `INIT_RULES`.
        channels_last: keep maps in the order B, H, W, C: the same network, another speed.

    Raises:
        ActlabError: for a stack that is not three numbers, or an input that the pools make nothing of.

    Shape: ``(B, C, H, W)`` → ``(B, K)``.
    """

    stackable = ("dropout",)

    def __init__(
        self,
        act: ActivationFactory,
        num_classes: int,
        input_shape: Sequence[int] = (3, 224, 224),
        stacks: Sequence[Sequence[int]] = ((1, 96, 6), (3, 512, 3), (5, 768, 3), (3, 1024, 3)),
        stride: int = 2,
        levels: Sequence[int] = (1, 2, 4),
        dense: Sequence[int] = (4096, 4096),
        dropout: float = 0.5,
        init: str = "he",
        channels_last: bool = True,
    ) -> None:
        super().__init__()
        fan_in, *size = input_shape
        for number, stack in enumerate(stacks):
            if len(stack) != 3 or min(stack) < 1:
                raise ActlabError(f"stack {list(stack)}: give layers, units and receptive field, from 1")
            layers, fan_out, field = stack
            for layer in range(layers):
                step = stride if number == layer == 0 else 1
                padding = (field - 1) // 2  # of an even field one pixel fewer than the size needs
                self.extend([nn.Conv2d(fan_in, fan_out, field, step, padding), act()])
                size = [(n + 2 * padding - field) // step + 1 for n in size]
                fan_in = fan_out
            self.append(nn.MaxPool2d(2))
            size = [n // 2 for n in size]
        if min(size) < 1:
            raise ActlabError(f"input_shape {tuple(input_shape)} is too small for {len(stacks)} stacks")
        self.append(SpatialPyramidPool(levels))
        fan_in *= sum(level * level for level in levels)
        for fan_out in dense:
            self.extend([nn.Linear(fan_in, fan_out), act(), *([Dropout(dropout)] if dropout else [])])
            fan_in = fan_out
        self.append(nn.Linear(fan_in, num_classes))
        initialise(self, init)
        if channels_last:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
