"""Learnt parameters of activations: metrics of each layer, and the curve that they give.

A layer is an activation module of the network, from 1 on in the order of the network's modules.
``R``: runs.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from pytorch_lightning.strategies import (
    DeepSpeedStrategy,
    FSDPStrategy,
    ModelParallelStrategy,
)
from torch import Tensor, nn

from actlab.config.metrics import PARAMETERS, logged
from actlab.random.seeding import own_generators
from actlab.runtime.third_party import calling

# Ends of names: a value or the mean of several, and their range
ENDS = ("", "_min", "_max")
_X = torch.linspace(-4, 4, 81, dtype=torch.float64)
# With these strategies a device may hold only a part of a parameter.
_SPLIT = (FSDPStrategy, ModelParallelStrategy, DeepSpeedStrategy)


def learnt(activation: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of an activation that training changes, by name."""
    return {
        name: value
        for name, value in activation.named_parameters()
        if value.requires_grad
    }


def metrics_of(task: Any) -> dict[str, Tensor]:
    """Return the learnt parameters of a task or stack by logged name: ``activation/beta[layer=3]``.

    A parameter with one value is logged as it is. A parameter with several values is logged as
    their mean, with their range as ``…_min`` and ``…_max``. Values are ``(R,)`` in a stack.
    Parameters that a strategy splits over devices are left out.
    """
    if not _has_learnt(task):
        return {}
    member_metrics = [
        _layer_metrics(task.layers_of(r)) for r in range(len(task.members))
    ]
    if not task.stacked:
        return member_metrics[0]

    # All members have the same layers.
    stacked = {}
    for name in member_metrics[0]:
        values = [metrics[name] for metrics in member_metrics]
        stacked[name] = torch.stack(values)
    return stacked


def _has_learnt(task: Any) -> bool:
    """Whether a task or stack has learnt parameters, as a whole on each device."""
    # A mean over a part would be another number on each device
    if isinstance(task.trainer.strategy, _SPLIT):
        return False
    return any(learnt(activation) for activation in task.members[0].activations)


def _layer_metrics(activations: Sequence[nn.Module]) -> dict[str, Tensor]:
    metrics: dict[str, Tensor] = {}
    for layer, activation in enumerate(activations, 1):
        for name, parameter in learnt(activation).items():
            values = parameter.detach().float()
            # The statistics of `ENDS`
            if values.numel() == 1:
                statistics = [values.reshape(())]
            else:
                statistics = [values.mean(), values.min(), values.max()]
            for end, value in zip(ENDS, statistics, strict=False):
                metrics[logged(f"{PARAMETERS}{name}{end}", f"layer={layer}")] = value
    return metrics


def values_of(task: Any, r: int) -> dict[str, float]:
    """Return the learnt parameters of a member as numbers, by logged name; see `metrics_of`."""
    if not _has_learnt(task):
        return {}
    metrics = _layer_metrics(task.layers_of(r))
    return {name: float(value) for name, value in metrics.items()}


def curves_of(task: Any, r: int, name: str) -> dict[str, dict[str, list[float]]]:
    """Return x, and f(x) of each layer of a member with learnt parameters, by ``x`` and layer.

    The curve ``name`` is the mean over channels that all have the input x. If channels differ,
    ``name_min`` and ``name_max`` are the lowest and the highest value. Empty if no layer can be
    evaluated at single numbers.
    """
    curves: dict[str, dict[str, list[float]]] = {}
    if not _has_learnt(task):
        return curves

    # Skip layers without learnt parameters or without a curve
    for layer, activation in enumerate(task.layers_of(r), 1):
        channels = _channels(activation) if learnt(activation) else None
        if channels is None:
            continue

        # Reduce the channels, as in `ENDS`.
        statistics = [channels.mean(1)]
        low, high = channels.amin(1), channels.amax(1)
        if not torch.equal(low, high):
            statistics += [low, high]

        # One x for all layers, then f(x) by layer
        for end, values in zip(ENDS, statistics, strict=False):
            curve = curves.setdefault(f"{name}{end}", {"x": _plain(_X)})
            curve[str(layer)] = _plain(values)
    return curves


def _channels(activation: nn.Module) -> Tensor | None:
    """Return f(x) of each channel in evaluation mode, ``[x, channels]``; None if it has none."""
    # The number of channels is 1, or a size of a parameter.
    widths = {1}
    for parameter in activation.parameters():
        widths.update(parameter.shape)

    # Call a copy with inputs (x, C) and (x, C, 1, 1). A user's code may raise anything.
    with suppress(Exception), own_generators(0), calling(), torch.no_grad():
        duplicate = copy.deepcopy(activation).cpu().double().eval()
        # The widest shape that works shows every channel
        for width in sorted(widths, reverse=True):
            for trailing in ((), (1, 1)):
                with suppress(Exception):
                    shape = (len(_X), width, *trailing)
                    x = _X.view(-1, 1, *trailing).expand(shape)
                    y: Tensor = duplicate.forward(x.clone())
                    if y.shape == shape and y.isfinite().all():
                        return y.flatten(1)
    return None


def _plain(values: Tensor) -> list[float]:
    # Six digits draw a curve, and make a file that can be read
    return [round(value, 6) for value in values.tolist()]
