"""A network that represents a function of coordinates: an image, or the solution of a differential equation.

Shapes: ``B`` batch, ``D`` coordinates, ``K`` outputs.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Literal

from annotated_types import Gt
from torch import nn

from actlab.networks.init import Rule, initialise
from actlab.networks.mlp import ActivationFactory, activation
from actlab.validation import Count, Shape, validated


class CoordinateMLP(nn.Sequential):
    """(Linear → activation) per hidden layer, then a linear layer, for inputs that are coordinates.

    Weights are normal with standard deviation gain / √fan_in, biases 0. With ``omega`` the weights
    of the first layer have standard deviation ω / √D and its biases are uniform in ±ω: the network
    starts with frequencies up to about ω (Sitzmann et al. 2020, "Implicit Neural Representations",
    §3.2, scale their sine by it).

    Args:
        act: factory of activations, called once per hidden layer.
        num_outputs: K.
        input_shape: (D,).
        hidden: widths of the hidden layers, at least one.
        gain: gain of the weights, above 0.
        omega: ω above 0; None initialises the first layer as all others.
        head: ``gain`` initialises the last layer as all others, ``torch`` as torch does, uniform in
            ±1/√fan_in.

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
        widths = [math.prod(input_shape), *hidden]
        layers = [
            nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise([*widths, num_outputs])
        ]
        for layer in layers[:-1]:
            self.extend([layer, activation(act, layer.out_features)])
        self.append(layers[-1])
        weights: dict[nn.Module, Rule] = {}
        biases: dict[nn.Module, Rule] = {}
        if omega is not None:
            weights[layers[0]], biases[layers[0]] = normal(omega), uniform(omega)
        if head == "torch":
            bound = 1 / math.sqrt(hidden[-1])
            weights[layers[-1]] = biases[layers[-1]] = uniform(bound)
        initialise(self, normal(gain), weights, biases)


def normal(gain: float) -> Rule:
    """Return the rule W ~ N(0, gain² / fan_in)."""
    return lambda w, source: nn.init.normal_(
        w, std=gain / math.sqrt(w[0].numel()), generator=source
    )


def uniform(bound: float) -> Rule:
    """Return the rule W ~ U(−bound, bound)."""
    return lambda w, source: nn.init.uniform_(w, -bound, bound, generator=source)
