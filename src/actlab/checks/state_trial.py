"""Trial of state: does a run depend on its config and seed alone, and does a resumed run compute the same?

Two processes that train nothing build each network with two seeds, in opposite orders, and change all
parameters after each build. A parameter, statistic or generator that is kept outside instances makes a build
depend on those before it. For users' code the two processes also have different hash seeds. In one of them a
further build takes over the state dict of the first after a call.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import pickle
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from actlab import experiments
from actlab.activations.replacement import shared_parameter
from actlab.checks.cases import Cases, Faults
from actlab.config.values import label
from actlab.errors import ActlabError, described
from actlab.random.seeding import own_generators
from actlab.runtime import signals
from actlab.runtime.devices import threads
from actlab.runtime.signals import Report
from actlab.runtime.third_party import calling
from actlab.studies.plan import SEED, Run
from actlab.tasks import Task
from actlab.tasks.training import Batch

Part = tuple[str, str]
"""What is compared: the path of an activation in the task, empty for the network around them, and a text."""
Seen = dict[Part, str]
"""Digests of the state of a build and of what its calls return, in the order of the calls."""
Builds = tuple[dict[int, Seen], Part | None, str]
"""What one process has seen: by seed; the first parameter of two builds, in a sentence; a line on resumes."""


def build(cases: Cases, backwards: bool, report: Report) -> dict[str, Builds]:
    """Build the network of each case with its seed and another one, or the other way round.

    ``report("trying", key, name)`` is called before any code of an activation runs.
    """
    builds = {}
    for key, (run, samples) in cases.items():
        report("trying", key, f"activation {label(run.unit)}")
        signals.check()
        builds[key] = _built(run, samples, backwards)
    return builds


def compare(cases: Cases, first: Mapping[str, Builds], second: Mapping[str, Builds]) -> Faults:
    """Return how builds in two processes, in opposite orders, depend on those before them, by case.

    Prints a line on resumes for each network whose state dict lacks what training changes.

    Raises:
        ActlabError: if a network depends on other builds outside its activations.
    """
    faults = {key: _fault_of(run, first[key], second[key]) for key, (run, _) in cases.items()}
    for line in dict.fromkeys(first[key][2] for key, fault in faults.items() if fault is None):
        print(line, end="")
    return faults


@threads(1)  # a few samples: more threads only wait for each other
def _built(run: Run, samples: bytes, backwards: bool) -> Builds:
    batch: Batch | None = pickle.loads(samples) if samples else None
    seen: dict[int, Seen] = {}
    tasks: list[pl.LightningModule] = []
    hint = ""
    for seed in [run.seed, run.seed + 1][:: -1 if backwards else 1]:
        task = experiments.build({**run.config, SEED: seed}).task
        seen[seed] = {**_state(task), **_calls(task, batch)}
        if batch is not None and not backwards and not tasks:
            hint = _forgotten(task, experiments.build({**run.config, SEED: seed}).task, batch)
        tasks.append(task)
        with torch.no_grad():
            for parameter in task.parameters():
                if parameter.requires_grad and not isinstance(parameter, nn.UninitializedParameter):
                    parameter.add_(1)  # as training would
    return seen, _shared(*tasks), hint


def _fault_of(run: Run, first: Builds, second: Builds) -> str | None:
    digests, shared, _ = first
    part = shared or next(filter(None, (_difference(digests[seed], second[0][seed]) for seed in digests)), None)
    if part is None:
        return None
    site, text = part
    fault = f": {text}"
    if not shared:
        fault = (
            " computes something else after other builds in the process, or with another hash seed of Python "
            f"({text}), so a run would depend on more than its config and seed: create in `__init__` what "
            "changes, draw random numbers from torch, numpy or random, and use neither `hash` nor the order of "
            "a set"
        )
    if not site:
        raise ActlabError(f"the network{fault}. Nothing is trained")
    return f"activation {label(run.unit)}{fault}"


def _difference(first: Seen, second: Seen) -> Part | None:
    """Return the first part whose digests differ, or that one build lacks."""
    return next((part for part in {**first, **second} if first.get(part) != second.get(part)), None)


def _forgotten(task: pl.LightningModule, resumed: pl.LightningModule, batch: Batch) -> str:
    """Return a line if a build with the state dict of another one computes other values, else nothing."""
    resumed.load_state_dict(copy.deepcopy(task.state_dict()))
    part = _difference(_calls(task, batch), _calls(resumed, batch))
    if part is None:
        return ""
    holder = resumed.get_submodule(part[0] or "network")
    where = f" ({part[0]})" if part[0] else ""
    return (
        f"{type(holder).__name__}{where} changes in a training step what no checkpoint keeps: a resumed run "
        "computes other values. Register it as a buffer (register_buffer) or return it from get_extra_state.\n"
    )


def _sites(task: pl.LightningModule) -> dict[str, nn.Module]:
    return {f"network.{path}": unit for path, unit in task.sites.items()} if isinstance(task, Task) else {}


def _state(task: pl.LightningModule) -> Seen:
    """Return digests of all parameters and buffers that have been created."""
    sites, digests = _sites(task), {}
    for name, tensor in itertools.chain(task.named_parameters(), task.named_buffers()):
        if not isinstance(tensor, nn.UninitializedParameter):
            site = next((site for site in sites if name.startswith(f"{site}.")), "")
            digests[site, name.removeprefix(f"{site}.")] = _digest(tensor)
    return digests


def _calls(task: pl.LightningModule, batch: Batch | None) -> Seen:
    """Return digests of inputs and outputs of each activation, and of the loss, in both modes."""
    seen: Seen = {}
    if batch is None or not isinstance(task, Task):
        return seen

    def note(site: str, unit: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        mode = "training" if unit.training else "evaluation"
        seen["", f"the input of {site} in {mode}"] = _digest(inputs[0])
        seen[site, f"its output in {mode}"] = _digest(output)

    for site, unit in _sites(task).items():
        unit.register_forward_hook(lambda *called, site=site: note(site, *called))
    try:
        for mode in ("training", "evaluation"):
            with own_generators(0), calling():
                loss = task.train(mode == "training").loss(batch)
            seen["", f"the loss in {mode}"] = _digest(loss)
    except Exception as error:  # third-party code may raise anything
        seen["", "an error"] = described(error)
    return seen


def _digest(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _shared(first: pl.LightningModule, second: pl.LightningModule) -> Part | None:
    """Return the first trainable parameter that is one object in both tasks."""
    for (site, unit), later in zip(_sites(first).items(), _sites(second).values(), strict=True):
        if fault := shared_parameter(unit, later):
            return site, fault
    known = {id(parameter) for parameter in first.parameters() if parameter.requires_grad}
    name = next((name for name, parameter in second.named_parameters() if id(parameter) in known), None)
    why = "as a default argument or an attribute of a class or file is: create it in `__init__`"
    return ("", f"{name} is one parameter of all networks in the process, {why}") if name else None
