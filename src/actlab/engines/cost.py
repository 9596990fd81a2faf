"""What a unit costs: time per update and memory kept for the backward pass, measured beside a reference."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import LightningDataModule
from torch import Tensor

from actlab import experiments
from actlab.config.keys import canonical, label, same, without
from actlab.engines.devices import SMALL, name_of, threads, threads_for, wait_for
from actlab.experiments import Experiment
from actlab.runtime import signals
from actlab.storage.files import write_sealed
from actlab.studies.folders import COSTS
from actlab.studies.plan import Run
from actlab.tasks import Batch, Task

ROUNDS = 25
PARTS = 5  # of the rounds, whose own minima show how far the timing can be trusted
PATIENCE = 60.0  # seconds after which no further round begins: large networks take few


def measure(
    runs: Iterable[Run],
    key: str,
    reference: Any,
    tuned: Sequence[str] = (),
    updates: int = 4,
    rounds: int = ROUNDS,
) -> list[dict[str, Any]]:
    """Time and memory per update at each grid point among ``runs``, in interleaved rounds.

    On the device and in the precision that the runs' configs say.

    Args:
        runs: of one study; the first run of each grid point stands for it.
        key: the grid key that is compared, such as ``model.activation``.
        reference: the value that the others at the same point are divided by; where that point lacks it, that
            of another, and without any the first run.
        tuned: grid keys in which the runs of one point differ.
        updates: per round, each timed by itself.
        rounds: in turns; the fastest update counts: what else the computer does only adds time, and leaves a
            short while alone more often than a long one.

    Returns:
        One mapping a grid point: ``compared``, the label of the compared value; ``point`` and ``run`` of what
        was measured; ``seconds_per_update`` (forward, backward, optimiser on one batch), ``bytes_kept`` for the
        backward pass, and both relative to the reference; ``seconds_in_parts``, the fastest update in each
        fifth of the ``rounds``; and ``machine``, how busy it was (`state_of_machine`). What cannot be timed
        has ``failed`` instead: a unit that fails, or a model that is no task of this package, whose update
        cannot be taken apart from its Trainer.
    """
    first: dict[str, Run] = {}  # by value: two units may print alike
    for run in runs:
        first.setdefault(canonical(without(run.point, tuned)), run)
    if not first:
        return []
    built = {name: experiments.build(run.config) for name, run in first.items()}
    samples = getattr(next(iter(built.values())).data, "batch_size", SMALL)
    with threads(threads_for(samples)):
        trials = _timed(built, updates, rounds)
    machine = state_of_machine(trials.values())
    beside = (*tuned, key)
    bases = {
        canonical(without(first[name].point, beside)): trial
        for name, trial in trials.items()
        if same(first[name].point.get(key), reference)
    }
    other = next(iter((*bases.values(), *trials.values())), None)
    return [
        _entry(run, key, trials.get(name), bases.get(canonical(without(run.point, beside)), other), machine)
        for name, run in first.items()
    ]


def _entry(
    run: Run, key: str, trial: Trial | None, base: Trial | None, machine: Mapping[str, Any]
) -> dict[str, Any]:
    """What ``cost.json`` says of one compared value."""
    of = {"compared": label(run.point.get(key, "")), "point": run.point, "run": run.id}
    if trial is None or base is None:
        return {**of, "failed": True}
    return {
        **of,
        "seconds_per_update": trial.best,
        "relative_to_reference": trial.best / base.best,
        "bytes_kept": trial.bytes_kept,
        "bytes_relative": trial.bytes_kept / base.bytes_kept,
        "hardware": name_of(trial.device),
        "rounds": len(trial.seconds),
        "seconds_in_parts": trial.parts,
        "machine": machine,
    }


def state_of_machine(trials: Iterable[Trial]) -> dict[str, float]:
    """How busy the machine was while some were timed.

    Returns:
        ``load``, the average number of processes that wanted a core in the last minute; ``cores``; and for
        timings on the CPU ``cpu_per_second``, the processor time that they got in a second, over all threads:
        less than 1 where other programs had the cores.
    """
    timed = [trial for trial in trials if trial.device.type == "cpu"]
    wall = sum(trial.wall for trial in timed)
    got = {"cpu_per_second": sum(trial.cpu for trial in timed) / wall} if wall else {}
    return {"load": os.getloadavg()[0], "cores": os.cpu_count() or 1, **got}


def _timed(built: Mapping[str, Experiment], updates: int, rounds: int) -> dict[str, Trial]:
    """A timed trial of each; one that fails, as another author's unit may at any moment, is left out."""
    trials: dict[str, Trial] = {}
    failed = {name for name, experiment in built.items() if not isinstance(experiment.task, Task)}
    start = time.monotonic()
    for number in range(rounds):
        if number > 1 and time.monotonic() - start > PATIENCE:
            break
        for name in [name for name in built if name not in failed]:
            signals.check()
            try:
                if number == 0:
                    trials[name] = Trial(built[name])
                trials[name].time(updates)
            except Exception:  # the run itself has said what is wrong, or never came so far
                failed.add(name)
    return {name: trial for name, trial in trials.items() if name not in failed}


