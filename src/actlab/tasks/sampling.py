"""Standard errors that the means of an evaluation have from its samples, such as windows of a text or pictures.

Shapes: ``B`` samples of a batch, ``N`` of an evaluation on this device, ``R`` runs of a stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from actlab.runtime.accidents import wide
from actlab.tasks.quantities import Derived, Quantity

SHARES = {"error", "accuracy"}  # whose errors follow from the number of samples
# Σ values·weights and Σ weights of each sample, float64, ``(N,)`` or ``(R, N)``
Sums = tuple[Tensor, Tensor]


class SampleSums:
    """The sums over the values of each sample, by metric name."""

    def __init__(self) -> None:
        self._batches: dict[str, list[Sums]] = {}

    def add(self, name: str, quantity: Quantity, inputs: Any, runs: bool) -> None:
        """Add a batch of inputs ``(B, *)``; values that are not ``([R,] B, *)`` have no samples."""
        shape = quantity.values.shape[: 1 + runs]
        if not isinstance(inputs, Tensor) or len(shape) <= runs or shape[-1:] != inputs.shape[:1]:
            return
        products, weights = quantity.products(1 + runs)
        number = (
            products.new_full(shape, products.shape[-1]) if weights is None else weights.sum(-1)
        )
        self._batches.setdefault(name, []).append((wide(products.detach().sum(-1)), wide(number)))

    def of(self, name: str, mean: Tensor) -> Sums:
        """Return the sums of all batches of a metric with this mean, ``()`` or ``(R,)``."""
        none = wide(mean.new_zeros((*mean.shape, 0)))
        parts = zip((none, none), *self._batches.get(name, []), strict=True)
        return torch.cat(next(parts), -1), torch.cat(next(parts), -1)


def of_groups(sums: Sums, groups: Tensor) -> Sums:
    """Return the sums over the samples of each group, given the group's number of each sample ``(N,)``.

    >>> of_groups((torch.tensor([1.0, 2.0, 4.0]), torch.ones(3)), torch.tensor([7, 7, 9]))
    (tensor([3., 4.]), tensor([2., 1.]))
    """
    groups = groups[: sums[0].shape[-1]]  # an evaluation may be limited to the first batches
    known, numbers = torch.unique(groups, return_inverse=True)
    totals, weights = (
        part.new_zeros((*part.shape[:-1], len(known))).index_add(-1, numbers, part) for part in sums
    )
    return totals, weights


def sampling_error(sums: Sums, everywhere: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the standard error of Σ values·weights ÷ Σ weights, ``()`` or ``(R,)``; not finite if unknown.

    √(n/(n − 1) · Σ wᵢ²(xᵢ − mean)²) ÷ Σ wᵢ over the n samples with a weight, of the mean xᵢ and the
    weight wᵢ of each: the error of a ratio of two sums. ``everywhere`` sums a tensor over devices.

    >>> sampling_error((torch.tensor([1.0, 2.0, 3.0]), torch.ones(3)), lambda of_device: of_device)
    tensor(0.5774)
    """
    totals, weights = sums
    number, total, weight = everywhere(
        torch.stack([(weights > 0).sum(-1), totals.sum(-1), weights.sum(-1)])
    )
    apart = totals - (total / weight).unsqueeze(-1) * weights
    error: Tensor = (everywhere(apart.square().sum(-1)) * number / (number - 1)).sqrt() / weight
    return error


def error_of_derived(metric: Derived, mean: Tensor, error: Tensor) -> Tensor:
    """Return the standard error of a function of one mean: half of how far it moves from −error to +error."""
    low, high = (metric.function(wide(mean) + sign * error) for sign in (-1, 1))
    half: Tensor = (high - low).abs() / 2
    return half
