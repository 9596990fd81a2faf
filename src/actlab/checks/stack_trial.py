"""Trials before runs are stacked, by a few updates.

Users need not know or declare what third-party code does. A stack of one must compute what the
plain module computes (`difference`). Runs together must equal each alone in every bit
(`dependence`).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from torch import Tensor

from actlab.config.labels import label
from actlab.config.paths import set_dotted
from actlab.errors.messages import described
from actlab.experiments import Experiment
from actlab.random.seeding import seed_generators
from actlab.runtime.accidents import check_device
from actlab.runtime.devices import threads
from actlab.runtime.quiet import quiet
from actlab.stacking import StackedTask
from actlab.stacking.building import assemble, build_tasks, stack_of
from actlab.stacking.mapping import MappingError
from actlab.stacking.network import task_state
from actlab.studies.plan import SEED, Run
from actlab.tasks.training import Training

SAMPLES = 8  # of a batch in float64
CLOSE = 1e-6  # relative, in float64
DOUBLE = {"precision": "64-true"}
PATIENCE = 60.0  # seconds that the updates of one fit may take
_SHORT = {  # two epochs of two updates
    "max_epochs": 2,
    "max_steps": -1,
    "max_time": None,
    "num_sanity_val_steps": 0,
    "logger": False,
    "limit_train_batches": 2,
    "limit_val_batches": 1,
    "limit_test_batches": 1,
    "check_val_every_n_epoch": 1,
    "val_check_interval": 1.0,
}


class TrialError(Exception):
    """A trial that failed and so has no verdict; the message says how."""


# Lightning calls checkpoint callbacks after the epoch's metrics are logged
class _Watch(Checkpoint):
    """Records what a fit computes for one run, or for each member of a stack."""

    def __init__(self) -> None:
        # Weights before and after training, of each run.
        self.states: list[list[dict[str, Tensor]]] = []
        self.recorded: list[
            list[dict[str, Tensor]]
        ] = []  # metrics of each epoch and run
        self._begun = 0.0

    def on_train_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> None:
        self._begun = time.monotonic()
        self.states.append(_states(pl_module))

    def on_train_batch_start(self, *_: Any) -> None:
        # A trial must not last as long as the training that it decides about
        if time.monotonic() - self._begun > PATIENCE:
            raise TimeoutError(f"its updates take more than {PATIENCE:.0f} s")

    def on_train_epoch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule
    ) -> None:
        assert isinstance(module, Training)
        if isinstance(module, StackedTask):
            metrics = module.latest
        else:
            metrics = trainer.callback_metrics

        # Part the metrics by run.
        metrics_of_runs: list[dict[str, Tensor]] = [{} for _ in module.members]
        for name, value in metrics.items():
            values = torch.as_tensor(value).flatten()
            for r, metrics_of_run in enumerate(metrics_of_runs):
                metrics_of_run[name] = values[r]
        self.recorded.append(metrics_of_runs)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.states.append(_states(pl_module))


def _states(module: pl.LightningModule) -> list[dict[str, Tensor]]:
    """Return a copy of the weights of each run, under their names in the task of the run."""
    if isinstance(module, StackedTask):
        states = [task_state(module.network, r) for r in range(len(module.members))]
    else:
        states = [module.state_dict()]

    copies = []
    for state in states:
        tensors = {}
        for name, value in state.items():
            # Other entries, such as an extra state, cannot be compared
            if isinstance(value, Tensor):
                tensors[name] = value.detach().clone()
        copies.append(tensors)
    return copies


@threads(1)
def difference(run: Run) -> str | None:
    """Return how a stack of one differs from the plain module in float64; None if they agree.

    A network that cannot be mapped raises a MappingError. Any other exception, which may be an
    accident, becomes a TrialError.
    """
    # In float64, rounding cannot hide a difference
    config = _shortened(run, **DOUBLE)
    watch = _Watch()
    with TemporaryDirectory() as folder:
        with _trying("a stack"):
            alone = assemble([config], watch, Path(folder), stacked=False)

            # Build the task once more, under a copy of the Trainer, which calls the
            # copied watch.
            trainer, stack_watch = copy.deepcopy((alone.trainer, watch))
            (task,) = build_tasks([config], alone)
            second = Experiment(trainer, task, copy.copy(alone.data))
            stack = stack_of([task], second, [run.seed])
            _train(stack, run.seed)

        # Train the plain module with the same seed
        with _trying("a run alone"):
            _train(alone, run.seed)
    reason = _compare(watch, stack_watch, 0, CLOSE)
    return _described(reason, run)


@threads(1)
def dependence(runs: Sequence[Run], exact: bool) -> str | None:
    """Return how the first and the last run together differ from each alone; None if they agree.

    If ``exact``, in any bit; else in float64, as on a GPU, whose kernels depend on the number of
    runs. A single run is tried with another seed. Raises as `difference` does.
    """
    settings = {} if exact else DOUBLE
    close = 0.0 if exact else CLOSE

    # A single run has a second one with another seed.
    configs = [_shortened(runs[0], **settings), _shortened(runs[-1], **settings)]
    if len(runs) == 1:
        # Two members of one seed would hide a mix of random numbers
        set_dotted(configs[1], SEED, runs[0].seed + 1)

    # Train both together, then each alone.
    together = _watched(configs)
    for r, config in enumerate(configs):
        reason = _compare(_watched([config]), together, r, close)
        if reason:
            return _described(reason, runs[0])
    return None


def _described(reason: str | None, run: Run) -> str | None:
    if not reason:
        return None
    text = f"in a stack {reason}"
    if run.activation:
        text += f", with activation {label(run.activation)}"
    return text


def _shortened(run: Run, **settings: Any) -> dict[str, Any]:
    """Return the config of a run of a few updates."""
    config = copy.deepcopy(dict(run.config))
    for key, value in {**_SHORT, **settings}.items():
        set_dotted(config, f"trainer.{key}", value)
    return config


def _watched(configs: Sequence[Mapping[str, Any]]) -> _Watch:
    """Train runs in a stack; return what was computed."""
    watch = _Watch()
    with TemporaryDirectory() as folder, _trying("a stack"):
        trainer, task, data = assemble(configs, watch, Path(folder), stacked=True)
        trainer.fit(task, datamodule=data)
    return watch


@contextmanager
def _trying(name: str) -> Iterator[None]:
    """Quietly train something of a ``name``; what third-party code raises becomes a TrialError."""
    try:
        with quiet():
            yield
    except MappingError:
        raise
    except Exception as error:  # third-party code may raise anything
        check_device(error)
        raise TrialError(
            f"a trial of {name} failed: {described(error, 200)}"
        ) from error


def _train(experiment: Experiment, seed: int) -> None:
    """Train with batches of at most `SAMPLES`, and global generators that begin with the seed."""
    trainer, task, data = experiment
    for name in ("batch_size", "eval_batch_size"):
        size: Any = getattr(data, name, SAMPLES)
        # A few samples show a difference, and float64 takes time
        setattr(data, name, min(SAMPLES, size))
    seed_generators(seed)
    trainer.fit(task, datamodule=data)


def _compare(alone: _Watch, together: _Watch, r: int, close: float) -> str | None:
    """Return the first difference of member ``r``, in weights or metrics."""
    # Compare the weights.
    name = _first_difference(alone.states[0][0], together.states[0][r], close)
    if name:
        return f"initial weights differ from a run alone ({name})"

    # Changes, because a small update is lost in the digits of a weight
    change_alone = _change(alone.states, 0)
    change_together = _change(together.states, r)
    name = _first_difference(change_alone, change_together, close)
    if name:
        return f"weights differ from a run alone after some updates ({name})"

    # Compare the metrics of each epoch.
    for (metrics_alone,), metrics_together in zip(
        alone.recorded, together.recorded, strict=True
    ):
        difference = _first_difference_of_metrics(
            metrics_alone, metrics_together[r], close
        )
        if difference:
            return difference
    return None


def _first_difference_of_metrics(
    alone: Mapping[str, Tensor], member: Mapping[str, Tensor], close: float
) -> str | None:
    # Sorted, so that the message does not depend on the order of logging
    for name in sorted(alone.keys() | member.keys()):
        if name not in member:
            return f"{name} is not recorded"
        if name not in alone:
            return f"{name} is recorded in addition"
        if _first_difference({name: alone[name]}, {name: member[name]}, close):
            return f"{name} is {member[name]:.9g}, alone {alone[name]:.9g}"
    return None


def _change(
    states: Sequence[Sequence[Mapping[str, Tensor]]], r: int
) -> dict[str, Tensor]:
    """Return the change of a run's weights by training."""
    before = states[0][r]
    after = states[1][r]
    return {
        name: value.double() - before[name]
        for name, value in after.items()
        if name in before
    }


def _first_difference(
    alone: Mapping[str, Tensor], member: Mapping[str, Tensor], close: float
) -> str | None:
    """Return the first tensor that is missing or differs, relative to the largest value of all."""
    # Tensors that only one side has
    missing = alone.keys() ^ member.keys()
    if missing:
        return min(missing)

    # The largest value sets the tolerance.
    largest = 0.0
    for value in alone.values():
        if value.numel():
            size = value.double().abs().max().nan_to_num()
            largest = max(largest, float(size))
    options: Any = {
        "rtol": close,
        "atol": close * max(largest, close),
        "equal_nan": True,
    }

    # Shapes first: tensors of other shapes cannot be compared
    for name, value in alone.items():
        member_value = member[name].double()
        if value.shape != member_value.shape:
            return name
        if not torch.allclose(member_value, value.double(), **options):
            return name
    return None
