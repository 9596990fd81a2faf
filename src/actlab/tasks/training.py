"""Training of one member or several: what Lightning calls, written once.

A task alone is the only member of its training; `actlab.stacking.StackedTask` has R of them.

Shapes: ``B`` batch, ``R`` runs (a leading axis in a stack alone).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
from torch import Tensor, nn
from torch.optim import Optimizer

from actlab import optim
from actlab.networks import Dropout
from actlab.random.seeding import own_generators
from actlab.random.streams import Stream
from actlab.runtime.modules import Lending, evaluating
from actlab.storage.checkpoints import check_whole_epochs
from actlab.tasks import building
from actlab.tasks.quantities import LEAST, Means, Quantity, WeightedMean
from actlab.tasks.restoring import as_precise_as

if TYPE_CHECKING:
    from actlab.tasks.base import Task

Batch = tuple[Tensor, ...]


class Training(pl.LightningModule, ABC):
    """A LightningModule that trains its members and logs the mean of each of their quantities once per epoch.

    Attributes:
        network: of all members.
        stream: of their random numbers.
        random: whether units draw from Python's, NumPy's or torch's own generators.
    """

    network: nn.Module
    stream: Stream
    random = False

    def __init__(self) -> None:
        super().__init__()
        self.moving: optim.Scheduler | None = None
        self._states: dict[str, list[float]] = {}  # what plateau schedules have seen
        self._means, self._lend = Means(), Lending()

    @property
    @abstractmethod
    def members(self) -> Sequence[Task]:
        """The tasks that are trained; what the first one says of metrics holds for all."""

    @abstractmethod
    def measured(self, batch: Batch, shared: bool) -> dict[str, Quantity]:
        """What a batch says in the present mode: of a stack with values ``(R, B, *)``.

        Args:
            batch: tensors ``(B, *)``; ``(R, B, *)`` where each member of a stack has its own.
            shared: whether the members of a stack share the batch.
        """

    @abstractmethod
    def optimizer_of_all(self) -> tuple[Optimizer, Sequence[int]]:
        """The optimiser, and of each of its groups the number of the member that it belongs to."""

    @abstractmethod
    def penalty(self) -> Tensor | float:
        """Half the squared weights that ``l2`` decays, times its strength: one number a member."""

    @property
    def stacked(self) -> bool:
        """Whether values lead with an axis of runs."""
        return False

    @property
    def _clean_apart(self) -> bool:
        """Whether the clean loss needs a forward pass of its own: training differs from evaluation."""
        return self.members[0].clean_training_loss and any(member.differs for member in self.members)

    def setup(self, stage: str) -> None:
        """Check that gradients can be accumulated as the Trainer is told to."""
        building.check_accumulation(self.trainer, self.members[0])

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Mean loss of the batch, in training mode: the sum over members, whose gradients are their own."""
        self._move(batch_idx)
        if self.moving:
            self.moving.move(self.current_epoch, self.global_step)
        with own_generators(self.stream.unit_seed()) if self.random else nullcontext():
            if self._clean_apart:
                with evaluating(self):
                    clean = self._lend(partial(self.measured, shared=False), batch)["loss"]
                self._add("train/clean_loss", clean)
            found = self.measured(batch, shared=False)
        means = {name: self._add(f"train/{name}", found[name]) for name in self.members[0].trained}
        loss, weight = means["loss"]
        if self.members[0].l2 is not None:
            self._means.add("train/penalised_loss", (loss + self.penalty()).detach(), weight)
        return self._over_devices(loss, weight).sum()

    def _move(self, batch_idx: int) -> None:
        """Go to the place of a batch in the random numbers; each device to its own part of the batch."""
        self.stream.steps = True
        if self.members[0].ragged and self.trainer.world_size > 1:  # where its part begins is not known here
            self.stream.move(self.current_epoch, batch_idx, self.global_rank)
        else:
            self.stream.move(self.current_epoch, batch_idx, slice_=self.global_rank)

    def _over_devices(self, mean: Tensor, weight: Tensor | float) -> Tensor:
        """The mean so scaled that the devices' average of gradients is that of the mean over all devices."""
        if isinstance(weight, float) or self.trainer.world_size == 1:
            return mean  # every device has an equal share of the batch
        everywhere: Tensor = self.trainer.strategy.reduce(weight.detach().clone(), reduce_op="sum")
        return mean * (weight * self.trainer.world_size / everywhere.clamp_min(LEAST))

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add up ``val/…``."""
        self._evaluate("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Add up ``test/…``."""
        self._evaluate("test", batch)

    def _evaluate(self, split: str, batch: Batch) -> None:
        for name, quantity in self.measured(batch, shared=True).items():
            self._add(f"{split}/{name}", quantity)

    def _add(self, name: str, quantity: Quantity) -> tuple[Tensor, Tensor | float]:
        """Add a quantity of a batch to the means of its name; its own mean and weight."""
        mean, weight = quantity.mean(self.stacked), quantity.weight(self.stacked)
        self._means.add(name, mean.detach(), weight)
        return mean, weight

    def on_train_epoch_end(self) -> None:
        """Log the epoch's training metrics."""
        first = self.members[0]
        names = [*first.trained, *["penalised_loss"] * (first.l2 is not None)]
        collected = self._collected("train", [*names, *["clean_loss"] * self._clean_apart])
        if first.clean_training_loss:  # where training is evaluation both losses are the same number
            collected.setdefault("train/clean_loss", collected["train/loss"])
        self._log("train", collected)

    def on_validation_epoch_end(self) -> None:
        """Log ``val/…``."""
        self._log("val", self._collected("val", self.members[0].metric_names))

    def on_test_epoch_end(self) -> None:
        """Log ``test/…``."""
        self._log("test", self._collected("test", self.members[0].metric_names))

    def _collected(self, split: str, names: Sequence[str]) -> dict[str, Tensor]:
        """Means over all samples and devices since the last call, as ``{split}/{name}``."""
        return {f"{split}/{name}": self._over_all(f"{split}/{name}") for name in names}

    def _over_all(self, name: str) -> Tensor:
        mean = WeightedMean().to(self.device)
        mean.update(*self._means.take(name))
        found: Tensor = mean.compute()  # torchmetrics makes a number of one run's
        return found.reshape(-1) if self.stacked else found

    def _log(self, split: str, collected: dict[str, Tensor]) -> None:
        if self.moving and not self.trainer.sanity_checking:
            self.moving.observe(collected)
        self.log_dict(collected, prog_bar=split != "test")

    def configure_optimizers(self) -> Any:
        """The optimiser, with torch's schedule if there is one."""
        optimizer, owners = self.optimizer_of_all()
        schedules = [member.schedules for member in self.members]
        if any(schedules):
            dropouts = [module for module in self.network.modules() if isinstance(module, Dropout)]
            self.moving = optim.Scheduler(optimizer, schedules, owners, dropouts, self._states)
        return building.scheduled(self.members[0], optimizer)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what plateau schedules have seen."""
        checkpoint["plateaus"] = self._states

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take up what `on_save_checkpoint` has kept.

        Raises:
            ActlabError: for a checkpoint from within an epoch, where training would resume from it.
        """
        if self._trainer is not None and self._trainer.state.fn == "fit":
            check_whole_epochs(checkpoint)
        self._states.update(checkpoint.get("plateaus", {}))
        as_precise_as(self, checkpoint)
