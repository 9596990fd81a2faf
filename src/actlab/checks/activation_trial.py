"""Try each activation in one training step on a few samples, before a study trains anything."""

from __future__ import annotations

import copy
import itertools
import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from actlab import activations, experiments
from actlab.analysis.wording import duration
from actlab.callbacks import check_averaging
from actlab.checks.cases import Cases, Faults, key_of
from actlab.checks.cost import first_batch
from actlab.checks.gradient_trial import copied, fault_of_gradient, fault_of_rows, gradients_of
from actlab.config.keys import set_dotted
from actlab.config.values import canonical, label
from actlab.errors import ActlabError, RunError, described
from actlab.experiments import Experiment
from actlab.runtime import signals
from actlab.runtime.devices import threads
from actlab.runtime.modules import evaluating
from actlab.runtime.signals import Report
from actlab.runtime.third_party import calling
from actlab.studies.groups import of_each_value
from actlab.studies.plan import Run
from actlab.tasks import Task
from actlab.tasks.building import fault_of_learning, fault_of_made
from actlab.tasks.randomness import is_random
from actlab.tasks.training import Batch

SAMPLES = 8
SLOW = 1000  # times as slow as ReLU
ROWS = 3  # samples of a call that is compared between processes


def prepare(runs: Sequence[Run]) -> None:
    """Prepare each dataset of some runs, with all threads."""
    for run in {canonical(run.config.get("data")): run for run in runs}.values():
        with suppress(Exception):  # third-party data may raise anything, and again where a run is built
            experiments.prepare(experiments.data_of(run.config))


def try_units(runs: Sequence[Run], known: Faults, report: Report) -> tuple[Faults, Cases]:
    """Try each activation in each network; build also one run for each value of each grid key.

    Returns the fault of each case, and the cases without one; prints which activations take long.
    ``report("trying", key, name)`` is called before any code of an activation runs. Cases with a ``known``
    fault are skipped. An invalid config, apart from its activation, raises an ActlabError.
    """
    faults, cases = {**known}, Cases()
    each = {key_of(run): run for run in reversed(runs)}
    for run in {run.id: run for run in (*of_each_value(runs), *reversed(each.values()))}.values():
        signals.check()
        key, name = key_of(run), label(run.unit)
        if faults.get(key):
            continue
        report("trying", key, f"activation {name}" if run.unit else run.id)
        experiment = _built(run, name)
        if isinstance(experiment, str):
            faults[key] = experiment
        elif key not in faults:
            task = experiment.task
            units = task.units if isinstance(task, Task) else ()
            batch = tuple(part[:SAMPLES] for part in first_batch(experiment.data)) if units else None
            with threads(1):  # a few samples: more threads only wait for each other
                sites = sites_of(task)
                faults[key] = fault_of(experiment, name, batch, sites)
                if faults[key]:
                    continue
                cases[key] = run, pickle.dumps(tuple(part[:ROWS].clone() for part in batch)) if batch else b""
                if line := _time_hint(experiment, sites, run, name):
                    print(line)
    return faults, cases


def _built(run: Run, name: str) -> Experiment | str:
    """Return the experiment of a run, or its activation's fault; raise if no other one can be built."""
    if run.unit and (reason := fault_of_creation(run.unit)):
        return f"activation {name} fails: {reason}"
    try:
        return experiments.build(run.config)
    except RunError as error:
        return f"activation {name} fails: {error}"
    except ActlabError as error:
        if not (run.unit and _builds_with_relu(run)):
            raise
        return f"activation {name} fails in the network: {error}"


def _builds_with_relu(run: Run) -> bool:
    config = copy.deepcopy(run.config)
    set_dotted(config, "model.activation", "relu")
    try:
        experiments.build(config)
    except ActlabError:
        return False
    return True


def fault_of_creation(unit: activations.Spec) -> str | None:
    """Return why an activation cannot be imported or created, in one line; None if it can."""
    try:
        with calling():
            activations.factory(unit)
    except (ActlabError, RunError) as error:
        return str(error)
    return None


