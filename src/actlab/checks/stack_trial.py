"""Trial before runs are stacked: train some runs as a stack and each alone, in float64, and compare them.

Batches, gradients, weights and all recorded metrics must agree, so users need not know or declare what
third-party code does. In reduced precision, the recorded metrics are compared again in that precision.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
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
_SHORT = {  # two epochs of two updates
    **{"max_epochs": 2, "max_steps": -1, "max_time": None, "num_sanity_val_steps": 0, "logger": False},
    **{"limit_train_batches": 2, "limit_val_batches": 1, "limit_test_batches": 1},
    **{"check_val_every_n_epoch": 1, "val_check_interval": 1.0},
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
        held = [(parameter, parameter.data) for parameter in module.parameters()]
        for parameter, data in held:  # as weights, gradients have the names and the shapes of each run
            parameter.data = torch.zeros_like(data) if parameter.grad is None else parameter.grad.detach()
        runs = _states(module)
        for parameter, data in held:
            parameter.data = data
        self.gradients.append([{n: g for n, g in of_run.items() if n in learnt} for of_run in runs])

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, Training)
        metrics = module.latest if isinstance(module, StackedTask) else trainer.callback_metrics
        columns = {name: torch.as_tensor(value).flatten().tolist() for name, value in metrics.items()}
        runs = range(len(module.members))
        self.recorded.append([{name: values[r] for name, values in columns.items()} for r in runs])

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.states.append(_states(pl_module))


def _states(module: pl.LightningModule) -> list[dict[str, Tensor]]:
    """Return a copy of the weights of each run, under their names in the task of the run."""
    if isinstance(module, StackedTask):
        runs = [task_state(module.network, r) for r in range(len(module.members))]
    else:
        runs = [module.state_dict()]
    return [{n: v.detach().clone() for n, v in of_run.items() if isinstance(v, Tensor)} for of_run in runs]


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
        reason = _compare(some, "64-true", CLOSE)
        if reason is None and precision not in FULL:
            reason = _compare(some, precision, CLOSE_REDUCED, recorded_alone=True)
    except MappingError as error:
        return str(error)
    return reason


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
        reason = None if recorded_alone else _compare_weights(watch, together, r, close)
        if reason := reason or _compare_metrics(watch, together, r, close):
            activation = f", with activation {label(runs[0].unit)}" if runs[0].unit else ""
            return f"in a stack {reason}{activation}"
    return None


def _shortened(run: Run, precision: Any) -> Run:
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
    for parts, stacked in zip(alone.batches, together.batches, strict=True):
        if not all(map(_same_part, parts, (part[r] for part in stacked))):
            return "batches differ from those of a run alone"
    pairs = [("initial weights", alone.states[0], together.states[0])]
    pairs += [("gradients", *pair) for pair in zip(alone.gradients, together.gradients, strict=True)]
    for kind, (of_run,), of_stack in pairs:
        if name := _first_difference(of_run, of_stack[r], close):
            return f"{kind} differ from those of a run alone ({name})"
    if name := _first_difference(_change(alone.states, 0), _change(together.states, r), close):
        return f"weights differ from those of a run alone after {len(alone.gradients)} updates ({name})"
    return None


def _change(states: Sequence[Sequence[Mapping[str, Tensor]]], r: int) -> dict[str, Tensor]:
    """Return the change of a run's weights by training."""
    before, after = (of_runs[r] for of_runs in states)
    return {name: value.double() - before[name] for name, value in after.items() if name in before}


def _compare_metrics(alone: _Watch, together: _Watch, r: int, close: float) -> str | None:
    """Return the first difference in the metrics of a member."""
    for (of_run,), of_stack in zip(alone.recorded, together.recorded, strict=True):
        member = of_stack[r]
        if missing := min(of_run.keys() ^ member.keys(), default=None):
            return f"{missing} is {'not recorded' if missing in of_run else 'recorded in addition'}"
        for name, value in of_run.items():
            values = torch.tensor([value, member[name]], dtype=torch.float64)
            if _differ(values[0], values[1], values.abs().max(), close):
                return f"{name} is {member[name]:.9g}, alone {value:.9g}"
    return None


def _same_part(part: Any, stacked: Any) -> bool:
    """Whether a part of a batch is equal; a stack may pad a shorter part at its end."""
    if not isinstance(part, Tensor) or part.dim() != stacked.dim():
        return False
    return part.equal(stacked[tuple(slice(n) for n in part.shape)])


def _first_difference(alone: Mapping[str, Tensor], member: Mapping[str, Tensor], close: float) -> str | None:
    """Return the first tensor that is missing or differs, relative to the largest value of all tensors."""
    if missing := alone.keys() ^ member.keys():
        return min(missing)
    scale = max((v.double().abs().max() for v in alone.values() if v.numel()), default=torch.tensor(0.0))
    return next((name for name, value in alone.items() if _differ(value, member[name], scale, close)), None)


def _differ(alone: Tensor, member: Tensor, scale: Tensor, close: float) -> bool:
    """Whether tensors differ by more than ``close`` relative to ``scale``."""
    if alone.shape != member.shape:
        return True
    least = close * max(float(scale.nan_to_num()), ROUNDING)
    return not torch.allclose(member.double(), alone.double(), rtol=close, atol=least, equal_nan=True)
