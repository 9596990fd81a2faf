"""Trial before runs are stacked: train some runs as a stack and each alone, in float64, and compare them.

Batches, gradients, weights and all recorded metrics must agree, so users need not know or declare what
third-party code does. In reduced precision, the recorded metrics are compared again in that precision.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from torch import Tensor

from actlab.config.keys import set_dotted
from actlab.config.values import label
from actlab.errors import described
from actlab.runtime.accidents import check_device
from actlab.runtime.devices import threads
from actlab.runtime.quiet import quiet
from actlab.stacking import StackedTask
from actlab.stacking.building import assemble
from actlab.stacking.mapping import MappingError
from actlab.stacking.network import task_state
from actlab.studies.plan import Run
from actlab.tasks.training import Training

SAMPLES = 8
CLOSE = 1e-6  # relative, in float64
CLOSE_REDUCED = 0.05  # relative, of recorded means in reduced precision
ROUNDING = 1e-6  # smaller values are compared with it: a mean that is 0 but for rounding has no relative size
PATIENCE = 60.0  # seconds that the updates of one fit may take
FULL = ("64-true", "64", 64, "32-true", "32", 32, None)
_SHORT = {
    **{"max_epochs": 2, "max_steps": -1, "max_time": None, "limit_train_batches": 2, "limit_val_batches": 1},
    "limit_test_batches": 1,
    **{"check_val_every_n_epoch": 1, "val_check_interval": 1.0, "num_sanity_val_steps": 0, "logger": False},
}


class TrialError(Exception):
    """A trial that failed and so has no verdict; the message says how."""


class _Watch(Checkpoint):  # Lightning calls checkpoint callbacks after the epoch's metrics are logged
    """Records what a fit computes for one run, or for each member of a stack."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Any]] = []  # of each update
        self.states: list[list[dict[str, Tensor]]] = []  # weights before and after training, of each run
        self.gradients: list[list[dict[str, Tensor]]] = []  # of each update and run
        self.recorded: list[list[dict[str, float]]] = []  # metrics of each epoch and run
        self._begun = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._begun = time.monotonic()
        self.states.append(_states(pl_module))

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, _: int) -> None:
        if time.monotonic() - self._begun > PATIENCE:
            raise TimeoutError(f"its updates take more than {PATIENCE:.0f} s")
        self.batches.append([part.clone() if isinstance(part, Tensor) else part for part in batch])

    def on_before_optimizer_step(self, trainer: pl.Trainer, module: pl.LightningModule, _: Any) -> None:
        assert isinstance(module, Training)
        learnt = {name for name, _ in module.members[0].named_parameters()}
        with _gradients_as_weights(module):
            every = _states(module)
        self.gradients.append([{n: g for n, g in one.items() if n in learnt} for one in every])

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        found = pl_module.latest if isinstance(pl_module, StackedTask) else trainer.callback_metrics
        columns = {name: torch.as_tensor(value).flatten().tolist() for name, value in found.items()}
        assert isinstance(pl_module, Training)
        runs = range(len(pl_module.members))
        self.recorded.append([{name: values[r] for name, values in columns.items()} for r in runs])

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.states.append(_states(pl_module))


def _states(module: pl.LightningModule) -> list[dict[str, Tensor]]:
    """Return a copy of the weights of each run, under the names in its own task."""
    if isinstance(module, StackedTask):
        every = [task_state(module.network, r) for r in range(len(module.members))]
    else:
        every = [module.state_dict()]
    return [{n: v.detach().clone() for n, v in one.items() if isinstance(v, Tensor)} for one in every]


@contextmanager
def _gradients_as_weights(module: pl.LightningModule) -> Iterator[None]:
    """Replace the values of a module's parameters by their gradients within a ``with`` block."""
    held = [(p, p.data) for p in module.parameters()]
    for parameter, data in held:
        parameter.data = torch.zeros_like(data) if parameter.grad is None else parameter.grad.detach()
    try:
        yield
    finally:
        for parameter, data in held:
            parameter.data = data


@threads(1)  # a few samples: more threads only wait for each other
def difference(runs: Sequence[Run]) -> str | None:
    """Return how runs in a stack differ from the same runs alone, in words; None if they agree.

    The trial trains the first two runs, which may share their settings, and the last run if its settings differ
    from those of the first. A network that cannot be mapped differs. A trial that raised any other exception,
    which may be an accident, raises a TrialError.
    """
    some = [*runs[:2], *(run for run in runs[2:][-1:] if run.point != runs[0].point)]
    precision = some[0].config.get("trainer", {}).get("precision")
    try:
        found = _compare(some, "64-true", CLOSE)
        if found is None and precision not in FULL:
            found = _compare(some, precision, CLOSE_REDUCED, recorded_alone=True)
    except MappingError as error:
        return str(error)
    return found


