"""Weighted means of metrics: Σ values·weights ÷ Σ weights, over a batch, an epoch and devices.

Shapes: ``B`` samples, ``*`` further axes such as tokens, frames or pixels, ``R`` runs of a stack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

_Method = TypeVar("_Method", bound=Callable[..., object])
_Value = TypeVar("_Value", Tensor, "Tensor | float")
LEAST = 1e-30  # lower bound of a sum of weights, which avoids division by zero


class Quantity(NamedTuple):
    """The values of one metric in a batch, with their weights.

    Args:
        values: ``(B, *)``, or ``(R, B, *)`` in a stack.
        weights: the weight of each value, 0 for padding; broadcasts against ``values``. None means
            equal weights.
    """

    values: Tensor
    weights: Tensor | None = None

    def mean(self, runs: bool = False) -> Tensor:
        """Return Σ values·weights ÷ Σ weights, shape ``()``, or ``(R,)`` with ``runs``.

        The mean of a batch that is all padding is 0.

        >>> Quantity(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([1.0, 1.0, 0.0])).mean()
        tensor(2.)
        """
        products, weights = self.products(int(runs))
        if weights is None:
            return products.mean(-1)
        return products.sum(-1) / weights.sum(-1).clamp_min(LEAST)

    def products(self, axes: int) -> tuple[Tensor, Tensor | None]:
        """Return values·weights, and the weights if there are any.

        The first axes stay, and all others become one: for 1 axis ``(R, B, *)`` → ``(R, B·*)``.
        """
        values = self.values
        if values.dim() != axes + 1:
            values = values.reshape(*values.shape[:axes], -1)
        values = at_least_float(values)
        if self.weights is None:
            return values, None

        weights = self.weights.expand_as(self.values).reshape(values.shape)
        weights = at_least_float(weights)
        # Padding may hold any value, including infinities.
        return torch.where(weights > 0, values * weights, 0.0), weights

    def weight(self, runs: bool = False) -> Tensor | float:
        """Return Σ weights, ``()``, or ``(R,)`` with ``runs``; a number if weights are equal."""
        if self.weights is None:
            run_values = self.values[0] if runs else self.values
            return float(run_values.numel())

        weights = at_least_float(self.weights.expand_as(self.values))
        return weights.flatten(int(runs)).sum(-1)

    def of_run(self, r: int) -> Quantity:
        """Return the quantity of one run of a stack."""
        if self.weights is None:
            return Quantity(self.values[r])
        return Quantity(self.values[r], self.weights.expand_as(self.values)[r])


def at_least_float(value: _Value) -> _Value:
    """Convert half precision to float32: in bfloat16, a sum of ones cannot exceed 256."""
    if isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16):
        return value.float()
    return value


class Derived(NamedTuple):
    """A metric that is a function of means, such as a perplexity; an evaluation ends with it.

    Args:
        function: maps the means, each ``()`` or ``(R,)``, to the metric.
        quantities: names of the quantities whose means are the arguments.

    >>> Derived(torch.exp).function(torch.tensor(0.0))
    tensor(1.)
    """

    function: Callable[..., Tensor]
    quantities: tuple[str, ...] = ("loss",)


class Means:
    """Weighted means over batches by metric name, for one run or R runs."""

    def __init__(self) -> None:
        # Σ values·weights and Σ weights
        self.sums: dict[str, tuple[Tensor, Tensor | float]] = {}

    def add(self, name: str, means: Tensor, weights: Tensor | float) -> None:
        """Add the means of a batch, ``()`` or ``(R,)``, with their sums of weights."""
        means = at_least_float(means)
        weights = at_least_float(weights)
        total, weight = self.sums.get(name, (0.0, 0.0))
        self.sums[name] = (total + means * weights, weight + weights)

    def take(self, name: str) -> tuple[Tensor | float, Tensor | float]:
        """Return Σ values·weights and Σ weights of a metric, and reset both to 0."""
        return self.sums.pop(name, (0.0, 0.0))

    def take_all(self) -> dict[str, Tensor]:
        """Return all means by metric name, and reset them."""
        means = {name: total / weight for name, (total, weight) in self.sums.items()}
        self.sums = {}
        return means


def with_gradients(
    task: Any, network: Callable[..., Tensor], batch: Sequence[Any]
) -> dict[str, Quantity]:
    """Return what ``task.measure`` returns, with gradients also in an evaluation.

    Lightning evaluates in torch's inference mode, whose tensors cannot be differentiated: they are
    copied.
    """
    with torch.inference_mode(False), torch.enable_grad():
        tensors = []
        for tensor in batch:
            is_inference = isinstance(tensor, Tensor) and tensor.is_inference()
            tensors.append(tensor.clone() if is_inference else tensor)
        quantities: dict[str, Quantity] = task.measure(network, tuple(tensors))
        return quantities


def takes_run_axis(method: _Method) -> _Method:
    """Declare that a method of a task also accepts tensors with a run axis.

    The method is ``inputs``, ``quantities`` or ``measure``.

    Stacks call a marked method once for all runs, unmarked ``inputs`` and ``quantities`` once per
    run; a task whose own ``measure`` is unmarked is not stacked. Marking ``quantities`` or
    ``measure`` also declares that it returns equal values in training and evaluation mode:
    ``train/clean_loss`` then equals ``train/loss`` unless the network is random.
    """
    method.takes_run_axis = True  # type: ignore[attr-defined]
    return method
