"""Trial of state: does a resumed run compute the same, from what its network holds?

A second build takes over the state dict of the first after a training step, and both are called
again. State that users' code keeps outside instances does not pass from job to job: each job has a
process of its own.
"""

from __future__ import annotations

import copy
import hashlib
from functools import partial
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

Digests = dict[str, str]
"""Digests of inputs and outputs of calls of a network, in the order of the calls, by a text."""


def tried(
    run: Run, experiment: Experiment, batch: Batch | None
) -> tuple[str | None, str]:
    """Try two builds of a run, which share the Trainer and the data of its ``experiment``.

    Returns:
        A message for a trainable parameter that two builds of an activation share, or None; and a
        line, which may be empty, that names what a checkpoint would lack. Without a ``batch`` the
        line is empty.

    Raises:
        ActlabError: if the builds share a parameter outside their activations.
    """
    if isinstance(experiment.task, Task):
        tasks: list[Any] = [*build_tasks([run.config] * 2, experiment)]
    else:
        # Another module is built together with its Trainer
        tasks = [experiments.build(run.config).task for _ in range(2)]
    task, resumed = tasks

    # No parameter is shared, by activations or by the rest of the network.
    activations = getattr(task, "activations", ())
    resumed_activations = getattr(resumed, "activations", ())
    for activation, resumed_activation in zip(
        activations, resumed_activations, strict=True
    ):
        fault = shared_parameter(activation, resumed_activation)
        if fault:
            return fault, ""
    fault = shared_parameter(task, resumed)
    if fault:
        raise ActlabError(f"the network: {fault}. Nothing is trained")

    # Other modules are not tried for incomplete checkpoints
    if batch is None or not isinstance(task, Task) or not isinstance(resumed, Task):
        return None, ""
    return None, _forgotten(task, resumed, batch)


def _forgotten(task: Task, resumed: Task, batch: Batch) -> str:
    """Return a line if a task with another's state dict computes other values, else nothing."""
    # A first call changes the state, as a training step does.
    _digests(task, batch)
    resumed.load_state_dict(copy.deepcopy(task.state_dict()))

    # Compare the calls of both tasks.
    digests = _digests(task, batch)
    resumed_digests = _digests(resumed, batch)
    differing = []
    for key in {**digests, **resumed_digests}:
        if digests.get(key) != resumed_digests.get(key):
            differing.append(key)
    if not differing:
        return ""

    # Name the activation, or the network.
    site = differing[0].partition(" ")[0]
    if site in task.sites:
        name = f"{type(task.sites[site]).__name__} (network.{site})"
    else:
        name = type(task.network).__name__
    return (
        f"{name} changes state in a training step that no checkpoint has, so a resumed run "
        "computes other values. Register this state as a buffer (register_buffer) or return it "
        "from get_extra_state.\n"
    )


def _digests(task: Task, batch: Batch) -> Digests:
    """Return digests of inputs and outputs of each activation, and of the loss, in both modes."""
    digests: Digests = {}

    # Watch each activation.
    def note(
        site: str, activation: nn.Module, inputs: tuple[Any, ...], output: Any
    ) -> None:
        digests[f" input of {site}, {activation.training}"] = _digest(inputs[0])
        digests[f"{site} output, {activation.training}"] = _digest(output)

    hooks = []
    for site, activation in task.sites.items():
        hooks.append(activation.register_forward_hook(partial(note, site)))

    # Compute the loss in training, then in evaluation.
    try:
        for training in (True, False):
            with own_generators(0), calling():
                loss = task.train(training).loss(batch)
                digests[f" loss, {training}"] = _digest(loss)
    except Exception as error:  # third-party code may raise anything
        digests[" error"] = described(error)

    # Leave the task without hooks
    for hook in hooks:
        hook.remove()
    return digests


def _digest(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    numbers = value.detach().cpu().contiguous().flatten()
    content = numbers.view(torch.uint8).numpy().tobytes()
    return hashlib.blake2b(content, digest_size=8).hexdigest()
