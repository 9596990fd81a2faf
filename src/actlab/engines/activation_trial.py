"""One update on a few samples, before a study trains anything: does each unit do what a unit must?"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Mapping, Sequence

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torchmetrics import Metric

from actlab import activations, experiments
from actlab.callbacks import refuse_averaging
from actlab.config.keys import canonical, label
from actlab.engines.cost import first_batch
from actlab.engines.processes import Report
from actlab.errors import ActlabError, RunError, described
from actlab.experiments import Experiment
from actlab.random import streams
from actlab.runtime import signals
from actlab.runtime.modules import evaluating, own_attributes
from actlab.runtime.third_party import Calling
from actlab.studies.groups import of_each_value
from actlab.studies.plan import Run
from actlab.tasks import Task
from actlab.tasks.building import fault_of_learning
from actlab.tasks.randomness import is_random

SAMPLES = 8


def try_units(report: Report, runs: Sequence[Run], known: Mapping[str, str]) -> dict[str, str | None]:
    """Build one run for each value of each grid key, and try each unit once; print a hint where there is one.

    Args:
        report: is given ``"trying"`` with a unit and its name before anything of it is called.
        runs: of one study.
        known: faults found before, by unit; these are not tried again.

    Returns:
        The fault of each unit; None where there is none.

    Raises:
        ActlabError: for a mistake in a config.
    """
    faults: dict[str, str | None] = {**known}
    for run in of_each_value(runs):
        signals.check()
        unit, name = canonical(run.unit), label(run.unit)
        if faults.get(unit):
            continue
        report("trying", unit, f"activation {name}" if run.unit else run.id)
        try:
            experiment = experiments.build(run.config)
        except RunError as error:
            faults[unit] = f"activation {name} fails: {error}"
            continue
        if unit not in faults:
            hints, before = [hint_of(experiment, name)], held_outside(experiment.task)
            faults[unit] = fault = fault_of(experiment, name)
            hints += [
                f"{where} changes in a step, and no checkpoint keeps it: a run that is resumed continues "
                "without it; make it a buffer (register_buffer), or let get_extra_state return it"
                for where, content in held_outside(experiment.task).items()
                if content != before.get(where, content)
            ]
            if not fault:
                print(*filter(None, hints), sep="\n", end="\n" * any(hints))
    return faults


def held_outside(task: pl.LightningModule) -> dict[str, bytes]:
    """What the modules of a network hold outside parameters and persistent buffers, where it can be told.

    Returns:
        By where it is, in words; what cannot be pickled is left out.
    """
    found: dict[str, bytes] = {}
    for path, module in task.named_modules() if isinstance(task, Task) else ():
        told = type(module).get_extra_state is not nn.Module.get_extra_state
        if told or isinstance(module, streams.Uniform | Metric):
            continue
        own = {n: v for n, v in own_attributes(module).items() if not isinstance(v, streams.Stream)}
        own |= {name: module._buffers[name] for name in module._non_persistent_buffers_set}
        for name, value in own.items() if path else ():
            with contextlib.suppress(Exception):  # lambdas, open files, what cannot be pickled
                found[f"{name!r} of {type(module).__name__} ({path})"] = pickle.dumps(value)
    return found


def fault_of(experiment: Experiment, name: str) -> str | None:
    """What is wrong with the activation of a task, in one line; None when nothing is.

    The unit must keep the shape, give finite values for finite inputs, let a gradient pass to the layers below
    it, hold what it learns as parameters, and be what it declares to be.

    Args:
        experiment: fresh; its networks are used up.
        name: of the unit, for the line.

    Raises:
        ActlabError: for callbacks that keep other weights than those that are recorded.
    """
    refuse_averaging(experiment.trainer)
    task = experiment.task
    if not isinstance(task, Task) or not task.units:
        return None
    batch = tuple(tensor[:SAMPLES] for tensor in first_batch(experiment.data))
    known = {name for name, _ in task.network.named_parameters()}
    given: dict[int, tuple[nn.Module, torch.Size]] = {}
    for unit in task.units:
        unit.register_forward_hook(_kept)
        unit.register_forward_hook(lambda unit, inputs, _: given.update({id(unit): (unit, inputs[0].shape)}))
    try:
        with torch.random.fork_rng(devices=[]), Calling():
            loss = task.train().loss(batch)
            stray = fault_of_learning(loss, {id(parameter) for parameter in task.parameters()})
            loss.backward()  # type: ignore[no-untyped-call]
    except RunError as error:
        return f"activation {name} fails: {error}"
    except ActlabError as error:
        return f"activation {name} {error}"
    except Exception as error:  # third-party code may raise anything
        return f"activation {name} fails: {described(error, 200)}"
    if made := sorted({name for name, _ in task.network.named_parameters()} - known):
        return (
            f"activation {name} makes a parameter in its first call ({made[0]}), too late for the optimiser: "
            "make it in the constructor, as an UninitializedParameter where its shape is not known"
        )
    if stray:
        return f"activation {name} {stray}"
    first = next((p for p in task.network.parameters() if p.dim() > 1), None)
    reaches = first is None or (first.grad is not None and first.grad.any())
    if not reaches and not any(_passes_gradient(*one) for one in given.values()):
        return f"activation {name} lets no gradient pass: the layers below it would never learn"
    return None


def _passes_gradient(unit: nn.Module, shape: torch.Size) -> bool:
    """Whether a gradient passes a unit by itself: through many layers a small one may vanish."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    try:
        (found,) = torch.autograd.grad(unit(x.clone()).sum(), x, allow_unused=True)
    except RuntimeError:  # what it gives does not depend on x
        return False
    return found is not None and bool(found.any())


