"""Fully connected networks. Shapes: ``B`` batch, ``D`` features, ``K`` classes.

A network is built by ``network(act, num_classes, input_shape, …)``. It calls ``act``, a factory of
activations, at every site and never receives a name. ``dropout`` is always the drop probability;
the papers state the keep probability.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import nn

from actlab.networks.dropout import dropout_layers
from actlab.networks.init import initialise
from actlab.validation import Count, Shape, validated

ActivationFactory = Callable[..., nn.Module]


def activation(act: ActivationFactory, width: int) -> nn.Module:
    """Return a fresh activation for a site; only a factory with the argument ``width`` gets it."""
    # A test or a script may pass a class of torch, which takes no width
    if "width" in inspect.signature(act).parameters:
        return act(width)
    return act()


class MLP(nn.Sequential):
    """Fully connected classifier: (linear → activation → dropout) × hidden layers, linear logits.

    The default is the MNIST classifier 784–8×128–10 of GELU §3.1 with 217,354 parameters.

    Args:
        act: factory of activations, called once per hidden layer.
        num_classes: K, number of logits.
        input_shape: shape of one sample without the batch axis; D is its product.
        hidden: widths of the hidden layers; empty gives a linear classifier.
        dropout: drop probability after every hidden layer; 0 builds no dropout module.
        init: a key of `INIT_RULES`.
        batch_norm: whether to add batch norm between linear layer and activation, in place of the
            bias.

    Shape: ``(B, *)`` with D values per sample → ``(B, K)``.
    """

    stackable = ("dropout",)

    @validated
    def __init__(
        self,
        act: ActivationFactory,
        num_classes: Count,
        input_shape: Shape = (1, 28, 28),
        hidden: Sequence[int] = (128,) * 8,
        dropout: float = 0.0,
        init: str = "unit_norm_rows",
        batch_norm: bool = False,
    ) -> None:
        super().__init__(nn.Flatten())
        widths = [math.prod(input_shape), *hidden]
        for fan_in, fan_out in pairwise(widths):
            # Batch norm subtracts a bias and adds its own
            self.append(nn.Linear(fan_in, fan_out, bias=not batch_norm))
            if batch_norm:
                self.append(nn.BatchNorm1d(fan_out))
            self.extend([activation(act, fan_out), *dropout_layers(dropout)])
        # Logits
        self.append(nn.Linear(widths[-1], num_classes))
        initialise(self, init)
