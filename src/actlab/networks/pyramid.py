"""The ELU paper's network for ImageNet.

Shapes: ``B`` batch, ``C`` channels, ``H W`` map, ``K`` classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_max_pool2d

from actlab.errors import ActlabError
from actlab.networks.dropout import dropout_layers
from actlab.networks.init import initialise
from actlab.networks.mlp import ActivationFactory, activation
from actlab.validation import Count, Shape, validated


class SpatialPyramidPool(nn.Module):
    """Max pools a map of any size over grids of ``levels`` bins along each side (He et al. 2014).

    Shape: ``(B, C, H, W)`` → ``(B, C · Σ levels²)``, level by level.
    """

    stochastic = False

    def __init__(self, levels: Shape) -> None:
        super().__init__()
        self.levels = tuple(levels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the pooled maps, level by level."""
        pooled = [adaptive_max_pool2d(x, level).flatten(1) for level in self.levels]
        return torch.cat(pooled, dim=1)


class PyramidNet(nn.Sequential):
    """Stacks of convolutions, spatial pyramid pooling and dense layers.

    The default has 15 layers with weights. ELU §4.4, ImageNet, layers × units × receptive field::

        1×96×6, 3×512×3, 5×768×3, 3×1024×3, max pool 2×2 after each of these stacks,
        spatial pyramid pooling of 3 levels, 2 × [dense 4096, dropout ½], dense K

    An activation follows each layer except the last, and every layer has a bias. Padding keeps the
    size of the maps up to the pools, except that an even field, such as the first, makes them one
    pixel smaller. The default has 164,867,528 parameters. The paper does not state the stride of
    the first convolution, the bins of the levels or the initial weights: we use stride 2,
    1 + 4 + 16 bins per channel (He et al. 2014) and He's rule.

    Args:
        act: factory of activations, called once per hidden layer.
        num_classes: K, number of logits.
        input_shape: (C, H, W).
        stacks: (number of layers, units, receptive field) of each stack of convolutions.
        stride: stride of the first convolution.
        levels: number of bins along each side, per level of the pyramid.
        dense: widths of the hidden dense layers.
        dropout: drop probability after each hidden dense layer; 0 builds no dropout module.
        init: a key of `INIT_RULES`.
        channels_last: store maps in the memory order B, H, W, C; changes the speed, not the
            network.

    Raises:
        ActlabError: for a stack that is not three positive numbers, or an input too small for the
            pools.

    Shape: ``(B, C, H, W)`` → ``(B, K)``.
    """

    @validated
    def __init__(
        self,
        act: ActivationFactory,
        num_classes: Count,
        input_shape: Shape = (3, 224, 224),
        stacks: Sequence[Sequence[int]] = (
            (1, 96, 6),
            (3, 512, 3),
            (5, 768, 3),
            (3, 1024, 3),
        ),
        stride: int = 2,
        levels: Shape = (1, 2, 4),
        dense: Sequence[int] = (4096, 4096),
        dropout: float = 0.5,
        init: str = "he",
        channels_last: bool = True,
    ) -> None:
        super().__init__()

        # Stacks of convolutions
        fan_in, *size = input_shape
        for number, stack in enumerate(stacks):
            if len(stack) != 3 or min(stack) < 1:
                raise ActlabError(
                    "stacks: expected layers, units and receptive field of each stack, all "
                    f"positive, got {list(stack)}"
                )
            layers, fan_out, field = stack
            for layer in range(layers):
                # Only the first layer has the stride.
                is_first = number == 0 and layer == 0
                step = stride if is_first else 1
                padding = (field - 1) // 2
                self.append(nn.Conv2d(fan_in, fan_out, field, step, padding))
                self.append(activation(act, fan_out))
                size = [(n + 2 * padding - field) // step + 1 for n in size]
                fan_in = fan_out
            self.append(nn.MaxPool2d(2))
            size = [n // 2 for n in size]
        # Something must be left to pool.
        if min(size) < 1:
            raise ActlabError(
                f"input_shape: expected a larger input for {len(stacks)} stacks, got "
                f"{tuple(input_shape)}. Remove a stack."
            )

        # Pyramid and dense layers
        self.append(SpatialPyramidPool(levels))
        # The pool joins the cells of all levels.
        fan_in *= sum(level * level for level in levels)
        for fan_out in dense:
            self.append(nn.Linear(fan_in, fan_out))
            self.append(activation(act, fan_out))
            self.extend(dropout_layers(dropout))
            fan_in = fan_out
        self.append(nn.Linear(fan_in, num_classes))
        initialise(self, init, channels_last=channels_last)
