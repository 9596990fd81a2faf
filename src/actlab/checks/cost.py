"""Measure the cost of activations: time per update and memory for the backward pass.

An activation is timed without the hooks by which actlab seeds the global generators for it
(`SeedGlobal`); what these hooks add in training is timed beside it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from actlab import experiments
from actlab.config.class_paths import class_of
from actlab.config.labels import label
from actlab.config.signatures import locate
from actlab.config.values import canonical
from actlab.errors.messages import described
from actlab.experiments import Experiment
from actlab.random.seeding import own_generators
from actlab.random.seeding_hooks import seeded
from actlab.runtime import matmul, signals
from actlab.runtime.accidents import check_device, is_accident
from actlab.runtime.devices import name_of, threads, wait_for
from actlab.runtime.modules import evaluating
from actlab.stacking.building import build_tasks
from actlab.stacking.task import matmul_of
from actlab.studies.plan import Run
from actlab.studies.points import Point
from actlab.tasks import Batch, Task
from actlab.tasks.batches import as_batch
from actlab.tasks.randomness import is_random

ROUNDS = 25
UPDATES = 4  # of a grid point in a round
PARTS = 5  # parts of the rounds: the spread of their minima shows how reliable the timing is
PATIENCE = 60.0  # seconds after which no further round starts: large networks get fewer rounds


def measure(
    runs: Iterable[Run],
    key: str,
    tuned: Sequence[str] = (),
    rounds: int | None = None,
    processor: bool = False,
) -> list[dict[str, Any]]:
    """Measure time and memory per update at each grid point of ``runs``, in interleaved rounds.

    The first run of each grid point is measured; points that differ in ``tuned`` keys are one. The
    fastest update counts: other programs only add time. Messages name a point by its value of the
    grid key ``key``. With ``processor``, seconds on the CPU are the processor time of all threads,
    as an estimate for an idle machine requires. On an accelerator they are always wall time.

    Returns:
        A `studies.formats.Timed` of each grid point, or an `Untimed`: its activation fails, or its
        model is no `actlab.tasks.Task`, so that its update requires its Trainer. One that an
        accident ended has no entry, and a line is printed.
    """
    first: dict[Point, Run] = {}
    for run in runs:
        first.setdefault(run.point.without(tuned), run)
    if not first:
        return []
    models = {point: locate(str(class_of(run.config["model"]))) for point, run in first.items()}
    tasks = [point for point, model in models.items() if issubclass(model, Task)]
    built = _built({point: first[point].config for point in tasks})
    if not built:
        names = ", ".join(sorted({model.__name__ for model in models.values()}))
        how = f"only a Trainer can run an update of {names}, which is no actlab.tasks.Task"
        print(f"costs are not measured: {how}", flush=True)
    with threads(1), own_generators(0):
        trials, accidents = _timed(built, rounds or ROUNDS, processor)
    for point, how in accidents.items():
        run = first.pop(point)
        print(f"the cost of {label(run.point.get(key, run.id))} is not measured: {how}", flush=True)
    machine, now = state_of_machine(trials.values()), datetime.now(UTC).isoformat()
    entries = (_entry(run, key, trials.get(point), machine) for point, run in first.items())
    return [{**entry, "measured": now} for entry in entries]


def _built(configs: Mapping[Point, Mapping[str, Any]]) -> dict[Point, Experiment]:
    """Build each config; those that differ only in arguments of the model share Trainer and data."""
    built: dict[Point, Experiment] = {}
    first: dict[str, Experiment] = {}
    for point, config in configs.items():
        settings = canonical({**config, "model": class_of(config["model"])})
        if settings in first:
            (task,) = build_tasks([config], first[settings])
            built[point] = first[settings]._replace(task=task)
        else:
            built[point] = first[settings] = experiments.build(config)
    return built


def _entry(
    run: Run, key: str, trial: TimedTask | None, machine: Mapping[str, Any]
) -> dict[str, Any]:
    of = {"compared": label(run.point.get(key, "")), "point": dict(run.point), "run": run.id}
    if trial is None:
        return {**of, "failed": True}
    return {
        **of,
        "seconds_per_update": trial.best,
        "bytes_kept": trial.bytes_kept,
        "hardware": name_of(trial.device),
        "rounds": len(trial.seconds),
        "seconds_in_parts": in_parts(trial.seconds),
        "machine": machine,
        **trial.added(),
    }


def state_of_machine(trials: Iterable[TimedTask]) -> dict[str, float]:
    """Return how busy the machine was: its ``load`` average over the last minute, and its number of ``cores``.

    For timings on the CPU also ``cpu_per_second``, the processor time of all threads per second of
    wall time, below 1 if other programs occupied the cores.
    """
    timed = [trial for trial in trials if trial.device.type == "cpu"]
    wall = sum(trial.wall for trial in timed)
    got = {"cpu_per_second": sum(trial.cpu for trial in timed) / wall} if wall else {}
    return {"load": os.getloadavg()[0], "cores": os.cpu_count() or 1, **got}


def _timed(
    built: Mapping[Point, Experiment], rounds: int, processor: bool
) -> tuple[dict[Point, TimedTask], dict[Point, str]]:
    """Return a timed trial of each experiment that does not fail, and which accidents ended others."""
    trials: dict[Point, TimedTask] = {}
    failed, accidents = set[Point](), dict[Point, str]()
    start = time.monotonic()
    for number in range(rounds):
        if number > 1 and time.monotonic() - start > PATIENCE:
            break
        for point in [point for point in built if point not in failed]:
            signals.check()
            matmul.use(matmul_of(built[point].task))
            try:
                if number == 0:
                    trials[point] = TimedTask(built[point], processor)
                trials[point].time()
            except (
                Exception
            ) as error:  # third-party code may raise anything; training reports its errors
                check_device(error)
                failed.add(point)
                accidents |= {point: described(error, 100)} if is_accident(error) else {}
    return {point: trial for point, trial in trials.items() if point not in failed}, accidents


class TimedTask:
    """A network and one batch, on the device and in the precision of its Trainer, whose updates are timed.

    The network has no `SeedGlobal` hooks while it is timed, except for the updates of
    `seconds_seeded`. Durations are wall time; with ``processor`` they are processor time on the
    CPU.
    """

    def __init__(self, experiment: Experiment, processor: bool = False) -> None:
        trainer, task = experiment.trainer, experiment.task
        assert isinstance(task, Task)
        self.device, self.plugin = trainer.strategy.root_device, trainer.precision_plugin
        self.processor = processor and self.device.type == "cpu"
        self.task = self.plugin.convert_module(task).to(self.device).train()
        self.optimizer = task.optimizer(task.parameters())
        placed = tuple(tensor.to(self.device) for tensor in first_batch(experiment))
        self.batch = self.plugin.convert_input(placed)
        self.seconds: list[float] = []
        self.seconds_seeded: list[float] = []
        self.seeded = seeded(task)
        shared = task.measures_all  # otherwise each task has the pass
        others = is_random(task.network, [part for part, _ in self.seeded])
        self._causes_clean_pass = task.clean_training_loss and shared and not others
        for _, hooks in self.seeded:
            hooks.detach()
        self.wall = self.cpu = 0.0
        with self.plugin.forward_context():
            self.bytes_kept = kept_for_backward(lambda: task.loss(self.batch), task.parameters())
        for step in range(2):
            self.update(step)

    @property
    def best(self) -> float:
        """Duration of the fastest update in seconds."""
        return min(self.seconds)

    def added(self) -> dict[str, Any]:
        """Return what seeding global generators, with a clean pass that only it requires, adds to an update."""
        if not self.seeded:
            return {}
        both = zip(in_parts(self.seconds_seeded), in_parts(self.seconds), strict=True)
        return {
            "seconds_added": min(self.seconds_seeded) - self.best,
            "seconds_added_in_parts": [seeded - plain for seeded, plain in both],
        }

    def time(self) -> None:
        """Time consecutive updates, and as many with what is seeded: record the fastest of each."""
        self.seconds.append(self._fastest())
        if self.seeded:
            for part, hooks in self.seeded:
                hooks.attach(part)
            self.seconds_seeded.append(self._fastest(self._causes_clean_pass))
            for _, hooks in self.seeded:
                hooks.detach()

    def _fastest(self, clean: bool = False) -> float:
        """Return the fastest of consecutive updates; add up the wall time and processor time of all."""
        wait_for(self.device)
        got = time.process_time()
        taken = [self.update(step, clean) for step in range(UPDATES)]
        self.cpu += time.process_time() - got
        self.wall += sum(taken)
        return min(taken)

    def update(self, step: int, clean: bool = False) -> float:
        """Run one update, with ``clean`` also the loss in evaluation mode; return its duration in seconds."""
        assert isinstance(self.task, Task)
        clock = time.process_time if self.processor else time.perf_counter
        start = clock()
        self.task.stream.move(0, step)
        self.optimizer.zero_grad()
        if clean:
            with evaluating(self.task), self.plugin.forward_context():
                self.task.loss(self.batch)
        with self.plugin.forward_context():
            loss = self.task.loss(self.batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        wait_for(self.device)
        return clock() - start


def in_parts(seconds: Sequence[float]) -> list[float]:
    """Return the shortest duration in each fifth of the rounds, or in each of fewer than five rounds."""
    number = min(PARTS, len(seconds))
    ends = [part * len(seconds) // number for part in range(number + 1)]
    return [min(seconds[start:end]) for start, end in pairwise(ends)]


def first_batch(experiment: Experiment) -> Batch:
    """Return the first training batch."""
    batch: Batch = as_batch(next(iter(experiment.training_loader())))
    return batch


def kept_for_backward(forward: Callable[[], Tensor], parameters: Iterable[Tensor] = ()) -> int:
    """Return the bytes of all tensors, except parameters, that a forward pass keeps for its backward pass."""
    kept: dict[int, int] = {}
    known = {p.untyped_storage().data_ptr() for p in parameters}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = forward()
    del output
    return sum(kept.values())
