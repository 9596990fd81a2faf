"""A network that represents a function of coordinates.

Such a function is an image, or the solution of a differential equation.

Shapes: ``B`` batch, ``D`` coordinates, ``K`` outputs.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Literal

from annotated_types import Gt
from torch import Generator, Tensor, nn

from actlab.networks.init import Rule, initialise
from actlab.networks.mlp import ActivationFactory, activation
from actlab.validation import Count, Shape, validated


class CoordinateMLP(nn.Sequential):
    """(Linear → activation) per hidden layer, then a linear layer, for inputs that are coordinates.

    Weights are normal with standard deviation gain / √fan_in, biases 0. With ``omega`` the weights
    of the first layer have standard deviation ω / √D and its biases are uniform in ±ω. The network
    then starts with frequencies up to about ω. Sitzmann et al. 2020, "Implicit Neural
    Representations", §3.2, scale their sine by ω.

    Args:
        act: factory of activations, called once per hidden layer.
        num_outputs: K.
        input_shape: (D,).
        hidden: widths of the hidden layers, at least one.
        gain: gain of the weights, above 0.
        omega: ω above 0; None initialises the first layer like the hidden layers.
        head: ``gain`` initialises the last layer like the hidden layers, ``torch`` as torch does,
            uniform in ±1/√fan_in.

    Shape: ``(B, D)`` → ``(B, K)``.
    """

    stackable = ("gain", "omega")  # which only change initial weights

    @validated
    def __init__(
        self,
        act: ActivationFactory,
        num_outputs: Count,
        input_shape: Shape = (2,),
        hidden: Shape = (64, 64, 64),
        gain: Annotated[float, Gt(0)] = 1.0,
        omega: Annotated[float, Gt(0)] | None = None,
        head: Literal["gain", "torch"] = "gain",
    ) -> None:
        super().__init__()

        # Build the linear layers, then the activations.
        widths = [math.prod(input_shape), *hidden, num_outputs]
        layers = [nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(widths)]
        *hidden_layers, output = layers
        for layer in hidden_layers:
            self.extend([layer, activation(act, layer.out_features)])
        self.append(output)

        # The input and output layers may have their own rules.
        weights: dict[nn.Module, Rule] = {}
        biases: dict[nn.Module, Rule] = {}
        if omega is not None:
            weights[layers[0]] = normal(omega)
            biases[layers[0]] = uniform(omega)
        if head == "torch":
            # fan_in of the output layer
            bound = 1 / math.sqrt(hidden[-1])
            weights[output] = uniform(bound)
            biases[output] = uniform(bound)
        # Draw all other weights with the gain.
        initialise(self, normal(gain), weights, biases)


def normal(gain: float) -> Rule:
    """Return the rule W ~ N(0, gain² / fan_in)."""

    def draw(weight: Tensor, source: Generator | None) -> Tensor:
        # A row of the weight is one unit's
        fan_in = weight[0].numel()
        return nn.init.normal_(weight, std=gain / math.sqrt(fan_in), generator=source)

    return draw


def uniform(bound: float) -> Rule:
    """Return the rule W ~ U(−bound, bound)."""
    return lambda w, source: nn.init.uniform_(w, -bound, bound, generator=source)
