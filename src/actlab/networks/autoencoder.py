"""The autoencoder of the GELU paper. Shapes: ``B`` batch, ``D`` pixels."""

from __future__ import annotations

import math
from itertools import pairwise

from torch import nn

from actlab.networks.init import initialise
from actlab.networks.mlp import ActivationFactory, activation
from actlab.validation import Count, Shape, validated


class Autoencoder(nn.Sequential):
    """Encoder, code and mirrored decoder: (linear → activation) × hidden layers, then linear.

    The code layer has an activation too. The default is 784-1000-500-250-30-250-500-1000-784 of
    GELU §3.2 with 2,837,314 parameters.

    Args:
        act: factory of activations, called once per hidden layer.
        num_outputs: D, number of pixels in a sample.
        input_shape: shape of one sample without the batch axis; D is its product.
        encoder: widths of the hidden layers down to the code; the decoder reverses them without the
            code.
        init: a key of `INIT_RULES`.

    Shape: ``(B, *input_shape)`` → ``(B, D)``.
    """

    @validated
    def __init__(
        self,
        act: ActivationFactory,
        num_outputs: Count,
        input_shape: Shape = (1, 28, 28),
        encoder: Shape = (1000, 500, 250, 30),
        init: str = "unit_norm_rows",
    ) -> None:
        super().__init__(nn.Flatten())
        # The decoder repeats the widths without the code, and ends in the pixels
        hidden = [*encoder, *reversed(encoder[:-1])]
        for fan_in, fan_out in pairwise([math.prod(input_shape), *hidden]):
            self.extend([nn.Linear(fan_in, fan_out), activation(act, fan_out)])
        # The output has no activation
        self.append(nn.Linear(hidden[-1], num_outputs))
        initialise(self, init)
