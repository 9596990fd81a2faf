"""What a task checks and completes while it is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from actlab.errors import ActlabError, unknown
from actlab.optim import L2, Plateau, Schedule


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


def materialise(network: nn.Module, input_shape: Sequence[int]) -> None:
    """Give lazily shaped parameters their shape by one forward pass of a zero sample, if there are any."""
    if any(isinstance(p, nn.UninitializedParameter) for p in network.parameters()):
        training = network.training
        with torch.no_grad():
            network.eval()(torch.zeros(1, *input_shape))
        network.train(training)
