"""Networks that call `torch.nn.Module.compile` themselves: compiled alone, plain in a stack.

The backend traces as inductor does, but needs no C++ compiler.
"""

from functools import partial
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch._dynamo.backends.debugging import aot_eager

from actlab.networks import Dropout
from actlab.stacking import StackedTask
from toys import QUIET, D, Frames, FrameTask, fitted
from updates_in_blocks import check_equal

# torch's tracer reads the gradients of what it traces.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")


class Compiled(nn.Module):
    """A network with a ``forward`` of its own: torch leaves one of torch's classes uncompiled."""

    graphs: list[Any] = []  # noqa: RUF012

    def __init__(
        self, act: Any, outputs: int, shape: Any, compiled: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        mask = Dropout(dropout) if dropout else nn.Identity()
        self.layers = nn.Sequential(nn.Linear(D, 8), act(), mask, nn.Linear(8, outputs))
        if compiled:
            self.compile(backend=self.compiling)

    def compiling(self, graph: Any, inputs: Any) -> Any:
        self.graphs.append(graph)
        return aot_eager(graph, inputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layers(x)
        return output


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    torch.compiler.reset()
    monkeypatch.setattr(Compiled, "graphs", [])


@pytest.mark.parametrize("dropout", [pytest.param(0.0, marks=pytest.mark.slow), 0.4])
def test_a_network_that_compiles_itself_leaves_what_it_leaves_otherwise(dropout, tmp_path):
    plain, compiled = (
        FrameTask(network=partial(Compiled, compiled=compiled, dropout=dropout))
        for compiled in (False, True)
    )
    for task in (plain, compiled):
        fitted(task, Frames(), tmp_path)
    assert Compiled.graphs
    check_equal(plain.state_dict(), compiled.state_dict())


def test_a_stack_computes_it_without_the_compiler(tmp_path):
    data = Frames()
    data.seed = [0, 1]
    stack = StackedTask([FrameTask(network=Compiled, seed=seed) for seed in data.seed])
    trainer = pl.Trainer(**QUIET, max_epochs=1, precision="64-true", default_root_dir=tmp_path)
    trainer.fit(stack, datamodule=data)
    assert not Compiled.graphs
    assert stack.latest["train/loss"].isfinite().all()
