"""A stack: R tasks that differ in seed or settings, trained as one LightningModule.

A member has the initial weights, data order and random masks that it would have alone, so its numbers are those
of a run of its own up to the order of floating-point sums.

Shapes: ``R`` runs, ``B`` batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from actlab import optim
from actlab.errors import ActlabError
from actlab.modes import Lending, evaluating
from actlab.networks import Dropout
from actlab.stacking import layers
from actlab.stacking.network import StackedNetwork
from actlab.stacking.slices import Slices
from actlab.streams import Stream
from actlab.tasks import Batch, Quantity, Task, building
from actlab.tasks.quantities import Means
from actlab.tasks.restoring import as_precise_as
from actlab.thirdparty import calling


class StackedTask(pl.LightningModule):
    """R tasks trained as one.

    The loss is the sum over members of each one's batch mean: a member's gradient is what it is alone.
    Metrics are vectors over members; `latest` holds those of the epoch, as ``{split}/{name}`` → ``(R,)``.

    Args:
        members: one task a run, fresh, with networks of the same layers.

    Raises:
        ActlabError: when the members cannot be stacked.
    """

    def __init__(self, members: Sequence[Task]) -> None:
        super().__init__()
        if reason := reason_against(members[0]):
            raise ActlabError(f"{type(members[0]).__name__} cannot be stacked: {reason}")
        self.members = list(members)  # a plain list: their parameters live in the stack
        self.stream = Stream([m.seed for m in members])
        self.stream.reserve(members[0].stream.sites)
        self.network = StackedNetwork([m.network for m in members], self.stream)
        self.latest: dict[str, Tensor] = {}
        self.moving: optim.Scheduler | None = None
        self._states: dict[str, list[float]] = {}
        self._means = Means()
        self._lend = Lending()

    def setup(self, stage: str) -> None:
        """Let members see the Trainer: their own quantities may ask for the epoch."""
        for member in self.members:
            member._trainer = self._trainer
        building.check_accumulation(self.trainer, self.members[0])

    @property
    def _watches_clean_loss(self) -> bool:
        return self.members[0].clean_training_loss

    @property
    def _random(self) -> bool:
        """Whether any member's training differs from evaluation: one without dropout may stand first."""
        return any(member.differs for member in self.members)

    @property
    def sites(self) -> dict[str, nn.Module]:
        """Where the stacked network has activations, by name within a member's."""
        return {name: self.network.layers.get_submodule(name) for name in self.members[0].sites}

    def observe(self, batch: Batch) -> None:
        """Pass a batch that all members share through the network, for those who watch its layers."""
        self.quantities(batch, shared=True)

    def apart(self) -> Iterator[Task]:
        """The members one by one, each with its weights as they are now."""
        for r, member in enumerate(self.members):
            member.network.load_state_dict(self.network.member_state(r))
            yield member.to(self.device).train(self.training)

    @calling
    def quantities(self, batch: Batch, shared: bool) -> dict[str, Quantity]:
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

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Sum of the members' batch means; tensors ``(R, B, *)``."""
        self.stream.steps = True
        self.stream.move(self.current_epoch, batch_idx)
        if self.moving:
            self.moving.move(self.current_epoch, self.global_step)
        if self._watches_clean_loss and self._random:
            self._add("train/clean_loss", *self._clean_loss(batch))
        found = self.quantities(batch, shared=False)
        means, weight = found["loss"].mean(runs=True), found["loss"].weight(runs=True)
        for name in self.members[0].trained:
            mean = means if name == "loss" else found[name].mean(runs=True)
            self._add(f"train/{name}", mean.detach(), found[name].weight(runs=True))
        if self.members[0].l2 is not None:
            self._add("train/penalised_loss", means.detach() + self.slices.penalty(), weight)
        return means.sum()

    def _clean_loss(self, batch: Batch) -> tuple[Tensor, Tensor | float]:
        with evaluating(self):
            loss = self._lend(partial(self.quantities, shared=False), batch)["loss"]
        return loss.mean(runs=True), loss.weight(runs=True)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add up ``val/…``; tensors ``(B, *)`` are shared by all members."""
        self._evaluate("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Add up ``test/…``."""
        self._evaluate("test", batch)

    def _evaluate(self, split: str, batch: Batch) -> None:
        for name, quantity in self.quantities(batch, shared=True).items():
            self._add(f"{split}/{name}", quantity.mean(runs=True), quantity.weight(runs=True))

    def _add(self, name: str, means: Tensor, weights: Tensor | float) -> None:
        self._means.add(name, means, weights)

    def _collect(self, split: str) -> None:
        collected = self._means.take(f"{split}/")
        if split == "train" and self._watches_clean_loss and not self._random:
            collected["train/clean_loss"] = collected["train/loss"]
        if self.moving and not self.trainer.sanity_checking:
            self.moving.observe(collected)
        self.latest |= collected

    def on_train_epoch_end(self) -> None:
        """Take the epoch's training metrics."""
        self._collect("train")

    def on_validation_epoch_end(self) -> None:
        """Take ``val/…``."""
        self._collect("val")

    def on_test_epoch_end(self) -> None:
        """Take ``test/…``."""
        self._collect("test")

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

    def configure_optimizers(self) -> Any:
        """The optimiser of torch over slices of the stacked parameters; see `Slices`."""
        self.slices = Slices(self.network, self.members)
        optimizer = self.slices.optimizer
        schedules = [member.schedules for member in self.members]
        if any(schedules):
            dropouts = [m for m in self.network.modules() if isinstance(m, Dropout)]
            self.moving = optim.Scheduler(optimizer, schedules, self.slices.owners, dropouts, self._states)
        return building.scheduled(self.members[0], optimizer)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Hand each slice its part of the gradient."""
        self.slices.take_gradients()

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Drop the gradients of the stacked parameters."""
        self.network.zero_grad(set_to_none=True)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what plateau schedules have seen."""
        checkpoint["plateaus"] = self._states

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take up what plateau schedules have seen."""
        self._states.update(checkpoint["plateaus"])
        as_precise_as(self, checkpoint)


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
