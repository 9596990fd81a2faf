"""Weighted quantities: every mean of the project is Σ values·weights ÷ Σ weights.

Shapes: ``B`` samples, ``*`` further axes such as tokens, frames or pixels, ``R`` runs of a stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torchmetrics import Metric

_Method = TypeVar("_Method", bound=Callable[..., object])
_Value = TypeVar("_Value", Tensor, "Tensor | float")
LEAST = 1e-30  # weights that add up to less are none


class Quantity(NamedTuple):
    """What a batch says about one metric.

    Args:
        values: ``(B, *)``, or ``(R, B, *)`` in a stack.
        weights: how much each value counts, 0 for padding; broadcasts against ``values``. None counts all
            alike.
    """

    values: Tensor
    weights: Tensor | None = None

    def mean(self, runs: bool = False) -> Tensor:
        """Σ values·weights ÷ Σ weights, shape ``()``; one a run, ``(R,)``, when ``values`` lead with runs.

        A batch that is padding throughout gives 0.

        >>> Quantity(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([1.0, 1.0, 0.0])).mean()
        tensor(2.)
        """
        values = at_least_float(self.values.flatten(1) if runs else self.values.flatten())
        if self.weights is None:
            return values.mean(-1)
        weights = at_least_float(self.weights.expand_as(self.values).reshape(values.shape))
        # Padding may hold anything, infinities too.
        total = torch.where(weights > 0, values * weights, 0.0).sum(-1)
        return total / weights.sum(-1).clamp_min(LEAST)

    def weight(self, runs: bool = False) -> Tensor | float:
        """Σ weights: a number when all values count alike, else shape ``()``, or ``(R,)`` with ``runs``."""
        if self.weights is None:
            return float(self.values[0].numel() if runs else self.values.numel())
        weights = at_least_float(self.weights.expand_as(self.values))
        return (weights.flatten(1) if runs else weights.flatten()).sum(-1)


def at_least_float(value: _Value) -> _Value:
    """The value, as float32 where it is of half precision: sums of more than 256 ones stand still there."""
    if isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16):
        return value.float()
    return value


class Means:
    """Weighted means over batches, one or one a run, by name."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Tensor, Tensor | float]] = {}

    def add(self, name: str, means: Tensor, weights: Tensor | float) -> None:
        """Add the means of a batch, ``()`` or ``(R,)``, with the sums of their weights."""
        total, weight = self._sums.get(name, (0.0, 0.0))
        means, weights = at_least_float(means), at_least_float(weights)
        self._sums[name] = (total + means * weights, weight + weights)

    def take(self, name: str) -> tuple[Tensor | float, Tensor | float]:
        """Σ values·weights and Σ weights of a name, which starts again from nothing."""
        return self._sums.pop(name, (0.0, 0.0))

    def take_all(self) -> dict[str, Tensor]:
        """The means by name; all start again from nothing."""
        sums, self._sums = self._sums, {}
        return {name: total / weight for name, (total, weight) in sums.items()}


class WeightedMean(Metric):
    """Σ values·weights ÷ Σ weights over devices.

    torchmetrics' ``MeanMetric`` forgets the weights when its check for nan is off, and with the check on each
    update waits for the device.
    """

    total: Tensor
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("weight", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, total: Tensor | float, weight: Tensor | float) -> None:
        """Add a sum of weighted values, and the sum of their weights."""
        self.total = self.total + total
        self.weight = self.weight.to(self.total.dtype) + weight

    def compute(self) -> Tensor:
        """The mean; nan when nothing had any weight."""
        return self.total / self.weight


def takes_run_axis(method: _Method) -> _Method:
    """Mark a task's ``inputs`` or ``quantities`` as right for tensors with a leading run axis too.

    In stacks a marked method is called once for all runs, any other once a run. Marked ``quantities`` are also
    the same in training and in evaluation: where nothing in the network is random, ``train/clean_loss`` is
    ``train/loss``.
    """
    method.takes_run_axis = True  # type: ignore[attr-defined]
    return method
