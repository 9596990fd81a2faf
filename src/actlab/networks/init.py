"""Initialisation rules of the papers."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from actlab.errors import unknown


def unit_norm_rows_(weight: Tensor) -> Tensor:
    """W ~ N(0, 1), then each output unit's incoming weight vector scaled to norm 1 (GELU §3.1)."""
    rows = nn.init.normal_(weight).flatten(1)
    return weight.div_(rows.norm(dim=1).view(-1, *[1] * (weight.ndim - 1)))


def he_(weight: Tensor) -> Tensor:
    """W ~ N(0, 2 / fan_in) (He et al. 2015), for every layer and unit alike."""
    return nn.init.normal_(weight, std=math.sqrt(2 / weight[0].numel()))


def glorot_(weight: Tensor) -> Tensor:
    """W ~ U(−a, a), a = √(6 / (fan_in + fan_out)) (Glorot & Bengio 2010)."""
    return nn.init.xavier_uniform_(weight)


INIT_RULES: dict[str, Callable[[Tensor], Tensor]] = {
    "unit_norm_rows": unit_norm_rows_,
    "he": he_,
    "glorot": glorot_,
}


@torch.no_grad()
def initialise(network: nn.Module, rule: str) -> None:
    """Draw every linear and convolutional weight by a rule and set the biases to 0, in place.

    Draws from torch's global generator; the task seeds it from the run's seed.

    Raises:
        ActlabError: when ``rule`` is not in `INIT_RULES`.
    """
    if rule not in INIT_RULES:
        raise unknown("init rule", rule, INIT_RULES)
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            INIT_RULES[rule](layer.weight)
            if layer.bias is not None:
                layer.bias.zero_()
