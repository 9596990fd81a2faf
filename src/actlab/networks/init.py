"""Initialisation rules of the papers.

Within a run the weights of a layer depend only on (run seed, ordinal of the layer): runs with equal
seeds start from the same weights, whatever activations or dropout stand between the layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Generator, Tensor, nn

from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.random.hashing import generator

Rule = Callable[[Tensor, Generator | None], Tensor]


def unit_norm_rows_(weight: Tensor, source: Generator | None = None) -> Tensor:
    """Draw W ~ N(0, 1), then scale the incoming weights of each output unit to norm 1.

    Source: GELU §3.1.
    """
    nn.init.normal_(weight, generator=source)
    # A row holds the incoming weights of a unit; of a convolution, all of its field
    norms = weight.flatten(1).norm(dim=1)
    return weight.div_(norms.view(-1, *[1] * (weight.ndim - 1)))


def he_(weight: Tensor, source: Generator | None = None) -> Tensor:
    """Draw W ~ N(0, 2 / fan_in) (He et al. 2015), whatever the layer and its activation."""
    fan_in = weight[0].numel()
    return nn.init.normal_(weight, std=math.sqrt(2 / fan_in), generator=source)


def he_gain_1_(weight: Tensor, source: Generator | None = None) -> Tensor:
    """Draw W ~ N(0, 1 / fan_in): `he_` without its gain of √2, for layers without activation."""
    fan_in = weight[0].numel()
    return nn.init.normal_(weight, std=math.sqrt(1 / fan_in), generator=source)


def glorot_(weight: Tensor, source: Generator | None = None) -> Tensor:
    """Draw W ~ U(−a, a), a = √(6 / (fan_in + fan_out)) (Glorot & Bengio 2010)."""
    return nn.init.xavier_uniform_(weight, generator=source)


# By the names that configs use
INIT_RULES: dict[str, Rule] = {
    "unit_norm_rows": unit_norm_rows_,
    "he": he_,
    "he_gain_1": he_gain_1_,
    "glorot": glorot_,
}

# Seed of the run whose network is being built, and its activations so far. `initialise`
# does not change activations.
_building: ContextVar[tuple[int, Sequence[nn.Module]] | None] = ContextVar(
    "_building", default=None
)


@contextmanager
def weights_of_run(seed: int, activations: Sequence[nn.Module]) -> Iterator[None]:
    """Make `initialise` draw the weights of one run in a block, outside its activations."""
    token = _building.set((seed, activations))
    try:
        yield
    finally:
        _building.reset(token)


def outside_activations(network: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the name and module of each part of a network outside the activations of the run."""
    _, activations = _building.get() or (None, ())
    # An activation such as PReLU has weights, which no rule of the network draws
    inside: set[int] = set()
    for module in activations:
        inside.update(map(id, module.modules()))
    return [
        (name, part) for name, part in network.named_modules() if id(part) not in inside
    ]


def generator_of_layer(purpose: str, layer: int | str) -> Generator | None:
    """Return the run's generator for a layer, by ordinal or name; None is torch's global one."""
    seed, _ = _building.get() or (None, ())
    # A network that is built outside a run draws as torch's own layers do
    if seed is None:
        return None
    return generator(seed, purpose, layer)


@torch.no_grad()
def initialise(
    network: nn.Module,
    rule: str | Rule,
    layer_rules: Mapping[nn.Module, str | Rule] | None = None,
    bias_rules: Mapping[nn.Module, Rule] | None = None,
    channels_last: bool = False,
) -> None:
    """Draw every linear and convolutional weight by a rule and set the biases to 0, in place.

    Inside `weights_of_run` each layer has its own generator; otherwise torch's global generator is
    used.

    Args:
        network: any module.
        rule: a key of `INIT_RULES`, or a function that draws a weight.
        layer_rules: rules for the weights of single layers, in place of ``rule``.
        bias_rules: rules for the biases of single layers, in place of 0.
        channels_last: whether to store weights and maps in the memory order B, H, W, C.

    Raises:
        ActlabError: for an unknown rule, or a transposed convolution, for which there is no rule.
    """
    layer_rules = layer_rules or {}
    bias_rules = bias_rules or {}

    # Check the rules and the layers.
    for name in (rule, *layer_rules.values()):
        if isinstance(name, str) and name not in INIT_RULES:
            raise unknown("init rule", name, INIT_RULES)
    for layer in network.modules():
        if isinstance(layer, nn.modules.conv._ConvTransposeNd):
            raise ActlabError(
                f"actlab has no init rule for {type(layer).__name__}. Set its weights in the "
                "network."
            )

    # Draw weights and biases.
    kinds = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
    layers = [
        part for _, part in outside_activations(network) if isinstance(part, kinds)
    ]
    for ordinal, layer in enumerate(layers):
        draw = layer_rules.get(layer, rule)
        if isinstance(draw, str):
            draw = INIT_RULES[draw]
        draw(layer.weight, generator_of_layer("weights", ordinal))

        if layer in bias_rules:
            bias = layer.get_parameter("bias")
            bias_rules[layer](bias, generator_of_layer("biases", ordinal))
        # No other random number is drawn, so layers with and without bias draw equal
        # weights
        elif layer.bias is not None:
            layer.bias.zero_()

    if channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
