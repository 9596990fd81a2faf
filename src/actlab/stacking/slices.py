"""Slices of stacked parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import torch
from pytorch_lightning.cli import OptimizerCallable
from torch import nn
from torch.optim import Optimizer

from actlab.errors import ActlabError

# Optimisers that act on every element by itself, so that a slice of a stacked parameter is updated as the
# parameters of its members are when they are alone.
ELEMENTWISE_OPTIMIZERS = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
)


class Slices:
    """Stacked parameters cut along the run axis where the optimiser's settings change.

    Neighbouring members of equal settings share a slice and a parameter group, so a stack of three learning
    rates costs three groups whatever its size. A slice shares storage with its parameter. The optimisers in
    `ELEMENTWISE_OPTIMIZERS` treat every element by itself, so each member is updated as it is alone.

    Args:
        network: with parameters ``(R, *)``.
        factories: each member's optimiser factory.

    Raises:
        ActlabError: for an optimiser that mixes elements.
    """

    def __init__(self, network: nn.Module, factories: Sequence[OptimizerCallable]) -> None:
        self.parameters = list(network.parameters())
        settings = [member_settings(factory) for factory in factories]
        self.ranges: list[slice] = []
        groups = []
        for values, run in groupby(enumerate(settings), key=lambda item: item[1]):
            indices = [index for index, _ in run]
            self.ranges.append(slice(indices[0], indices[-1] + 1))
            parts = [nn.Parameter(p.detach()[self.ranges[-1]]) for p in self.parameters]
            groups.append({**values, "params": parts})
        self.optimizer = _optimizer(factories[0], groups)

    def take_gradients(self) -> None:
        """Point each slice's gradient into the gradient of its parameter."""
        for members, group in zip(self.ranges, self.optimizer.param_groups, strict=True):
            for parameter, part in zip(self.parameters, group["params"], strict=True):
                part.grad = None if parameter.grad is None else parameter.grad[members]


def member_settings(factory: OptimizerCallable) -> dict[str, Any]:
    """A member's optimiser settings, as a parameter group has them."""
    group = factory([nn.Parameter(torch.zeros(1))]).param_groups[0]
    return {name: value for name, value in group.items() if name != "params"}


def _optimizer(factory: OptimizerCallable, groups: Iterable[dict[str, Any]]) -> Optimizer:
    optimizer = factory(groups)
    if not isinstance(optimizer, ELEMENTWISE_OPTIMIZERS):
        names = ", ".join(o.__name__ for o in ELEMENTWISE_OPTIMIZERS)
        raise ActlabError(f"{type(optimizer).__name__} is not known to act elementwise; stacks take {names}")
    return optimizer