def _compare(runs: Sequence[Run], precision: Any, close: float, recorded_alone: bool = False) -> str | None:
    """Return the first difference in one precision: in batches, gradients, weights or metrics."""
    short = [_shortened(run, precision) for run in runs]
    alone, together = [_Watch() for _ in short], _Watch()
    for run, watch in zip(short, alone, strict=True):
        if fault := _fault_of([run], watch):
            raise TrialError(f"a trial of {run.id} alone failed: {fault}")
    if fault := _fault_of(short, together):
        raise TrialError(f"a trial of some runs in a stack failed: {fault}")
    for r, watch in enumerate(alone):
        found = None if recorded_alone else _compare_weights(watch, together, r, close)
        if found := found or _compare_metrics(watch, together, r, close):
            activation = f", with activation {label(runs[0].unit)}" if runs[0].unit else ""
            return f"in a stack {found}{activation}"
    return None


def _shortened(run: Run, precision: Any) -> Run:
    """Return the run shortened to two epochs of two updates."""
    config = copy.deepcopy(run.config)
    for key, value in {**_SHORT, "precision": precision}.items():
        set_dotted(config, f"trainer.{key}", value)
    return replace(run, config=config)


def _fault_of(runs: Sequence[Run], watch: _Watch) -> str | None:
    """Train one run, or several as a stack; return the error that was raised, in words."""
    with TemporaryDirectory() as folder, quiet():
        try:
            trainer, task, data = assemble([run.config for run in runs], watch, Path(folder))
            for size in ("batch_size", "eval_batch_size"):
                setattr(data, size, min(SAMPLES, getattr(data, size, SAMPLES)))
            trainer.fit(task, datamodule=data)
        except MappingError:
            raise
        except Exception as error:  # third-party code may raise anything
            check_device(error)
            return described(error, 200)
    return None


def _compare_weights(alone: _Watch, together: _Watch, r: int, close: float) -> str | None:
    """Return the first difference in the batches, gradients or weights of a member."""
    if len(alone.batches) != len(together.batches):
        return f"an epoch has {len(together.batches)} batches, not {len(alone.batches)}"
    for parts, of_both in zip(alone.batches, together.batches, strict=True):
        if not all(map(_same_part, parts, (part[r] for part in of_both))):
            return "batches differ from those of a run alone"
    kinds = {"initial weights": (alone.states[:1], together.states[:1])}
    kinds |= {"gradients": (alone.gradients, together.gradients)}
    for kind, (ones, boths) in kinds.items():
        for (one,), both in zip(ones, boths, strict=True):
            if name := _first_difference(one, both[r], close):
                return f"{kind} differ from those of a run alone ({name})"
    if name := _first_difference(_change(alone.states, 0), _change(together.states, r), close):
        return f"weights differ from those of a run alone after {len(alone.gradients)} updates ({name})"
    return None


def _change(states: Sequence[Sequence[Mapping[str, Tensor]]], r: int) -> dict[str, Tensor]:
    """Return the change of a run's weights by training."""
    (before, after) = (of_all[r] for of_all in states)
    return {name: value.double() - before[name] for name, value in after.items() if name in before}


def _compare_metrics(alone: _Watch, together: _Watch, r: int, close: float) -> str | None:
    """Return the first difference in the metrics of a member."""
    for (one,), both in zip(alone.recorded, together.recorded, strict=True):
        if missing := one.keys() ^ both[r].keys():
            return f"{min(missing)} is {'not recorded' if min(missing) in one else 'recorded in addition'}"
        for name, value in one.items():
            values = torch.tensor([value, both[r][name]], dtype=torch.float64)
            if _differ(values[0], values[1], values.abs().max(), close):
                return f"{name} is {both[r][name]:.9g}, alone {value:.9g}"
    return None


def _same_part(one: Any, both: Any) -> bool:
    """Whether a part of a batch is equal; a stack may pad a shorter part at its end."""
    if not isinstance(one, Tensor) or one.dim() != both.dim():
        return False
    return one.equal(both[tuple(slice(n) for n in one.shape)])


def _first_difference(one: Mapping[str, Tensor], both: Mapping[str, Tensor], close: float) -> str | None:
    """Return the first tensor that is missing or differs, relative to the largest value of all tensors."""
    if missing := one.keys() ^ both.keys():
        return min(missing)
    scale = max((v.double().abs().max() for v in one.values() if v.numel()), default=torch.tensor(0.0))
    return next((name for name, value in one.items() if _differ(value, both[name], scale, close)), None)


def _differ(one: Tensor, both: Tensor, scale: Tensor, close: float) -> bool:
    """Whether tensors differ by more than ``close`` relative to ``scale``."""
    if one.shape != both.shape:
        return True
    least = close * max(float(scale.nan_to_num()), ROUNDING)
    return not torch.allclose(both.double(), one.double(), rtol=close, atol=least, equal_nan=True)
