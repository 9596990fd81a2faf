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
from pytorch_lightning.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from torch import Tensor, nn

from actlab.config.metrics import PARAMETERS, logged
from actlab.random.seeding import own_generators
from actlab.runtime.third_party import calling

ENDS = ("", "_min", "_max")  # of the names: value or mean, and the range of several values
_X = torch.linspace(-4, 4, 81, dtype=torch.float64)
# A device may hold a part of a parameter
_SPLIT = (
    FSDPStrategy,
    ModelParallelStrategy,
    DeepSpeedStrategy,
)


def learnt(activation: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of an activation that training changes, by name."""
    return {name: value for name, value in activation.named_parameters() if value.requires_grad}


def metrics_of(task: Any) -> dict[str, Tensor]:
    """Return the learnt parameters of a task or stack by logged name: ``activation/beta[layer=3]``.

    A parameter of one value is that value, another one is its mean, and its range under ``…_min``
    and ``…_max``. Values are ``(R,)`` in a stack. Parameters that a strategy splits over devices
    are left out.
    """
    if not _has_any(task):
        return {}
    of_members = [_of_layers(task.layers_of(r)) for r in range(len(task.members))]
    if not task.stacked:
        return of_members[0]
    return {name: torch.stack([of_run[name] for of_run in of_members]) for name in of_members[0]}


def _has_any(task: Any) -> bool:
    return any(map(learnt, task.members[0].activations)) and not isinstance(
        task.trainer.strategy, _SPLIT
    )


def _of_layers(units: Sequence[nn.Module]) -> dict[str, Tensor]:
    metrics: dict[str, Tensor] = {}
    for layer, activation in enumerate(units, 1):
        for name, parameter in learnt(activation).items():
            values = parameter.detach().float()
            parts = (
                (values.mean(), values.min(), values.max())
                if values.numel() > 1
                else (values.reshape(()),)
            )
            for end, value in zip(ENDS, parts, strict=False):
                metrics[logged(f"{PARAMETERS}{name}{end}", f"layer={layer}")] = value
    return metrics


def values_of(task: Any, r: int) -> dict[str, float]:
    """Return the learnt parameters of a member as numbers, by logged name; see `metrics_of`."""
    if not _has_any(task):
        return {}
    return {name: float(value) for name, value in _of_layers(task.layers_of(r)).items()}


def curves_of(task: Any, r: int, name: str) -> dict[str, dict[str, list[float]]]:
    """Return x and f(x) of each layer of a member whose activation has learnt parameters, by ``x`` and layer.

    ``name`` is the mean over channels that all have the input x. If channels differ, ``name_min``
    and ``name_max`` are the lowest and the highest. Empty if no layer can be evaluated at single
    numbers.
    """
    curves: dict[str, dict[str, list[float]]] = {}
    if not _has_any(task):
        return curves
    for layer, activation in enumerate(task.layers_of(r), 1):
        channels = _channels(activation) if learnt(activation) else None
        if channels is None:
            continue
        low, high = channels.amin(1), channels.amax(1)
        parts = [channels.mean(1)] if torch.equal(low, high) else [channels.mean(1), low, high]
        for end, values in zip(ENDS, parts, strict=False):
            of_end = curves.setdefault(f"{name}{end}", {"x": _plain(_X)})
            of_end[str(layer)] = _plain(values)
    return curves


def _channels(activation: nn.Module) -> Tensor | None:
    """Return f(x) in evaluation mode, ``[x, channels]``, all with the input x; None if it has no such form."""
    widths = {1, *(size for parameter in activation.parameters() for size in parameter.shape)}
    # A user's code may raise anything
    with (
        suppress(Exception),
        own_generators(0),
        calling(),
        torch.no_grad(),
    ):
        still = copy.deepcopy(activation).cpu().double().eval()
        for width in sorted(widths, reverse=True):
            for shape in ((len(_X), width), (len(_X), width, 1, 1)):
                with suppress(Exception):
                    x = _X.view(-1, *[1] * (len(shape) - 1)).expand(shape)
                    y: Tensor = still.forward(x.clone())
                    if y.shape == shape and y.isfinite().all():
                        return y.flatten(1)
    return None


def _plain(values: Tensor) -> list[float]:
    return [round(value, 6) for value in values.tolist()]
