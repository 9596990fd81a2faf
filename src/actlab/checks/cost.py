"""Measure the cost of activations: time per update and memory for the backward pass.

An activation is timed without the hooks by which actlab seeds the global generators for it
(`SeedGlobal`); the time that these hooks add in training is measured in addition.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
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
PARTS = 5  # of the rounds: the spread of their minima shows how reliable the timing is
PATIENCE = 60.0  # seconds after which no round starts: large networks get fewer rounds


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
        model is not an `actlab.tasks.Task`, so that its update requires its Trainer. A grid point
        that an accident ended has no entry, and a line is printed.
    """
    # Select the first run of each grid point.
    run_by_point: dict[Point, Run] = {}
    for run in runs:
        run_by_point.setdefault(run.point.without(tuned), run)
    if not run_by_point:
        return []

    # Build the runs whose update needs no Trainer.
    configs = {}
    other_models = set()
    for point, run in run_by_point.items():
        model = locate(str(class_of(run.config["model"])))
        if issubclass(model, Task):
            configs[point] = run.config
        else:
            other_models.add(model.__name__)
    built = _built(configs)
    if not built:
        # Their updates may be anything that a LightningModule does
        names = ", ".join(sorted(other_models))
        reason = f"only a Trainer can run an update of {names}, which is not an actlab.tasks.Task"
        print(f"costs are not measured: {reason}", flush=True)

    # Time them.
    with threads(1), own_generators(0):
        trials, accidents = _timed(built, rounds or ROUNDS, processor)
    for point, accident in accidents.items():
        run = run_by_point.pop(point)
        name = label(run.point.get(key, run.id))
        print(f"the cost of {name} is not measured: {accident}", flush=True)

    # Write the entries.
    machine = state_of_machine(trials.values())
    now = datetime.now(UTC).isoformat()
    entries = []
    for point, run in run_by_point.items():
        entry = _entry(run, key, trials.get(point), machine)
        entries.append({**entry, "measured": now})
    return entries


def _built(configs: Mapping[Point, Mapping[str, Any]]) -> dict[Point, Experiment]:
    """Build each config; configs that differ only in a model's arguments share Trainer and data."""
    experiment_by_point: dict[Point, Experiment] = {}
    experiment_by_settings: dict[str, Experiment] = {}
    for point, config in configs.items():
        # Tasks of one class are built with the Trainer and data of the first one.
        settings = canonical({**config, "model": class_of(config["model"])})
        if settings in experiment_by_settings:
            shared = experiment_by_settings[settings]
            (task,) = build_tasks([config], shared)
            experiment = shared._replace(task=task)
        else:
            experiment = experiments.build(config)
            experiment_by_settings[settings] = experiment
        experiment_by_point[point] = experiment
    return experiment_by_point


def _entry(
    run: Run, key: str, trial: TimedTask | None, machine: Mapping[str, Any]
) -> dict[str, Any]:
    # Values that a failed trial has too
    entry = {
        "compared": label(run.point.get(key, "")),
        "point": dict(run.point),
        "run": run.id,
    }
    if trial is None:
        return {**entry, "failed": True}

    # Time in seconds per update, memory in bytes
    return {
        **entry,
        "seconds_per_update": trial.best,
        "bytes_kept": trial.bytes_kept,
        "hardware": name_of(trial.device),
        "rounds": len(trial.seconds),
        "seconds_in_parts": in_parts(trial.seconds),
        "machine": machine,
        **trial.added(),
    }


def state_of_machine(trials: Iterable[TimedTask]) -> dict[str, float]:
    """Return how busy the machine was.

    Returns:
        The ``load`` average over the last minute, and the number of ``cores``. For timings on the
        CPU also ``cpu_per_second``, the processor time of all threads per second of wall time,
        below 1 if other programs occupied the cores.
    """
    # A reader sees whether times can be trusted
    state = {"load": os.getloadavg()[0], "cores": os.cpu_count() or 1}

    # Add up the timings on the CPU.
    wall = 0.0
    cpu = 0.0
    for trial in trials:
        if trial.device.type == "cpu":
            wall += trial.wall
            cpu += trial.cpu
    if wall:
        state["cpu_per_second"] = cpu / wall
    return state


def _timed(
    built: Mapping[Point, Experiment], rounds: int, processor: bool
) -> tuple[dict[Point, TimedTask], dict[Point, str]]:
    """Return a timed trial of each experiment that does not fail, and the accidents by point."""
    trials: dict[Point, TimedTask] = {}
    failed: set[Point] = set()
    accidents: dict[Point, str] = {}
    # Each round times each point, so that a disturbance meets all points.
    start = time.monotonic()
    for number in range(rounds):
        # At least two rounds, however slow
        if number > 1 and time.monotonic() - start > PATIENCE:
            break
        for point, experiment in built.items():
            if point in failed:
                continue
            signals.check()
            matmul.use(matmul_of(experiment.task))
            try:
                if number == 0:
                    trials[point] = TimedTask(experiment, processor)
                trials[point].time()
            except Exception as error:  # of third-party code; training reports it
                check_device(error)
                failed.add(point)
                # An accident, such as too little memory, is not the activation's fault
                if is_accident(error):
                    accidents[point] = described(error, 100)

    # A run may fail after its first rounds succeeded
    for point in failed:
        trials.pop(point, None)
    return trials, accidents


