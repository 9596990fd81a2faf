"""Try each activation in one training step on a few samples, before a study trains anything."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor, nn

from actlab import activations, experiments
from actlab.callbacks.weight_averaging import check_averaging
from actlab.checks import state_trial
from actlab.checks.cases import Faults, key_of
from actlab.checks.cost import first_batch
from actlab.checks.facts import Known, as_text
from actlab.checks.gradient_trial import copied, fault_of_gradient, fault_of_rows, gradients_of
from actlab.config.labels import label
from actlab.config.paths import ACTIVATION, set_dotted
from actlab.config.values import canonical
from actlab.errors import ActlabError, RunError
from actlab.errors.messages import described
from actlab.experiments import Experiment
from actlab.runtime import signals
from actlab.runtime.devices import threads
from actlab.runtime.modules import evaluating
from actlab.runtime.signals import Report
from actlab.runtime.third_party import calling
from actlab.stacking.building import build_tasks
from actlab.studies.groups import of_each_value
from actlab.studies.plan import Run
from actlab.tasks import Task
from actlab.tasks.building import fault_of_learning, fault_of_made
from actlab.tasks.evaluation import Batch
from actlab.tasks.randomness import is_random

SAMPLES = 8
Before = tuple[Tensor, int]  # the state of an input before a call; see `state_of`


class Site(NamedTuple):
    """An activation that was called, with its latest input."""

    activation: nn.Module
    x: Tensor


Sites = dict[int, Site]  # by id of the activation


def prepare(runs: Sequence[Run]) -> None:
    """Prepare each dataset of some runs, with all threads."""
    for run in {canonical(run.config.get("data")): run for run in runs}.values():
        # third-party data may raise anything, and again where a run is built
        with suppress(Exception):
            experiments.prepare(experiments.data_of(run.config))


def try_activations(runs: Sequence[Run], known: Faults, report: Report) -> tuple[Faults, Known]:
    """Try each activation in each network; build also one run for each value of each grid key.

    Returns the fault of each case, and the facts of the runs that were built; prints a line for
    each network whose state dict lacks what training changes. ``report("trying", key, name)`` is
    called before any code of an activation runs. Cases with a ``known`` fault are skipped. An
    invalid config, apart from its activation, raises an ActlabError.
    """
    faults, facts, lines = {**known}, Known(), set[str]()
    built: dict[str, Experiment] = {}
    each = {key_of(run): run for run in reversed(runs)}
    for run in {run.id: run for run in (*of_each_value(runs), *reversed(each.values()))}.values():
        signals.check()
        key, name = key_of(run), label(run.activation or "")
        if faults.get(key):
            continue
        report("trying", key, f"activation {name}" if run.activation else run.id)
        experiment = _built(run, name, built)
        if isinstance(experiment, str):
            faults[key] = experiment
            continue
        facts.of(run, experiment)
        facts.updates_of(run, experiment)
        if key in faults:
            continue

        # Try a few samples, with one thread: others would only wait for it
        has_activations = isinstance(experiment.task, Task) and experiment.task.activations
        batch = _samples(experiment) if has_activations else None
        with threads(1):
            faults[key] = fault_of(experiment, name, batch)
            if faults[key] is not None:
                continue
            shared, line = state_trial.tried(run, experiment, batch)

        if shared:
            faults[key] = f"activation {name}: {shared}"
        elif line not in lines:
            print(line, end="")
            lines.add(line)
    return faults, facts


def _samples(experiment: Experiment) -> Batch:
    return tuple(part[:SAMPLES] for part in first_batch(experiment))


def _built(run: Run, name: str, built: dict[str, Experiment]) -> Experiment | str:
    """Return the experiment of a run, or its activation's fault; raise if the rest is at fault.

    Runs that differ only in their activation share Trainer and data, those of the first of them
    that was ``built``.
    """
    if run.activation and (reason := fault_of_creation(run.activation)):
        return f"activation {name} fails: {reason}"

    # Take over Trainer and data
    settings = _without_activation(run)
    first = built.get(settings)
    if run.activation and first is not None and isinstance(first.task, Task):
        # Users' code may raise anything, and again in the build below, which names the fault
        with suppress(Exception):
            (task,) = build_tasks([run.config], first)
            return first._replace(task=task)

    try:
        built[settings] = experiments.build(run.config)
        return built[settings]
    except RunError as error:
        return f"activation {name} fails: {error}"
    except ActlabError as error:
        if not run.activation:
            raise
        config = copy.deepcopy(run.config)
        set_dotted(config, ACTIVATION, "relu")
        with suppress(ActlabError):
            experiments.build(config)
            return f"activation {name} fails in the network: {error}"
        raise


def _without_activation(run: Run) -> str:
    """Return the config of a run without its activation, as text."""
    config = copy.deepcopy(run.config)
    if run.activation:
        set_dotted(config, ACTIVATION, None)
    return as_text(config)


def fault_of_creation(activation: activations.Activation) -> str | None:
    """Return why an activation cannot be imported or created, in one line; None if it can."""
    try:
        with calling():
            activations.factory(activation)
    except (ActlabError, RunError) as error:
        return str(error)
    return None


def fault_of(experiment: Experiment, name: str, batch: Batch | None = None) -> str | None:
    """Return what is wrong with the activation of a task, in one line; None if nothing is wrong.

    Do not use the experiment afterwards: the trial adds hooks and gradients.
    """
    check_averaging(experiment.trainer)
    task = experiment.task
    if not isinstance(task, Task) or not task.activations:
        return None
    fault = _fault_of(task, batch or _samples(experiment))
    return fault and f"activation {name} {fault}"


def _fault_of(task: Task, batch: Batch) -> str | None:
    sites: Sites = {}
    known = {name for name, _ in task.network.named_parameters()}
    uncalled = {id(activation): copied(activation) for activation in task.activations}
    for activation in task.activations:
        _check_calls(activation, sites)
    try:
        with torch.random.fork_rng(devices=[]), calling():
            loss = task.train().loss(batch)
            stray = fault_of_learning(
                loss, {id(parameter) for parameter in task.parameters()}, task
            )
            loss.backward()  # type: ignore[no-untyped-call]
            gradients = [gradient_of(site.activation, site.x) for site in [*sites.values()]]
    except RunError as error:
        return f"fails: {error}"
    except ActlabError as error:
        return str(error)
    except Exception as error:  # third-party code may raise anything
        return f"fails: {described(error, 200)}"
    if fault := fault_of_made(task.network, known) or stray:
        return fault
    if not all(gradient.isfinite().all() for gradient in gradients):
        return "has a non-finite gradient for finite inputs"
    first = next((p for p in task.network.parameters() if p.dim() > 1), None)
    reaches = first is None or (first.grad is not None and first.grad.any())
    if not reaches and not any(gradient.any() for gradient in gradients):
        return "has zero gradient with respect to its input: the layers below it cannot learn"
    of_each_shape = {site.x.shape[1:]: site for site in sites.values()}
    # Activations may treat images apart
    of_each_rank = {site.x.dim(): site for site in sites.values()}
    order = task.derivatives if task.sees_network else 1
    faults = itertools.chain(
        (fault_of_rows(uncalled[id(site.activation)], site.x) for site in of_each_shape.values()),
        (fault_of_gradient(site.activation, site.x, order) for site in of_each_rank.values()),
    )
    return next(filter(None, faults), None)


def _check_calls(activation: nn.Module, sites: Sites) -> None:
    """Check each call of an activation; keep its latest input."""
    begun: list[Before] = []

    def check(activation: nn.Module, inputs: tuple[Tensor, ...], output: object) -> None:
        check_call(activation, inputs[0], output, begun.pop())
        sites[id(activation)] = Site(activation, inputs[0].detach())

    activation.register_forward_pre_hook(
        lambda activation, inputs: begun.append(state_of(inputs[0]))
    )
    activation.register_forward_hook(check)


def state_of(x: Tensor) -> Before:
    """Return a copy of an input, which a call must not change, and autograd's count of changes."""
    return x.detach().clone(), x._version


