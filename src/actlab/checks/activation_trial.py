"""Try each activation in one training step on a few samples, before a study trains anything."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from actlab import activations, experiments
from actlab.callbacks.weight_averaging import check_averaging
from actlab.checks import state_trial
from actlab.checks.cases import Faults, key_of
from actlab.checks.cost import first_batch
from actlab.checks.facts import BuiltFacts, as_text
from actlab.checks.gradient_trial import (
    copied,
    fault_of_gradient,
    fault_of_rows,
    gradients_of,
)
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
InputState = tuple[Tensor, int]  # before a call; see `state_of`


class Site(NamedTuple):
    """An activation that was called, with its latest input."""

    activation: nn.Module
    x: Tensor


Sites = dict[int, Site]  # by id of the activation


def prepare(runs: Sequence[Run]) -> None:
    """Prepare each dataset of some runs, with all threads."""
    # Equal data are prepared once
    run_by_data = {canonical(run.config.get("data")): run for run in runs}
    for run in run_by_data.values():
        # Third-party data may raise anything, and again where a run is built.
        with suppress(Exception):
            experiments.prepare(experiments.data_of(run.config))


def try_activations(
    runs: Sequence[Run], known_faults: Faults, report: Report
) -> tuple[Faults, BuiltFacts]:
    """Try each activation in each network; build also one run for each value of each grid key.

    A line is printed for each network whose state dict lacks what training changes.

    Args:
        runs: of a study.
        known_faults: by key of the case; these cases are skipped.
        report: ``report("trying", key, name)`` is called before any code of an activation runs.

    Returns:
        The fault of each case, and the facts of the runs that were built.

    Raises:
        ActlabError: the config is invalid apart from its activation.
    """
    faults = {**known_faults}
    facts = BuiltFacts()
    lines: set[str] = set()
    # `built` holds experiments by their settings without activation
    built: dict[str, Experiment] = {}

    for run in _tried_runs(runs):
        signals.check()
        key = key_of(run)
        name = label(run.activation or "")
        # Found before, perhaps by a process that the activation has ended
        if faults.get(key):
            continue

        # Build the run, which shows its facts.
        report("trying", key, f"activation {name}" if run.activation else run.id)
        experiment = _built(run, name, built)
        if isinstance(experiment, str):
            faults[key] = experiment
            continue
        # Remembered, so that packing need not build the run again
        facts.of(run, experiment)
        facts.updates_of(run, experiment)
        if key in faults:
            continue

        # Try a few samples, with one thread: others would only wait for it.
        has_activations = (
            isinstance(experiment.task, Task) and experiment.task.activations
        )
        batch = _samples(experiment) if has_activations else None
        with threads(1):
            faults[key] = fault_of(experiment, name, batch)
            if faults[key] is not None:
                continue
            shared, line = state_trial.tried(run, experiment, batch)

        # An incomplete checkpoint is a note, printed once
        if shared:
            faults[key] = f"activation {name}: {shared}"
        elif line not in lines:
            print(line, end="")
            lines.add(line)
    return faults, facts


def _tried_runs(runs: Sequence[Run]) -> list[Run]:
    """Return a run for each value of each grid key, and the first run of each case."""
    run_by_case = {key_of(run): run for run in reversed(runs)}

    # A run may be both.
    run_by_id = {}
    for run in (*of_each_value(runs), *reversed(run_by_case.values())):
        run_by_id[run.id] = run
    return list(run_by_id.values())


def _samples(experiment: Experiment) -> Batch:
    return tuple(part[:SAMPLES] for part in first_batch(experiment))


def _built(run: Run, name: str, built: dict[str, Experiment]) -> Experiment | str:
    """Return the experiment of a run, or its activation's fault; raise for any other fault.

    Runs that differ only in their activation share Trainer and data with the first such run that
    was ``built``.
    """
    # Create the activation alone, without the network
    if run.activation:
        reason = fault_of_creation(run.activation)
        if reason:
            return f"activation {name} fails: {reason}"

    # Take over Trainer and data.
    settings = _without_activation(run)
    shared = built.get(settings)
    if run.activation and shared is not None and isinstance(shared.task, Task):
        # Users' code may raise anything, and again in the build below, which names the
        # fault.
        with suppress(Exception):
            (task,) = build_tasks([run.config], shared)
            return shared._replace(task=task)

    # Build the run. If only its activation is at fault, a run with ReLU can be built.
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
    # A user's code runs here for the first time.
    try:
        with calling():
            activations.factory(activation)
    except (ActlabError, RunError) as error:
        return str(error)
    return None


def fault_of(
    experiment: Experiment, name: str, batch: Batch | None = None
) -> str | None:
    """Return what is wrong with the activation of a task, in one line; None if nothing is wrong.

    Do not use the experiment afterwards: the trial adds hooks and gradients.
    """
    # First, because it is no fault of an activation
    check_averaging(experiment.trainer)

    # Only tasks have activations that can be tried.
    task = experiment.task
    if not isinstance(task, Task) or not task.activations:
        return None
    fault = _fault_of(task, batch or _samples(experiment))
    return f"activation {name} {fault}" if fault else None


def _fault_of(task: Task, batch: Batch) -> str | None:
    """Return what is wrong with the activations of a task, in one line."""
    names = {name for name, _ in task.network.named_parameters()}
    # Copies from before the first call, to see which state a call makes
    uncalled = {id(activation): copied(activation) for activation in task.activations}
    sites: Sites = {}
    for activation in task.activations:
        _check_calls(activation, sites)

    # Make a training step, which checks each call, and call each activation alone.
    try:
        with torch.random.fork_rng(devices=[]), calling():
            loss = task.train().loss(batch)
            optimised = {id(parameter) for parameter in task.parameters()}
            stray = fault_of_learning(loss, optimised, task)
            loss.backward()  # type: ignore[no-untyped-call]
            gradients = [gradient_of(*site) for site in list(sites.values())]
    except RunError as error:
        return f"fails: {error}"
    except ActlabError as error:
        return str(error)
    except Exception as error:  # third-party code may raise anything
        return f"fails: {described(error, 200)}"

    # The message names only the first fault
    return (
        fault_of_made(task.network, names)
        or stray
        or _fault_of_gradients(task, gradients)
        or _fault_of_sites(task, sites, uncalled)
    )


def _fault_of_gradients(task: Task, gradients: Sequence[Tensor]) -> str | None:
    """Return a message if a gradient by an input is not finite, or all are zero."""
    if not all(gradient.isfinite().all() for gradient in gradients):
        return "has a non-finite gradient for finite inputs"

    # Zero gradients at random inputs are no fault if the first weights learn. Biases
    # would learn without a gradient by the input.
    matrices = [
        parameter for parameter in task.network.parameters() if parameter.dim() > 1
    ]
    if not matrices:
        return None
    gradient_of_weights = matrices[0].grad
    learns = gradient_of_weights is not None and bool(gradient_of_weights.any())
    if not learns and not any(gradient.any() for gradient in gradients):
        return "has zero gradient with respect to its input, so layers below it cannot learn"
    return None


def _fault_of_sites(
    task: Task, sites: Sites, uncalled: Mapping[int, nn.Module]
) -> str | None:
    """Return a message for state that has the size of a batch, or for a wrong derivative."""
    site_by_shape = {site.x.shape[1:]: site for site in sites.values()}
    for site in site_by_shape.values():
        fault = fault_of_rows(uncalled[id(site.activation)], site.x)
        if fault:
            return fault

    # Activations may treat images apart.
    site_by_rank = {site.x.dim(): site for site in sites.values()}
    order = task.derivatives if task.sees_network else 1
    for site in site_by_rank.values():
        fault = fault_of_gradient(site.activation, site.x, order)
        if fault:
            return fault
    return None


def _check_calls(activation: nn.Module, sites: Sites) -> None:
    """Check each call of an activation; store its latest input."""
    states: list[InputState] = []

    def begin(activation: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        states.append(state_of(inputs[0]))

    def check(
        activation: nn.Module, inputs: tuple[Tensor, ...], output: object
    ) -> None:
        check_call(activation, inputs[0], output, states.pop())
        sites[id(activation)] = Site(activation, inputs[0].detach())

    activation.register_forward_pre_hook(begin)
    activation.register_forward_hook(check)


def state_of(x: Tensor) -> InputState:
    """Return a copy of an input, which a call must not change, and autograd's count of changes."""
    return x.detach().clone(), x._version


