"""Fully connected networks.

A network is built by ``network(act, num_classes, input_shape, …)``: it calls ``act``, a factory of units, at
every site and never sees a name. Every hidden layer is followed by its unit and then by dropout; ``dropout``
is always the drop probability (the papers speak of the keep probability).

Shapes: ``B`` batch, ``D`` features, ``K`` classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import nn

from actlab.networks.dropout import Dropout
from actlab.networks.init import initialise

ActivationFactory = Callable[[], nn.Module]


class MLP(nn.Sequential):
    """Fully connected classifier: (linear → unit → dropout) per hidden layer, then a linear layer of logits.

    The default is the MNIST classifier 784–8×128–10 of GELU §3.1 with 217,354 parameters.

    Args:
        act: factory of units, called once per hidden layer.
        num_classes: K, number of logits.
        input_shape: shape of one sample without the batch; its product is D.
        hidden: widths of the hidden layers; empty gives a linear classifier.
        dropout: drop probability after every hidden unit; at 0 no dropout module is built.
        init: a name of `INIT_RULES`.

    Shape: ``(B, *)`` with D values a sample → ``(B, K)``.
    """

    stackable = ("dropout",)

    def __init__(
        self,
        act: ActivationFactory,
        num_classes: int,
        input_shape: Sequence[int] = (1, 28, 28),
        hidden: Sequence[int] = (128,) * 8,
        dropout: float = 0.0,
        init: str = "unit_norm_rows",
    ) -> None:
        super().__init__(nn.Flatten())
        in_features = math.prod(input_shape)
        for fan_in, fan_out in pairwise([in_features, *hidden]):
            self.extend([nn.Linear(fan_in, fan_out), act()])
            if dropout:
                self.append(Dropout(dropout))
        self.append(nn.Linear([in_features, *hidden][-1], num_classes))
        initialise(self, init)
