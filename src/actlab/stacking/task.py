"""A stack: R tasks that differ in seed or settings, trained as one LightningModule.

A member has the initial weights, data order and random masks that it would have alone, so its numbers are those
of a run of its own up to the order of floating-point sums.

Shapes: ``R`` runs, ``B`` batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from actlab.errors import ActlabError
from actlab.random.streams import Stream
from actlab.runtime.third_party import calling
from actlab.stacking import layers
from actlab.stacking.network import StackedNetwork
from actlab.stacking.slices import Slices
from actlab.tasks import Batch, Quantity, Task
from actlab.tasks.training import Training


class StackedTask(Training):
    """R tasks trained as one.

    The loss is the sum over members of each one's batch mean: a member's gradient is what it is alone.
    Metrics are vectors over members; `latest` holds those of the epoch, as ``{split}/{name}`` → ``(R,)``.

    Args:
        members: one task a run, fresh, with networks of the same layers.

    Raises:
        ActlabError: when the members cannot be stacked.
    """

    network: StackedNetwork

    def __init__(self, members: Sequence[Task]) -> None:
        super().__init__()
        if reason := reason_against(members[0]):
            raise ActlabError(f"{type(members[0]).__name__} cannot be stacked: {reason}")
        self._members = list(members)  # a plain list: their parameters live in the stack
        self.stream = Stream([m.seed for m in members])
        self.stream.reserve(members[0].stream.sites)
        self.network = StackedNetwork([m.network for m in members], self.stream)
        self.latest: dict[str, Tensor] = {}

    @property
    def members(self) -> Sequence[Task]:
        """The task of each run."""
        return self._members

    @property
    def stacked(self) -> bool:
        """Whether values lead with an axis of runs."""
        return True

    def setup(self, stage: str) -> None:
        """Let members see the Trainer: their own quantities may ask for the epoch."""
        for member in self.members:
            member.trainer = self.trainer
        super().setup(stage)

    @property
    def sites(self) -> dict[str, nn.Module]:
        """Where the stacked network has activations, by name within a member's."""
        return {name: self.network.layers.get_submodule(name) for name in self.members[0].sites}

    def observe(self, batch: Batch) -> None:
        """Pass a batch that all members share through the network, for those who watch its layers."""
        self.measured(batch, shared=True)

    def apart(self) -> Iterator[Task]:
        """The members one by one, each with its weights as they are now."""
        for r, member in enumerate(self.members):
            member.network.load_state_dict(self.network.member_state(r))
            yield member.to(self.device).train(self.training)

    @calling
    def measured(self, batch: Batch, shared: bool) -> dict[str, Quantity]:
        """What a batch says, with values ``(R, B, *)``.

        Args:
            batch: tensors ``(R, B, *)``, or ``(B, *)`` where all members share them.
            shared: which of the two.
        """
        first = self.members[0]
        first.training = self.training
        if _takes_run_axis(first.inputs):
            inputs = first.inputs(batch)
        else:
            apart = [m.inputs(_of_member(batch, r, shared)) for r, m in enumerate(self.members)]
            inputs = tuple(torch.stack(parts) for parts in zip(*apart, strict=True))
        output = self.network(*inputs, shared=shared and _takes_run_axis(first.inputs))
        if _takes_run_axis(first.quantities):
            return first.quantities(output, batch)
        for member in self.members:
            member.training = self.training
        found = [m.quantities(output[r], _of_member(batch, r, shared)) for r, m in enumerate(self.members)]
        return {name: stacked_quantity([quantities[name] for quantities in found]) for name in found[0]}

    def penalty(self) -> Tensor:
        """½·decay·Σw² of each run, ``(R,)``."""
        return self.slices.penalty()

    def log(self, name: str, value: Any, *args: Any, **kwargs: Any) -> None:
        """Take a statistic of a callback: one number a run, ``(R,)``.

        Raises:
            ActlabError: for another shape.
        """
        values = torch.as_tensor(value)
        if values.shape != (len(self.members),):
            shape = tuple(values.shape)
            raise ActlabError(
                f"{name!r} of a stack of {len(self.members)} runs: log one number a run, not {shape}"
            )
        self.latest[name] = values

    def log_dict(self, dictionary: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Take several statistics; see `log`."""
        for name, value in dictionary.items():
            self.log(name, value)

    def optimizer_of_all(self) -> tuple[Optimizer, Sequence[int]]:
        """The optimiser of torch over slices of the stacked parameters; see `Slices`."""
        self.slices = Slices(self.network, self.members)
        return self.slices.optimizer, self.slices.owners

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Hand each slice its part of the gradient."""
        self.slices.take_gradients()

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Drop the gradients of the stacked parameters."""
        self.network.zero_grad(set_to_none=True)


def reason_against(task: pl.LightningModule) -> str | None:
    """Why a task cannot be a member of a stack, or why that would save nothing; None where neither is so."""
    if not isinstance(task, Task):
        return f"{type(task).__name__} is a LightningModule of its own, not an actlab.tasks.Task"
    return layers.reason_against(task.network, task.units)


def _takes_run_axis(method: Callable[..., Any]) -> bool:
    return getattr(method, "takes_run_axis", False)


def _of_member(batch: Batch, r: int, shared: bool) -> Batch:
    return batch if shared else tuple(tensor[r] for tensor in batch)


def stacked_quantity(quantities: Sequence[Quantity]) -> Quantity:
    """The R members' quantities as one."""
    weights = [q.weights for q in quantities if q.weights is not None]
    return Quantity(torch.stack([q.values for q in quantities]), torch.stack(weights) if weights else None)
