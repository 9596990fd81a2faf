"""What a unit costs: time per update and memory kept for the backward pass, measured beside a reference."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import LightningDataModule
from torch import Tensor

from actlab import experiments
from actlab.engines.folders import hardware, write_atomically
from actlab.engines.sequential import batch_size, threads, threads_for
from actlab.studies.plan import ACTIVATION, Run, label
from actlab.tasks import Task

FILE = "cost.json"


def measure(runs: Iterable[Run], reference: str, updates: int = 4, rounds: int = 25) -> list[dict[str, Any]]:
    """Time and memory per update of each activation among ``runs``, in interleaved rounds.

    Args:
        runs: of one study; the first run of each activation stands for it.
        reference: label of the activation that the others are divided by; the first one if it is absent.
        updates: per round.
        rounds: the fastest counts: what else the computer does only adds time.

    Returns:
        One mapping an activation: ``seconds_per_update`` (forward, backward, optimiser on one batch),
        ``bytes_kept`` for the backward pass, and both relative to the reference.
    """
    first: dict[str, Run] = {}
    for run in runs:
        first.setdefault(label(run.point.get(ACTIVATION, "")), run)
    trials = {name: Trial(run) for name, run in first.items()}
    with threads(threads_for(batch_size(next(iter(first.values()))))):
        for _ in range(rounds):
            for trial in trials.values():
                trial.seconds.append(trial.time(updates) / updates)
    base = trials.get(reference) or next(iter(trials.values()))
    return [
        {
            "activation": name,
            "point": first[name].point,
            "seconds_per_update": trial.best,
            "relative_to_reference": trial.best / base.best,
            "bytes_kept": trial.bytes_kept,
            "bytes_relative": trial.bytes_kept / base.bytes_kept,
            "hardware": hardware(),
        }
        for name, trial in trials.items()
    ]


class Trial:
    """One activation's network with a batch, to be timed."""

    def __init__(self, run: Run) -> None:
        built = experiments.build(run.config)
        assert isinstance(built.task, Task)
        self.task = built.task.train()
        self.task.clean_training_loss = False
        self.optimizer = self.task.optimizer(self.task.parameters())
        self.batch = first_batch(built.data)
        self.seconds: list[float] = []
        self.bytes_kept = kept_for_backward(self.task, self.batch)
        self.time(2)

    @property
    def best(self) -> float:
        """Seconds per update in the fastest round."""
        return min(self.seconds)

    def time(self, updates: int) -> float:
        """Seconds for some updates."""
        start = time.perf_counter()
        for step in range(updates):
            self.task.stream.move(0, step)
            self.optimizer.zero_grad()
            self.task._step(self.batch)["loss"].mean().backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        return time.perf_counter() - start


def first_batch(data: LightningDataModule) -> tuple[Tensor, Tensor]:
    """The first training batch."""
    data.prepare_data()
    data.setup("fit")
    batch: tuple[Tensor, Tensor] = next(iter(data.train_dataloader()))
    return batch


def kept_for_backward(task: Task, batch: tuple[Tensor, Tensor]) -> int:
    """Bytes of all tensors that one forward pass keeps for its backward pass; parameters do not count."""
    kept: dict[int, int] = {}
    parameters = {p.untyped_storage().data_ptr() for p in task.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = task._step(batch)["loss"].mean()
    del output
    return sum(kept.values())


def write(costs: Sequence[dict[str, Any]], root: Path) -> None:
    """Leave the measurement in the study's folder."""
    write_atomically(root / FILE, json.dumps(costs, indent=1))
