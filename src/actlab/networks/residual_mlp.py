"""A residual network for rows of a table. Shapes: ``B`` batch, ``D`` width, ``K`` classes."""

from __future__ import annotations

import math

from torch import Tensor, nn

from actlab.networks.init import initialise
from actlab.networks.mlp import ActivationFactory, activation
from actlab.validation import Count, Shape, validated


class MLPBlock(nn.Module):
    """``x + down(act(up(norm(x))))``, in which all layers have width D.

    Shape: ``(B, D)`` → ``(B, D)``.
    """

    stochastic = False

    def __init__(self, act: ActivationFactory, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.act = activation(act, width)
        self.down = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of the branch and its input."""
        y: Tensor = x + self.down(self.act(self.up(self.norm(x))))
        return y


class ResidualMLP(nn.Sequential):
    """A linear layer, pre-norm residual blocks, and a head: norm → activation → logits.

    It is the ResNet of Gorishniy et al. 2021, "Revisiting Deep Learning Models for Tabular Data"
    (arXiv 2106.11959, §3.2), without dropout, and with layer norm in place of batch norm. By
    default, it has 28,250 parameters for 16 features and 26 classes.

    - ``stem``: the linear layer.
    - ``blocks``: all residual blocks in order.
    - ``head``: layer norm → activation → linear layer.

    Args:
        act: factory of activations, called once per block and once in the head.
        num_classes: K, number of logits.
        input_shape: shape of one sample without the batch axis; its values are the features.
        width: D, of all hidden layers.
        blocks: number of residual blocks.
        init: a key of `INIT_RULES`.

    Shape: ``(B, *)`` with all features per sample → ``(B, K)``.
    """

    @validated
    def __init__(
        self,
        act: ActivationFactory,
        num_classes: Count,
        input_shape: Shape = (16,),
        width: Count = 64,
        blocks: Count = 3,
        init: str = "he_gain_1",
    ) -> None:
        super().__init__()
        # The stem changes the number of features to the width.
        features = math.prod(input_shape)
        self.stem = nn.Sequential(nn.Flatten(), nn.Linear(features, width))
        self.blocks = nn.Sequential()
        for _ in range(blocks):
            self.blocks.append(MLPBlock(act, width))
        # Blocks add to their inputs, so that only the head normalises the sum.
        self.head = nn.Sequential(
            nn.LayerNorm(width),
            activation(act, width),
            nn.Linear(width, num_classes),
        )
        initialise(self, init)
