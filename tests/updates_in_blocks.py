"""Fits in blocks of updates or by single updates, and their results; updates replayed on a CPU."""

import copy
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, Checkpoint

from actlab.random.positions import BatchBlock
from actlab.runtime.quiet import quiet
from actlab.stacking.building import assemble
from actlab.studies import reading
from actlab.tasks import replay

CLASSIFIER = "gelu_mnist_classifier"
BRIEF = {"data.batch_size": 50, "trainer.limit_train_batches": 7, "trainer.max_epochs": 2}
DROPOUT = {"model.network.dropout": 0.3}


class Sizes(Checkpoint):
    """How many updates each batch of the Trainer makes, and the training steps of their losses."""

    blocks = True

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, _: int
    ) -> None:
        self.seen.append(len(batch) if isinstance(batch, BatchBlock) else 1)


class OneByOne(Callback):
    """Lives with one update a batch alone."""

    blocks = 1


def runs_of(study: str, settings: dict[str, Any]) -> list[Any]:
    plan = reading.load(study, smoke=True, settings={**BRIEF, **settings, "seeds": 2}, staged=False)
    return plan.runs()[:2]


def left(
    configs: list[Any], folder: Path, single: bool, stacked: bool, **options: Any
) -> dict[str, Any]:
    """What a fit leaves, and the sizes of its blocks."""
    sizes, path = Sizes(), folder / "last.ckpt"
    with quiet():
        some = copy.deepcopy(configs if stacked else configs[:1])
        trainer, task, data = assemble(some, sizes, folder, stacked)
        trainer.callbacks += [OneByOne()] if single else []  # type: ignore[attr-defined]
        trainer.fit(task, datamodule=data, **options)
        trainer.save_checkpoint(path)
    kept = torch.load(path, weights_only=False)
    metrics = task.latest if stacked else trainer.callback_metrics
    return {
        "state": kept["state_dict"],
        "loops": kept["loops"],
        "optimizer": kept["optimizer_states"],
        "metrics": {name: value.tolist() for name, value in metrics.items()},
        "sizes": sizes.seen,
    }


def check_equal(one: Any, other: Any) -> None:
    """Nested values that are equal in every bit."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            check_equal(one[key], other[key])
    elif isinstance(one, list | tuple):
        for a, b in zip(one, other, strict=True):
            check_equal(a, b)
    else:
        assert one == other


def traced_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], set[str]]:
    """Replay updates on a CPU; return a list that counts replays, and their operators' names."""
    calls: list[int] = []
    operators: set[str] = set()

    def counted(gradients: Any, batch: Any) -> Any:
        program: Any = replay.traced(gradients, batch)
        targets = (node.target for node in program.graph.nodes if node.op == "call_function")
        operators.update(target.__name__.partition(".")[0] for target in targets)
        return lambda batch: calls.append(1) or program(batch)

    monkeypatch.setitem(replay.PROGRAMS, "cpu", counted)
    monkeypatch.setattr(replay, "CHECKS", 1)
    return calls, operators