class TimedTask:
    """Times updates of a network on one batch, on the device and in the precision of its Trainer.

    The network has no `SeedGlobal` hooks while it is timed, except for the updates of
    `seconds_seeded`. Durations are wall time; with ``processor`` they are processor time on the
    CPU.
    """

    def __init__(self, experiment: Experiment, processor: bool = False) -> None:
        trainer = experiment.trainer
        task = experiment.task
        assert isinstance(task, Task)

        # Place the task and a batch.
        self.device = trainer.strategy.root_device
        self.plugin = trainer.precision_plugin
        self.processor = processor and self.device.type == "cpu"
        self.task = self.plugin.convert_module(task).to(self.device).train()
        self.optimizer = task.optimizer(task.parameters())
        batch = tuple(tensor.to(self.device) for tensor in first_batch(experiment))
        self.batch = self.plugin.convert_input(batch)

        # Detach the hooks. A clean pass is part of their cost if only they require it:
        # a task that cannot measure all runs at once, or draws random numbers
        # elsewhere, always has the pass.
        self.seeded = seeded(task)
        seeded_parts = [part for part, _ in self.seeded]
        draws_otherwise = is_random(task.network, seeded_parts)
        self._causes_clean_pass = (
            task.clean_training_loss and task.measures_all and not draws_otherwise
        )
        # Timed separately, see `added`
        for _, hooks in self.seeded:
            hooks.detach()

        # Measure the memory, and warm up.
        self.seconds: list[float] = []
        self.seconds_seeded: list[float] = []
        self.wall = 0.0
        self.cpu = 0.0
        with self.plugin.forward_context():
            self.bytes_kept = kept_for_backward(
                lambda: task.loss(self.batch), task.parameters()
            )
        for step in range(2):
            self.update(step)

    @property
    def best(self) -> float:
        """Duration of the fastest update in seconds."""
        return min(self.seconds)

    def added(self) -> dict[str, Any]:
        """Return the seconds that seeding global generators adds to an update.

        A clean pass that only the seeding requires is part of them.
        """
        if not self.seeded:
            return {}
        seconds = in_parts(self.seconds)
        seconds_seeded = in_parts(self.seconds_seeded)
        # Parts are compared in turn, so that a slow phase of the machine cancels
        differences = [a - b for a, b in zip(seconds_seeded, seconds, strict=True)]
        return {
            "seconds_added": min(self.seconds_seeded) - self.best,
            "seconds_added_in_parts": differences,
        }

    def time(self) -> None:
        """Time consecutive updates, then as many with the hooks; record the fastest of each."""
        self.seconds.append(self._fastest())
        if not self.seeded:
            return

        for part, hooks in self.seeded:
            hooks.attach(part)
        self.seconds_seeded.append(self._fastest(self._causes_clean_pass))
        for _, hooks in self.seeded:
            hooks.detach()

    def _fastest(self, clean: bool = False) -> float:
        """Return the fastest of consecutive updates; add their wall time and processor time."""
        wait_for(self.device)
        start = time.process_time()
        seconds = [self.update(step, clean) for step in range(UPDATES)]
        self.cpu += time.process_time() - start
        self.wall += sum(seconds)
        return min(seconds)

    def update(self, step: int, clean: bool = False) -> float:
        """Run one update; return its duration in seconds.

        With ``clean``, the update also computes the loss in evaluation mode.
        """
        assert isinstance(self.task, Task)
        clock = time.process_time if self.processor else time.perf_counter

        # The next step of the stream has other random numbers.
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
    """Return the shortest duration in each fifth of the rounds.

    Fewer than five rounds have a part each.
    """
    number = min(PARTS, len(seconds))
    shortest = []
    for part in range(number):
        start = part * len(seconds) // number
        end = (part + 1) * len(seconds) // number
        shortest.append(min(seconds[start:end]))
    return shortest


def first_batch(experiment: Experiment) -> Batch:
    """Return the first training batch."""
    batch: Batch = as_batch(next(iter(experiment.training_loader())))
    return batch


def kept_for_backward(
    forward: Callable[[], Tensor], parameters: Iterable[Tensor] = ()
) -> int:
    """Return the bytes of all tensors that a forward pass stores for its backward pass.

    Parameters do not count.
    """
    storages_of_parameters = {p.untyped_storage().data_ptr() for p in parameters}
    bytes_by_storage: dict[int, int] = {}

    # Autograd passes each tensor that it stores to the hook.
    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in storages_of_parameters:
            bytes_by_storage[address] = storage.nbytes()
        return tensor

    # Tensors are stored unchanged, and each storage counts once
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = forward()
    del output
    return sum(bytes_by_storage.values())