Sites = dict[int, tuple[nn.Module, Tensor]]
"""Each activation that was called, by id, with its input."""


def sites_of(task: pl.LightningModule) -> Sites:
    """Return a mapping that the task's activations fill when they are called."""
    found: Sites = {}

    def note(unit: nn.Module, inputs: tuple[Tensor, ...], _: object) -> None:
        found[id(unit)] = unit, inputs[0].detach()

    for unit in task.units if isinstance(task, Task) else ():
        unit.register_forward_hook(note)
    return found


def _time_hint(experiment: Experiment, sites: Sites, run: Run, name: str) -> str:
    """Return a line with the time of a run for an activation `SLOW` times slower than ReLU; else nothing."""
    try:
        with torch.random.fork_rng(devices=[]), calling():
            mine = sum(_seconds(unit.forward, x) for unit, x in sites.values())  # without hooks
    except Exception:  # third-party code may raise anything; in training it fails by name
        return ""
    relu = sum(_seconds(torch.relu, x) for _, x in sites.values())
    if mine <= SLOW * relu:  # also without sites
        return ""
    size, updates = getattr(experiment.data, "batch_size", SAMPLES), experiment.updates_per_epoch() or 1
    step = 3 * mine * size / SAMPLES  # the backward pass takes about as long as two forward passes
    whole = duration(step * updates * (run.epochs or 1))
    return f"activation {name} takes {mine / relu:,.0f} times as long as ReLU: about {whole} for one run"


def _seconds(call: Callable[[Tensor], object], x: Tensor) -> float:
    """Return the time of the fastest of three calls."""
    found = []
    for _ in range(3):
        start = time.perf_counter()
        with torch.no_grad():
            call(x)
        found.append(time.perf_counter() - start)
    return min(found)


def fault_of(
    experiment: Experiment, name: str, batch: Batch | None = None, sites: Sites | None = None
) -> str | None:
    """Return what is wrong with the activation of a task, in one line; None if nothing is wrong.

    The activation must leave its input unchanged, keep its shape and dtype, return finite values for finite
    inputs, have a finite, nonzero gradient with respect to its input, register the tensors it learns as
    parameters, match its declarations, and accept batches of any size. Its gradient must be the derivative of
    its output, unless it is declared a surrogate, and so must further derivatives that the task needs. Do not
    use the experiment afterwards: the trial adds hooks and gradients.
    """
    check_averaging(experiment.trainer)
    task = experiment.task
    if not isinstance(task, Task) or not task.units:
        return None
    batch = batch or tuple(tensor[:SAMPLES] for tensor in first_batch(experiment.data))
    known = {name for name, _ in task.network.named_parameters()}
    sites = sites_of(task) if sites is None else sites
    uncalled = {id(unit): copied(unit) for unit in task.units}
    for unit in task.units:
        _check_calls(unit)
    try:
        with torch.random.fork_rng(devices=[]), calling():
            loss = task.train().loss(batch)
            stray = fault_of_learning(loss, {id(parameter) for parameter in task.parameters()}, task)
            loss.backward()  # type: ignore[no-untyped-call]
            gradients = [gradient_of(unit, x) for unit, x in [*sites.values()]]
    except RunError as error:
        return f"activation {name} fails: {error}"
    except ActlabError as error:
        return f"activation {name} {error}"
    except Exception as error:  # third-party code may raise anything
        return f"activation {name} fails: {described(error, 200)}"
    if fault := fault_of_made(task.network, known) or stray:
        return f"activation {name} {fault}"
    if not all(gradient.isfinite().all() for gradient in gradients):
        return f"activation {name} has a non-finite gradient for finite inputs"
    first = next((p for p in task.network.parameters() if p.dim() > 1), None)
    reaches = first is None or (first.grad is not None and first.grad.any())
    if not reaches and not any(gradient.any() for gradient in gradients):
        return (
            f"activation {name} has zero gradient with respect to its input: the layers below it cannot learn"
        )
    of_each_shape = {x.shape[1:]: (unit, x) for unit, x in sites.values()}
    of_each_rank = {x.dim(): (unit, x) for unit, x in sites.values()}  # activations may treat images apart
    order = task.derivatives if task.sees_network else 1
    faults = itertools.chain(
        (fault_of_rows(uncalled[id(unit)], x) for unit, x in of_each_shape.values()),
        (fault_of_gradient(unit, x, order) for unit, x in of_each_rank.values()),
    )
    return next((f"activation {name} {fault}" for fault in faults if fault), None)


