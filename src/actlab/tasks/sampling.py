"""Standard errors that the means of an evaluation have from its samples.

Samples are windows of a text, or pictures. Shapes: ``B`` samples of a batch, ``N`` samples of an
evaluation on this device, ``R`` runs of a stack.
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
        if not isinstance(inputs, Tensor):
            return

        # The axes are runs, then samples
        axes = 2 if runs else 1
        shape = quantity.values.shape[:axes]
        if len(shape) < axes or shape[-1:] != inputs.shape[:1]:
            return

        # Sum over the values of each sample. Without weights each value counts once.
        products, weights = quantity.products(axes)
        totals = products.detach().sum(-1)
        if weights is None:
            sample_weights = products.new_full(shape, products.shape[-1])
        else:
            sample_weights = weights.sum(-1)
        batches = self._batches.setdefault(name, [])
        batches.append((wide(totals), wide(sample_weights)))

    def sums(self, name: str, mean: Tensor) -> Sums:
        """Return the sums of all batches of a metric with this mean, ``()`` or ``(R,)``."""
        empty = wide(mean.new_zeros((*mean.shape, 0)))
        batches = [(empty, empty), *self._batches.get(name, [])]
        totals, weights = zip(*batches, strict=True)
        return torch.cat(totals, -1), torch.cat(weights, -1)


def of_groups(sums: Sums, groups: Tensor) -> Sums:
    """Return the sums over the samples of each group, from the group number of each, ``(N,)``.

    >>> of_groups((torch.tensor([1.0, 2.0, 4.0]), torch.ones(3)), torch.tensor([7, 7, 9]))
    (tensor([3., 4.]), tensor([2., 1.]))
    """
    totals, weights = sums

    # Number the groups from 0. An evaluation may be limited to the first batches.
    groups = groups[: totals.shape[-1]]
    distinct, numbers = torch.unique(groups, return_inverse=True)

    shape = (*totals.shape[:-1], len(distinct))
    group_totals = totals.new_zeros(shape).index_add(-1, numbers, totals)
    group_weights = weights.new_zeros(shape).index_add(-1, numbers, weights)
    return group_totals, group_weights


def sampling_error(sums: Sums, over_devices: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the standard error of Σ values·weights ÷ Σ weights, ``()`` or ``(R,)``.

    √(n/(n − 1) · Σ wᵢ²(xᵢ − mean)²) ÷ Σ wᵢ over the n samples with a weight, where xᵢ is the mean
    and wᵢ the weight of sample i: the error of a ratio of two sums. It is not finite if unknown.
    ``over_devices`` sums a tensor over devices.

    >>> sampling_error((torch.tensor([1.0, 2.0, 3.0]), torch.ones(3)), lambda local: local)
    tensor(0.5774)
    """
    # Sum over the samples of all devices.
    totals, weights = sums
    has_weight = weights > 0
    local = torch.stack([has_weight.sum(-1), totals.sum(-1), weights.sum(-1)])
    n, total, weight = over_devices(local)

    mean = total / weight
    deviations = totals - mean.unsqueeze(-1) * weights  # wᵢ(xᵢ − mean)
    squares = over_devices(deviations.square().sum(-1))
    variance = squares * n / (n - 1)
    error: Tensor = variance.sqrt() / weight
    return error


def error_of_derived(metric: Derived, mean: Tensor, error: Tensor) -> Tensor:
    """Return the standard error of a function of one mean.

    It is half the difference between the function's values at mean + error and mean − error.
    """
    low = metric.function(wide(mean) - error)
    high = metric.function(wide(mean) + error)
    half: Tensor = (high - low).abs() / 2
    return half