def gradient_of(activation: nn.Module, like: Tensor) -> Tensor:
    """Return the gradient of a randomly weighted sum of the output at a standard normal input."""
    # of the activation alone: in a deep network the gradient may underflow
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(like.shape, generator=generator, dtype=like.dtype).requires_grad_()
    # The sum of x − mean(x) has none
    weights = torch.rand(like.shape, generator=generator, dtype=like.dtype)
    # A copy: some activations work in place
    (gradient,) = gradients_of((activation(x.clone()) * weights).sum(), [x])
    return gradient


def check_call(activation: nn.Module, x: Tensor, output: object, before: Before) -> None:
    """Raise an ActlabError unless a call kept input, shape, dtype, finiteness and declarations."""
    value, version = before  # ``x.data`` avoids autograd's count
    if x._version != version or not torch.equal(x.nan_to_num(), value.nan_to_num()):
        raise ActlabError(
            "changes its input: return a new tensor, without operations in place such as x.relu_() "
            "or inplace=True"
        )
    if not isinstance(output, Tensor) or output.shape != x.shape:
        given = (
            f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
        )
        raise ActlabError(
            f"returned {given} for an input of shape {tuple(x.shape)}: return a tensor of that "
            "shape"
        )
    if output.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ActlabError(
            f"returned {str(output.dtype)[6:]} for {str(x.dtype)[6:]}: return the dtype of the "
            "input"
        )
    if x.isfinite().all() and (wrong := ~output.isfinite()).any():
        y, at = output[wrong][0].item(), x[wrong][0].item()
        raise ActlabError(f"returned non-finite values for finite inputs: {y} for {at:.3g}")
    _check_declared(activation, x, output)


def _check_declared(activation: nn.Module, x: Tensor, output: Tensor) -> None:
    """Check the declarations ``elementwise`` and ``stochastic`` against the output of one call."""
    with evaluating(activation):  # call ``forward``: calling the module would run the hooks again
        if not is_random(activation) and not torch.allclose(
            activation.forward(x), output, equal_nan=True
        ):
            raise ActlabError(
                "returns different outputs in training and in evaluation, but 'stochastic' is "
                "False: set it to True on the class or in register(…)"
            )
        if activations.is_elementwise(activation):
            both = activation.forward(torch.stack([x, 1 - x]))
            if both.dim() != x.dim() + 1 or not torch.allclose(
                both[0], activation.forward(x), equal_nan=True
            ):
                raise ActlabError(
                    "declares 'elementwise = True', but its output for one sample depends on other "
                    "samples: remove the declaration"
                )