def hint_of(experiment: Experiment, name: str) -> str | None:
    """What a unit could say of itself to be trained faster, in one line; None where it says all.

    Args:
        experiment: with the unit.
        name: of the unit, for the line.
    """
    units = experiment.task.units if isinstance(experiment.task, Task) else []
    said = {"elementwise": "'elementwise = True'", "stochastic": "'stochastic = False'"}
    if not units or not (missing := activations.left_open(units[0])):
        return None
    return (
        f"activation {name} is called run by run, since it may be random or mix elements; if it is not so, "
        f"{' and '.join(said[one] for one in missing)} on the class or function trains it faster"
    )


def _kept(unit: nn.Module, inputs: tuple[Tensor, ...], output: object) -> None:
    """Check one call of a unit.

    Raises:
        ActlabError: for another shape, or values that are not finite.
    """
    (x,) = inputs
    if not isinstance(output, Tensor) or output.shape != x.shape:
        given = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
        raise ActlabError(f"returned {given} for an input of shape {tuple(x.shape)}; a unit keeps the shape")
    if x.isfinite().all() and not output.isfinite().all():
        raise ActlabError("returned values that are not finite for finite inputs")
    _check_declared(unit, x, output)


def _check_declared(unit: nn.Module, x: Tensor, output: Tensor) -> None:
    """Try what a unit says of itself: one call may serve all runs of a stack, or training and evaluation.

    Raises:
        ActlabError: where it is not so.
    """
    with evaluating(unit):  # by ``forward``: hooks are for the network's own calls
        if not is_random(unit) and not torch.allclose(unit.forward(x), output, equal_nan=True):
            raise ActlabError(
                "gives another output in training than in evaluation, but 'stochastic' is False: "
                "set it to True, on the class or in register(…)"
            )
        if activations.is_elementwise(unit):
            both = unit.forward(torch.stack([x, 1 - x]))
            if both.dim() != x.dim() + 1 or not torch.allclose(both[0], unit.forward(x), equal_nan=True):
                raise ActlabError(
                    "declares 'elementwise = True', but what it returns for a sample depends on others: "
                    "leave the declaration out"
                )
