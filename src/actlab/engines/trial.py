"""One update on a few samples, before a study trains anything: does each unit do what a unit must?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from actlab.engines.cost import first_batch
from actlab.errors import ActlabError
from actlab.experiments import Experiment
from actlab.tasks import Task

SAMPLES = 8


def fault_of(experiment: Experiment, name: str) -> str | None:
    """What is wrong with the activation of a task, in one line; None when nothing is.

    The unit must keep the shape, give finite values for finite inputs, and let a gradient pass to the layers
    below it.

    Args:
        experiment: fresh; its networks are used up.
        name: of the unit, for the line.
    """
    task = experiment.task
    if not isinstance(task, Task) or not task.units:
        return None
    batch = tuple(tensor[:SAMPLES] for tensor in first_batch(experiment.data))
    for unit in task.units:
        unit.register_forward_hook(_kept)
    try:
        with torch.random.fork_rng(devices=[]):
            task.train().loss(batch).backward()  # type: ignore[no-untyped-call]
    except ActlabError as error:
        return f"activation {name} {error}"
    except Exception as error:  # another author's code may raise anything
        return f"activation {name} fails: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    first = next((p for p in task.network.parameters() if p.dim() > 1), None)
    if first is not None and (first.grad is None or not first.grad.any()):
        return f"activation {name} lets no gradient pass: the layers below it would never learn"
    return None


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
