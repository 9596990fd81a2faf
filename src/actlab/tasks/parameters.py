"""Learnt parameters of activations: metrics of each layer, and the curve that they give.

A layer is an activation module of the network, from 1 on in the order of the network's modules. ``R``: runs.
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
_SPLIT = (FSDPStrategy, ModelParallelStrategy, DeepSpeedStrategy)  # a device may hold a part of a parameter


def learnt(unit: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of an activation that training changes, by name."""
    return {name: value for name, value in unit.named_parameters() if value.requires_grad}


def metrics_of(task: Any) -> dict[str, Tensor]:
    """Return the learnt parameters of a task or stack by logged name: ``activation/beta[layer=3]``.

    A parameter of one value is that value, another one is its mean, and its range under ``…_min`` and
    ``…_max``. Values are ``(R,)`` in a stack. Parameters that a strategy splits over devices are left out.
    """
    if not _has_any(task):
        return {}
    of_members = [_of_layers(task.layers_of(r)) for r in range(len(task.members))]
    if not task.stacked:
        return of_members[0]
    return {name: torch.stack([of_run[name] for of_run in of_members]) for name in of_members[0]}


def _has_any(task: Any) -> bool:
    return any(map(learnt, task.members[0].units)) and not isinstance(task.trainer.strategy, _SPLIT)


def _of_layers(units: Sequence[nn.Module]) -> dict[str, Tensor]:
    metrics: dict[str, Tensor] = {}
    for layer, unit in enumerate(units, 1):
        for name, parameter in learnt(unit).items():
            values = parameter.detach().float()
            parts = (values.mean(), values.min(), values.max()) if values.numel() > 1 else (values.reshape(()),)
            for end, value in zip(ENDS, parts, strict=False):
                metrics[logged(f"{PARAMETERS}{name}{end}", f"layer={layer}")] = value
    return metrics


def curves_of(task: Any, r: int) -> dict[str, list[float]]:
    """Return x and f(x) of each layer of a member whose activation has learnt parameters, by ``x`` and layer.

    Empty if there is none that can be evaluated at single numbers.
    """
    if not _has_any(task):
        return {}
    units = enumerate(task.layers_of(r), 1)
    curves = {str(layer): values for layer, unit in units if learnt(unit) and (values := _curve(unit))}
    return {"x": _plain(_X), **curves} if curves else {}


def _curve(unit: nn.Module) -> list[float]:
    """Return f(x) in evaluation mode, the mean over channels that all have the input x; empty without one."""
    widths = {1, *(size for parameter in unit.parameters() for size in parameter.shape)}
    with suppress(Exception), own_generators(0), calling(), torch.no_grad():  # a user's code may raise anything
        still = copy.deepcopy(unit).cpu().double().eval()
        for width in sorted(widths, reverse=True):
            for shape in ((len(_X), width), (len(_X), width, 1, 1)):
                with suppress(Exception):
                    x = _X.view(-1, *[1] * (len(shape) - 1)).expand(shape)
                    y = still.forward(x.clone())
                    if y.shape == shape and y.isfinite().all():
                        return _plain(y.flatten(1).mean(1))
    return []


def _plain(values: Tensor) -> list[float]:
    return [round(value, 6) for value in values.tolist()]
