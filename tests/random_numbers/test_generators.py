"""The global generators: seeded for a block and restored; an accelerator's only when in use."""

import inspect
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from actlab.errors import ActlabError
from actlab.networks import MLP
from actlab.random.seeding import own_generators, seed_generators
from actlab.tasks import ClassificationTask


class Accelerator:
    """Stands for a module such as torch.cuda, with the generator of one device, nothing else."""

    def __init__(self) -> None:
        self.device = torch.Generator().manual_seed(99)
        self.get_rng_state, self.set_rng_state = self.device.get_state, self.device.set_state
        self.manual_seed = self.device.manual_seed

    def is_initialized(self) -> bool:
        return True

    def draw(self) -> float:
        return torch.rand((), generator=self.device).item()


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Accelerator:
    module = Accelerator()
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("meta")
    )
    monkeypatch.setattr(torch, "get_device_module", lambda *_: module)
    return module


@pytest.fixture
def unused_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that nothing has used: each function of torch.cuda fails, but the one that says so."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a function of torch.cuda was called")

    for name, _ in inspect.getmembers(torch.cuda, inspect.isfunction):
        if name != "is_initialized":
            monkeypatch.setattr(torch.cuda, name, fail)
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda")
    )


class Drawn(nn.Module):
    """A third-party activation that draws from the global generators."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rand_like(x) * float(np.random.rand())


def task(network: Any = None) -> ClassificationTask:
    network = network or partial(MLP, hidden=[5])
    return ClassificationTask(3, (4,), f"{__name__}:Drawn", network, torch.optim.Adam)


def test_a_block_seeds_the_accelerator_in_use_and_restores_it(accelerator):
    expected, before = torch.Generator().manual_seed(7), accelerator.get_rng_state()
    with own_generators(7):
        assert accelerator.draw() == torch.rand((), generator=expected).item()
    task().network.train()(torch.ones(2, 4))
    assert torch.equal(accelerator.get_rng_state(), before)


@pytest.mark.usefixtures("unused_cuda")
def test_an_accelerator_that_nothing_uses_is_left_alone():
    seed_generators(3)
    with own_generators(7):
        task().network.train()(torch.ones(2, 4))


@pytest.mark.usefixtures("accelerator")
def test_weights_are_drawn_on_the_cpu():
    """An accelerator may not be initialised before, and then it could not be seeded."""

    def network(act: Any, outputs: int, shape: Any) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], outputs, device="meta"), act())

    with pytest.raises(ActlabError, match=r"the network has weights on meta\. .* on the CPU"):
        task(network)