class Trial:
    """One network with a batch, to be timed where and as its Trainer would train it."""

    def __init__(self, experiment: Experiment) -> None:
        trainer, task, data = experiment
        assert isinstance(task, Task)
        self.device, self.plugin = trainer.strategy.root_device, trainer.precision_plugin
        self.task = self.plugin.convert_module(task).to(self.device).train()
        self.optimizer = task.optimizer(task.parameters())
        self.batch = self.plugin.convert_input(tuple(tensor.to(self.device) for tensor in first_batch(data)))
        self.seconds: list[float] = []
        self.wall = self.cpu = 0.0
        with self.plugin.forward_context():
            self.bytes_kept = kept_for_backward(task, self.batch)
        for step in range(2):
            self.update(step)

    @property
    def best(self) -> float:
        """Seconds of the fastest update."""
        return min(self.seconds)

    @property
    def parts(self) -> list[float]:
        """The same in each fifth of the rounds, as far as there are so many."""
        number = min(PARTS, len(self.seconds))
        ends = [part * len(self.seconds) // number for part in range(number + 1)]
        return [min(self.seconds[start:end]) for start, end in pairwise(ends)]

    def time(self, updates: int) -> None:
        """Note the fastest of some updates in a row, and what processor time all of them got."""
        wait_for(self.device)
        got = time.process_time()
        taken = [self.update(step) for step in range(updates)]
        self.cpu += time.process_time() - got
        self.wall += sum(taken)
        self.seconds.append(min(taken))

    def update(self, step: int) -> float:
        """Seconds of one update."""
        assert isinstance(self.task, Task)
        start = time.perf_counter()
        self.task.stream.move(0, step)
        self.optimizer.zero_grad()
        with self.plugin.forward_context():
            loss = self.task.loss(self.batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        wait_for(self.device)
        return time.perf_counter() - start


def first_batch(data: LightningDataModule) -> Batch:
    """The first training batch."""
    data.prepare_data()
    data.setup("fit")
    batch: Batch = next(iter(data.train_dataloader()))
    return batch


def kept_for_backward(task: Task, batch: Batch) -> int:
    """Bytes of all tensors that one forward pass keeps for its backward pass; parameters do not count."""
    kept: dict[int, int] = {}
    parameters = {p.untyped_storage().data_ptr() for p in task.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = task.loss(batch)
    del output
    return sum(kept.values())


def write(costs: Sequence[dict[str, Any]], root: Path, kept: Iterable[Mapping[str, Any]] = ()) -> None:
    """Leave the measurement in the study's folder, after those that are kept, such as an earlier stage's."""
    measured = {cost["run"] for cost in costs}
    write_sealed(root / COSTS, [*(cost for cost in kept if cost["run"] not in measured), *costs])
