"""Trial of state: does a run depend on its config and seed alone, and does a resumed run compute the same?

Two processes that train nothing build each network with two seeds, in opposite orders, and change all
parameters after each build. A parameter, statistic or generator that is kept outside instances makes a build
depend on those before it. In one of them a third build takes over the state dict of the first after a call.
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from actlab import experiments
from actlab.activations.replacement import shared_parameter
from actlab.engines.cases import Builds, Case, Part, first_difference
from actlab.engines.devices import threads
from actlab.errors import described
from actlab.random.seeding import own_generators
from actlab.runtime import signals
from actlab.runtime.third_party import calling
from actlab.studies.plan import SEED
from actlab.tasks import Task
from actlab.tasks.training import Batch

_WHY = ", as a default argument or an attribute of a class or file is: create it in `__init__`"


@threads(1)  # a few samples: more threads only wait for each other
def build(case: Case, backwards: bool) -> Builds:
    """Return what is seen of builds of a case with its seed and another one, or the other way round."""
    signals.check()
    seeds = [case.run.seed, case.run.seed + 1][:: -1 if backwards else 1]
    resumed = not backwards
    batch: Batch | None = pickle.loads(case.batch) if case.batch else None
    seen: dict[int, dict[Part, str]] = {}
    tasks: list[pl.LightningModule] = []
    for seed in seeds:
        task = experiments.build({**case.run.config, SEED: seed}).task
        seen[seed] = {**_state(task), **_calls(task, batch)}
        if resumed and not tasks:
            kept = {name: value.clone() for name, value in _tensors(task.state_dict())}
            expected = _calls(task, batch)
        tasks.append(task)
        _change(task)
    forgotten = None
    if resumed and batch is not None:
        again = experiments.build({**case.run.config, SEED: seeds[0]}).task
        again.load_state_dict({**again.state_dict(), **kept})
        if part := first_difference(expected, _calls(again, batch)):
            forgotten = part, type(again.get_submodule(part.site) if part.site else again.network).__name__
    return Builds(seen, _shared(*tasks), forgotten)


def _tensors(state: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    return ((name, value) for name, value in state.items() if isinstance(value, Tensor))


def _state(task: pl.LightningModule) -> dict[Part, str]:
    """Return digests of all parameters and buffers that have been created."""
    found = itertools.chain(task.named_parameters(), task.named_buffers())
    sites = _sites(task)
    digests = {}
    for name, tensor in found:
        if not isinstance(tensor, nn.UninitializedParameter):
            site = next((site for site in sites if name.startswith(f"{site}.")), "")
            digests[Part(site, name.removeprefix(f"{site}."))] = _digest(tensor)
    return digests


def _sites(task: pl.LightningModule) -> dict[str, nn.Module]:
    return {f"network.{path}": unit for path, unit in task.sites.items()} if isinstance(task, Task) else {}


def _calls(task: pl.LightningModule, batch: Batch | None) -> dict[Part, str]:
    """Return digests of inputs and outputs of each activation, and of the loss, in both modes."""
    found: dict[Part, str] = {}
    if batch is None or not isinstance(task, Task):
        return found

    def note(site: str, unit: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        mode = "training" if unit.training else "evaluation"
        found[Part("", f"the input of {site} in {mode}")] = _digest(inputs[0])
        found[Part(site, f"its output in {mode}")] = _digest(output)

    handles = [
        unit.register_forward_hook(lambda *called, site=site: note(site, *called))
        for site, unit in _sites(task).items()
    ]
    try:
        for mode in ("training", "evaluation"):
            with own_generators(0), calling():
                loss = task.train(mode == "training").loss(batch)
            found[Part("", f"the loss in {mode}")] = _digest(loss)
    except Exception as error:  # third-party code may raise anything
        found[Part("", "an error")] = described(error)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _digest(value: Any) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _change(task: pl.LightningModule) -> None:
    """Change each trainable parameter, as training would."""
    with torch.no_grad():
        for parameter in task.parameters():
            if parameter.requires_grad and not isinstance(parameter, nn.UninitializedParameter):
                parameter.add_(1)


def _shared(one: pl.LightningModule, other: pl.LightningModule) -> Part | None:
    """Return the first trainable parameter that is one object in both tasks."""
    for (site, unit), theirs in zip(_sites(one).items(), _sites(other).values(), strict=True):
        if fault := shared_parameter(unit, theirs):
            return Part(site, fault)
    known = {id(parameter) for parameter in one.parameters() if parameter.requires_grad}
    shared = (name for name, parameter in other.named_parameters() if id(parameter) in known)
    return next(
        (Part("", f"{name} is one parameter of all networks in the process{_WHY}") for name in shared), None
    )