def _check_calls(unit: nn.Module) -> None:
    before: list[Input] = []

    def check(unit: nn.Module, inputs: tuple[Tensor, ...], output: object) -> None:
        check_call(unit, inputs[0], output, before.pop())

    unit.register_forward_pre_hook(lambda unit, inputs: before.append(Input.of(inputs[0])))
    unit.register_forward_hook(check)


class Input(NamedTuple):
    """A copy of an input before a call, which must not change it, and autograd's count of changes."""

    value: Tensor
    version: int

    @classmethod
    def of(cls, x: Tensor) -> Input:
        """Return the current state of ``x``."""
        return cls(x.detach().clone(), x._version)

    def has_changed(self, x: Tensor) -> bool:
        """Return whether ``x`` has been written to since; ``x.data`` avoids the count of autograd."""
        return x._version != self.version or not torch.equal(x.nan_to_num(), self.value.nan_to_num())


def gradient_of(unit: nn.Module, like: Tensor) -> Tensor:
    """Return the gradient of a randomly weighted sum of the output at a standard normal input of a shape.

    Of the activation alone, because in a deep network the gradient may underflow; weighted, because the plain
    sum of an output such as ``x - x.mean()`` has no gradient.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(like.shape, generator=generator, dtype=like.dtype).requires_grad_()
    weights = torch.rand(like.shape, generator=generator, dtype=like.dtype)
    (gradient,) = gradients_of((unit(x.clone()) * weights).sum(), [x])  # a copy: some activations work in place
    return gradient


def check_call(unit: nn.Module, x: Tensor, output: object, before: Input) -> None:
    """Raise an ActlabError unless a call kept the input, shape, dtype, finite values and declarations."""
    if before.has_changed(x):
        raise ActlabError(
            "changes its input: return a new tensor, without operations in place such as x.relu_() or "
            "inplace=True"
        )
    if not isinstance(output, Tensor) or output.shape != x.shape:
        given = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
        raise ActlabError(
            f"returned {given} for an input of shape {tuple(x.shape)}: return a tensor of that shape"
        )
    if output.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ActlabError(
            f"returned {str(output.dtype)[6:]} for {str(x.dtype)[6:]}: return the dtype of the input"
        )
    if x.isfinite().all() and (wrong := ~output.isfinite()).any():
        value, at = output[wrong][0].item(), x[wrong][0].item()
        raise ActlabError(f"returned non-finite values for finite inputs: {value} for {at:.3g}")
    _check_declared(unit, x, output)


def _check_declared(unit: nn.Module, x: Tensor, output: Tensor) -> None:
    """Check the declarations ``elementwise`` and ``stochastic`` against the output of one call."""
    with evaluating(unit):  # call ``forward``: calling the module would run the hooks again
        if not is_random(unit) and not torch.allclose(unit.forward(x), output, equal_nan=True):
            raise ActlabError(
                "returns different outputs in training and in evaluation, but 'stochastic' is False: "
                "set it to True on the class or in register(…)"
            )
        if activations.is_elementwise(unit):
            both = unit.forward(torch.stack([x, 1 - x]))
            if both.dim() != x.dim() + 1 or not torch.allclose(both[0], unit.forward(x), equal_nan=True):
                raise ActlabError(
                    "declares 'elementwise = True', but its output for one sample depends on other samples: "
                    "remove the declaration"
                )
