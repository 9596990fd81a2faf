"""Trial of state: does a network hold all it needs, so that a resumed run computes the same?

A second build takes over the state dict of the first after a training step, and both are called
again. State that users' code keeps outside instances does not pass from job to job: each job has a
process of its own.
"""

from __future__ import annotations

import copy
import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from actlab import experiments
from actlab.activations.replacement import shared_parameter
from actlab.errors import ActlabError
from actlab.errors.messages import described
from actlab.experiments import Experiment
from actlab.random.seeding import own_generators
from actlab.runtime.third_party import calling
from actlab.stacking.building import build_tasks
from actlab.studies.plan import Run
from actlab.tasks import Task
from actlab.tasks.evaluation import Batch

Seen = dict[str, str]
"""Digests of what calls of a network take and return, in the order of the calls, by a text."""


def tried(run: Run, experiment: Experiment, batch: Batch | None) -> tuple[str | None, str]:
    """Return a message for a trainable parameter that two builds of an activation share, or None, and a line.

    The line, which may be empty, names what a checkpoint would lack; without a ``batch`` this is
    not tried. The builds share the Trainer and the data of an ``experiment`` of the run.

    Raises:
        ActlabError: if the builds share a parameter outside their activations.
    """
    if isinstance(experiment.task, Task):
        builds: list[Any] = [*build_tasks([run.config] * 2, experiment)]
    else:
        builds = [experiments.build(run.config).task for _ in range(2)]
    first, second = builds
    for activation, later in zip(
        getattr(first, "activations", ()), getattr(second, "activations", ()), strict=True
    ):
        if fault := shared_parameter(activation, later):
            return fault, ""
    if fault := shared_parameter(first, second):
        raise ActlabError(f"the network: {fault}. Nothing is trained")
    if batch is None or not isinstance(first, Task) or not isinstance(second, Task):
        return None, ""
    return None, _forgotten(first, second, batch)


def _forgotten(task: Task, resumed: Task, batch: Batch) -> str:
    """Return a line if a task with the state dict of another one computes other values, else nothing."""
    _calls(task, batch)
    resumed.load_state_dict(copy.deepcopy(task.state_dict()))
    before, after = _calls(task, batch), _calls(resumed, batch)
    differing = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    if not differing:
        return ""

    site = differing[0].partition(" ")[0]
    holder = task.sites.get(site, task.network)
    where = f" (network.{site})" if site in task.sites else ""
    return (
        f"{type(holder).__name__}{where} changes in a training step what no checkpoint keeps: a resumed run "
        "computes other values. Register it as a buffer (register_buffer) or return it from get_extra_state.\n"
    )


def _calls(task: Task, batch: Batch) -> Seen:
    """Return digests of inputs and outputs of each activation, and of the loss, in both modes."""
    seen: Seen = {}

    def note(site: str, activation: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        seen[f" input of {site}, {activation.training}"] = _digest(inputs[0])
        seen[f"{site} output, {activation.training}"] = _digest(output)

    hooks = [
        activation.register_forward_hook(lambda *called, site=site: note(site, *called))
        for site, activation in task.sites.items()
    ]
    try:
        for training in (True, False):
            with own_generators(0), calling():
                seen[f" loss, {training}"] = _digest(task.train(training).loss(batch))
    except Exception as error:  # third-party code may raise anything
        seen[" error"] = described(error)
    for hook in hooks:
        hook.remove()
    return seen


def _digest(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.blake2b(content, digest_size=8).hexdigest()
