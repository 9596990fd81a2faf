"""What a task checks and completes while it is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn
from torch.optim import Optimizer

from actlab import hashing
from actlab.errors import ActlabError, unknown
from actlab.networks import ActivationFactory
from actlab.optim import L2, Plateau, Schedule
from actlab.seeding import own_generators


def check_optimizer(
    optimizer: Optimizer, l2: L2 | None, scheduler: object, schedules: Mapping[str, Any]
) -> None:
    """Refuse settings of a task of which one would silently win over another.

    Raises:
        ActlabError: when decay or learning rate are given twice.
    """
    if l2 is not None and optimizer.defaults.get("weight_decay"):
        raise ActlabError("both 'l2' and the optimizer's 'weight_decay' are set: give one of them")
    if scheduler is not None and "lr" in schedules:
        raise ActlabError("both 'scheduler' and 'schedules: lr' are set: give one of them")


def check_schedules(schedules: Mapping[str, Schedule], logged: Sequence[str]) -> None:
    """Refuse a plateau schedule of what is never measured: it would never act.

    Args:
        schedules: of a task, by setting.
        logged: names of its metrics, such as ``val/loss``.

    Raises:
        ActlabError: for a metric that is none of them.
    """
    for schedule in schedules.values():
        if isinstance(schedule, Plateau) and schedule.metric not in logged:
            raise unknown("metric of a plateau schedule", schedule.metric, logged)


def check_devices(trainer: pl.Trainer, network: nn.Module) -> None:
    """Refuse batch norm over parts of a batch: it would give other numbers on another number of devices.

    Raises:
        ActlabError: for a network with batch norm on several devices that do not share its statistics.
    """
    normed = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in network.modules())
    if normed and trainer.world_size > 1 and getattr(trainer.strategy, "_layer_sync", None) is None:
        raise ActlabError(
            f"batch norm on {trainer.world_size} devices, each with a part of the batch: on GPUs set "
            "trainer.sync_batchnorm true, on CPUs trainer.devices 1"
        )


def recorded(factory: ActivationFactory, units: list[nn.Module], seed: int) -> ActivationFactory:
    """A factory that notes in ``units`` what it makes.

    What a unit draws in its constructor is its own: it moves no other random numbers.
    """

    def unit() -> nn.Module:
        with own_generators(hashing.seed_for(seed, "unit", len(units))):
            units.append(factory())
        return units[-1]

    return unit


def materialise(network: nn.Module, input_shape: Sequence[int]) -> None:
    """Give lazily shaped parameters their shape by one forward pass of a zero sample, if there are any."""
    if any(isinstance(p, nn.UninitializedParameter) for p in network.parameters()):
        training = network.training
        with torch.no_grad():
            network.eval()(torch.zeros(1, *input_shape))
        network.train(training)
