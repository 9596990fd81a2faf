"""Stacks: R runs of one network trained as one program; parameters carry a leading run axis.

The layers are explicit batched ones: a linear layer is one ``baddbmm``, a unit that acts elementwise is
applied once to all members, any other unit is called member by member. ``vmap`` over ``functional_call``
takes 1.2 times as long on two cores (``benchmarks/stacks.py``, figure ``func_vs_explicit``), and cannot map
a unit that changes its buffers. A member has the initial weights, data order and random masks that it would
have alone, so its numbers are those of a run of its own up to the order of floating-point sums.

Shapes: ``R`` runs, ``B`` batch, ``D`` features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import LRSchedulerCallable
from torch import Tensor, nn
from torch.optim import Optimizer

from actlab.errors import ActlabError
from actlab.stacking.layers import StackedNetwork, can_stack, draws_only_uniform
from actlab.stacking.slices import Slices
from actlab.streams import Stream
from actlab.tasks import Batch, Task


class StackedTask(pl.LightningModule):
    """R tasks that differ in seed, dropout or optimiser settings, trained as one.

    The loss is the sum over members of each one's batch mean: a member's gradient is what it is alone.
    Metrics are vectors over members; `latest` holds those of the epoch, as ``{split}/{name}`` → ``(R,)``.

    Args:
        members: one task a run, fresh, with networks of the same layers.

    Raises:
        ActlabError: when the members' networks cannot be stacked.
    """

    def __init__(self, members: Sequence[Task]) -> None:
        super().__init__()
        networks = [m.network for m in members]
        if not all(can_stack(n) for n in networks):
            raise ActlabError(
                f"{type(networks[0]).__name__} is no sequence of linear layers and cannot be stacked"
            )
        self.members: Sequence[Task]
        self.__dict__["members"] = list(members)  # not submodules: their parameters live in the stack
        self.stream = Stream([m.seed for m in members])
        self.stream.reserve(members[0].stream.sites)
        self.network = StackedNetwork([n for n in networks if isinstance(n, nn.Sequential)], self.stream)
        self.template: Task
        self.__dict__["template"] = members[0]
        self.foreign = [m.stream for m in members if not draws_only_uniform(m.network)]
        self.latest: dict[str, Tensor] = {}
        self._sums: dict[str, tuple[Tensor, int]] = {}

    def _quantities(self, batch: Batch, shared: bool) -> dict[str, Tensor]:
        self.template.train(self.training)
        return self.template.quantities(self.network(batch[0], shared), batch)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Sum of the members' batch means; inputs ``(R, B, *)``, labels ``(R, B)``."""
        for stream in (self.stream, *self.foreign):
            stream.move(self.current_epoch, batch_idx)
        if self.template.clean_training_loss and self.template.random:
            self._add("train/clean_loss", self._clean_loss(batch))
        losses = self._quantities(batch, shared=False)["loss"].mean(-1)
        self._add("train/loss", losses.detach())
        return losses.sum()

    @torch.no_grad()
    def _clean_loss(self, batch: Batch) -> Tensor:
        self.network.eval()
        losses = self._quantities(batch, shared=False)["loss"].mean(-1)
        self.network.train()
        return losses

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add up ``val/…``; inputs ``(B, *)`` are shared by all members."""
        self._evaluate("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Add up ``test/…``."""
        self._evaluate("test", batch)

    def _evaluate(self, split: str, batch: Batch) -> None:
        for name, values in self._quantities(batch, shared=True).items():
            self._add(f"{split}/{name}", values.sum(-1), len(batch[0]))

    def _add(self, name: str, values: Tensor, count: int = 1) -> None:
        total, number = self._sums.get(name, (0.0, 0))
        self._sums[name] = (total + values, number + count)

    def _collect(self, split: str) -> None:
        for name in [n for n in self._sums if n.startswith(f"{split}/")]:
            total, number = self._sums.pop(name)
            self.latest[name] = total / number
        if split == "train" and self.template.clean_training_loss and not self.template.random:
            self.latest["train/clean_loss"] = self.latest["train/loss"]

    def on_train_epoch_end(self) -> None:
        """Take the epoch's training metrics."""
        self._collect("train")

    def on_validation_epoch_end(self) -> None:
        """Take ``val/…``."""
        self._collect("val")

    def on_test_epoch_end(self) -> None:
        """Take ``test/…``."""
        self._collect("test")

    def configure_optimizers(self) -> Any:
        """The optimiser of torch over slices of the stacked parameters; see `Slices`."""
        self.slices = Slices(self.network, [m.optimizer for m in self.members])
        optimizer = self.slices.optimizer
        scheduler: LRSchedulerCallable | None = self.template.scheduler
        if scheduler is None:
            return optimizer
        schedule = {"scheduler": scheduler(optimizer), "interval": self.template.scheduler_interval}
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Hand each slice its part of the gradient."""
        self.slices.take_gradients()

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Drop the gradients of the stacked parameters."""
        self.network.zero_grad(set_to_none=True)