def gradient_of(activation: nn.Module, example: Tensor) -> Tensor:
    """Return the gradient of a randomly weighted sum of the output at a standard normal input.

    The activation is called alone: in a deep network the gradient may underflow.
    """
    generator = torch.Generator().manual_seed(0)
    options: Any = {"generator": generator, "dtype": example.dtype}
    x = torch.randn(example.shape, **options).requires_grad_()
    # The sum of x − mean(x) has no gradient without weights.
    weights = torch.rand(example.shape, **options)

    # A copy: some activations work in place.
    output = activation(x.clone())
    (gradient,) = gradients_of((output * weights).sum(), [x])
    return gradient


def check_call(
    activation: nn.Module, x: Tensor, output: object, before: InputState
) -> None:
    """Check that a call keeps input, shape, dtype, finiteness and declarations.

    Raises:
        ActlabError: it does not.
    """
    value, version = before
    # ``x.data`` avoids autograd's count.
    if x._version != version or not torch.equal(x.nan_to_num(), value.nan_to_num()):
        raise ActlabError(
            "changes its input. Return a new tensor, without operations in place such as x.relu_() "
            "or inplace=True"
        )

    # The output has the shape of the input
    if not isinstance(output, Tensor) or output.shape != x.shape:
        returned = type(output).__name__
        if isinstance(output, Tensor):
            returned = f"shape {tuple(output.shape)}"
        raise ActlabError(
            f"returned {returned} for an input of shape {tuple(x.shape)}. Return a tensor of this "
            "shape"
        )

    # Autocast may change the dtype
    if output.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ActlabError(
            f"returned {str(output.dtype)[6:]} for {str(x.dtype)[6:]}. Return the dtype of the "
            "input"
        )

    # Non-finite inputs may give non-finite outputs
    wrong = ~output.isfinite()
    if x.isfinite().all() and wrong.any():
        y = output[wrong][0].item()
        location = x[wrong][0].item()
        raise ActlabError(
            f"returned non-finite values for finite inputs: {y} for {location:.3g}"
        )

    _check_declared(activation, x, output)


def _check_declared(activation: nn.Module, x: Tensor, output: Tensor) -> None:
    """Check the declarations ``elementwise`` and ``stochastic`` against the output of one call."""
    # Calling the module instead of ``forward`` would run the hooks again.
    with evaluating(activation):
        if not is_random(activation) and not _agree(activation.forward(x), output):
            raise ActlabError(
                "returns different outputs in training and in evaluation, but 'stochastic' is "
                "False. Set it to True on the class or in register(…)"
            )

        if activations.is_elementwise(activation):
            # Other values in the second slice would change the first one if samples
            # were mixed
            stacked = activation.forward(torch.stack([x, 1 - x]))
            if stacked.dim() != x.dim() + 1 or not _agree(
                stacked[0], activation.forward(x)
            ):
                raise ActlabError(
                    "declares 'elementwise = True', but its output for one sample depends on other "
                    "samples. Remove the declaration"
                )


def _agree(y: Tensor, again: Tensor) -> bool:
    return torch.allclose(y, again, equal_nan=True)
