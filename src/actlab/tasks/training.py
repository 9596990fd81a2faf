"""The Lightning hooks shared by single tasks and stacks: a single task is its own only member.

Shapes: ``B`` batch, ``R`` runs (a leading axis, in stacks only).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Self, cast

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from actlab import optim
from actlab.errors import ActlabError
from actlab.networks import Dropout
from actlab.random.positions import BatchBlock
from actlab.random.seeding import own_generators
from actlab.random.streams import global_seed
from actlab.runtime.modules import evaluating, unchanged, unfuse
from actlab.tasks import building, complete, loading, parameters, resuming
from actlab.tasks.batches import as_batch
from actlab.tasks.blocks import Blocks
from actlab.tasks.evaluation import Batch, Evaluation, Measured
from actlab.tasks.quantities import LEAST
from actlab.tasks.randomness import changeable
from actlab.tasks.restoring import as_precise_as

# Batches of validation on which metrics are tried, as by default in Lightning.
TRIED = 2
STEP_LOSS = "train/loss_step"  # of single batches


class Training(Evaluation):
    """A LightningModule that trains its members and logs the mean of each of their quantities.

    It is responsible for the order of an update (random numbers, loss, penalty, record), and for
    the state that a checkpoint needs in addition to Lightning's. `Evaluation` is responsible for
    the means of an epoch.

    It does not compute losses: members say their quantities, and subclasses implement `measured`.
    It does not build networks or optimisers either, and it makes several updates at once only
    through `Blocks`.

    Attributes:
        network: the network of all members.
        stream: their random numbers. Each step seeds Python's, NumPy's and torch's generators by
            its position, and restores them.
    """

    network: nn.Module
    tested_by_steps = True  # what `actlab.callbacks.TestEveryEpoch` needs

    def __init__(self, known_class: type) -> None:
        super().__init__()
        self.known_class = known_class  # whose hooks of updates a block calls

        # Schedules
        self.moving: optim.Scheduler | None = None
        self._plateau_states: dict[str, list[float]] = {}  # state of plateau schedules
        self._plateau: Any = None  # torch's scheduler that follows a metric

        # Blocks of updates, and checkpoints
        self._complete = complete.CompleteCheckpoint()
        self._blocks = Blocks()
        # What was logged in the epoch within which training resumes.
        self._logged: dict[str, Any] | None = None

    @abstractmethod
    def optimizer_of_all(self) -> tuple[Optimizer, Sequence[int]]:
        """Return the optimiser, and for each of its parameter groups the number of its member."""

    @abstractmethod
    def penalty(self) -> Tensor | float:
        """Return ½·decay·Σw² over the weights that ``l2`` decays, one number per member."""

    @abstractmethod
    def layers_of(self, r: int) -> list[nn.Module]:
        """Return the present activation modules of a member in the order of its network."""

    @property
    def _has_clean_pass(self) -> bool:
        """Whether the clean loss needs a pass, because training differs from evaluation."""
        if not self.members[0].clean_training_loss:
            return False
        return any(member.differs for member in self.members)

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode; encoder layers call their own activation in both.

        See `actlab.runtime.modules.unfuse`.
        """
        unfuse(self)
        return super().train(mode)

    def setup(self, stage: str) -> None:
        """Reject gradient accumulation over batches of different sizes, and let metrics be tried.

        Accumulated batches of different sizes would have the same weight. Lightning's sanity check
        updates and computes the metrics once before training. A training loader of torch will yield
        blocks; see `actlab.tasks.loading`.
        """
        task = self.members[0]
        accumulated = self.trainer.accumulate_grad_batches

        if stage == "fit":
            loading.serve(self.trainer)

        # A metric that rejects the outputs is an error before training, not after an
        # epoch.
        if task.metrics:
            self.trainer.num_sanity_val_steps = max(
                TRIED, self.trainer.num_sanity_val_steps
            )

        # Lightning averages accumulated batches without their sizes
        if task.ragged and accumulated > 1:
            raise ActlabError(
                f"trainer.accumulate_grad_batches: expected 1 for {type(task).__name__}, whose "
                f"batches differ in size, got {accumulated}. Set a larger data.batch_size instead."
            )

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Check the targets of a batch that leaves the CPU, where losses check them themselves."""
        if self.device.type == "cpu" or isinstance(batch, BatchBlock):
            return batch
        if not self.trainer.predicting:
            self.members[0].check_targets(as_batch(batch))
        return batch

    # Without this, Lightning takes the hook for the user's, and warns beside each
    # datamodule.
    on_before_batch_transfer.__wrapped__ = (  # type: ignore[attr-defined]
        pl.LightningModule.on_before_batch_transfer
    )

    def begin_blocks(self) -> Callable[[int], int] | None:
        """Return what says where a block of this epoch ends, or None; see `Blocks.begin`."""
        return self._blocks.begin(self)

    @property
    def single_updates(self) -> str:
        """Why updates are not made in blocks; empty where they are."""
        return self._blocks.reason or ""

    @property
    def not_replayed(self) -> str:
        """Why a GPU does not get the updates of a block as one program.

        Empty where it does, or on a CPU.
        """
        return self._blocks.not_replayed(self)

    @property
    def settled(self) -> bool:
        """Whether the next updates take a usual time; on a GPU the first ones take longer."""
        return self._blocks.is_settled(self)

    def training_step(self, batch: Batch | BatchBlock, batch_idx: int) -> Tensor:
        """Return the mean loss of the batch in training mode, summed over members.

        For a block, this is the loss of its last batch.
        """
        if isinstance(batch, BatchBlock):
            return self._blocks.train(self, batch, batch_idx)
        return self.loss_of_update(as_batch(batch), batch_idx)

    def loss_of_update(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the loss of the batch of an update, and record what is measured of it."""
        self.begin_update(batch, batch_idx)

        # Networks and losses may draw from the global generators without saying so.
        generators: AbstractContextManager[Any] = nullcontext()
        if not self._blocks.undrawn:
            generators = own_generators(global_seed(self.stream), self._blocks.drew)
        with generators:
            loss, measured = self.measured_update(batch)

        self.record_update(loss, measured, batch_idx)
        return loss

    def begin_update(self, batch: Batch, batch_idx: int) -> None:
        """Move the random numbers and the schedules to the update of a batch."""
        self.stream.steps = True
        # Random numbers depend on epoch, batch and device
        position = [self.current_epoch, batch_idx]
        rank = self.global_rank

        # The parts of a ragged batch differ in size between devices.
        part = None
        if self.members[0].ragged and self.trainer.world_size > 1:
            local_shape = torch.tensor(batch[0].shape, device=self.device)
            shapes = cast(Tensor, self.all_gather(local_shape)).tolist()
            sizes = [size for size, *_ in shapes]
            part = sum(sizes[:rank]), sizes[rank]
            # Differently padded parts cannot get the numbers of one device.
            if any(shape[1:] != shapes[0][1:] for shape in shapes):
                position.append(rank)

        self.stream.move(*position, slice_=rank, part=part)
        # Schedules follow epochs and updates
        if self.moving:
            self.moving.move(self.current_epoch, self.global_step)

    def measured_update(self, batch: Batch) -> tuple[Tensor, Measured]:
        """Return the loss of an update, and the means of its batch with their sums of weights."""
        # The clean pass evaluates the batch before the update
        measured: Measured = {}
        if self._has_clean_pass:
            measured["train/clean_loss"] = self._clean_loss(batch)

        # Measure the batch in training mode.
        quantities = self.measured(batch, shared=False)
        for name in self.members[0].trained:
            measured[f"train/{name}"] = self._mean(quantities[name])
        loss, weight = measured["train/loss"]
        if self.members[0].penalised:
            measured["train/penalised_loss"] = (loss + self.penalty(), weight)

        # Make it the loss that is differentiated.
        loss = self._scaled_for_devices(loss, weight)
        if self.stacked:
            loss = loss.sum()
        return loss, measured

    def _clean_loss(self, batch: Batch) -> tuple[Tensor, Tensor | float]:
        """Return the mean loss of a batch in evaluation mode; batch and network do not change."""
        # A network may change its inputs in place.
        copies = []
        for tensor in batch:
            copies.append(tensor.clone() if isinstance(tensor, Tensor) else tensor)

        # A stack that this pass changes would differ from its runs alone, and is not
        # trained.
        parts = (
            []
            if self.stacked
            else changeable(self.network, self.members[0].activations)
        )
        with evaluating(self, (nn.Module.train, Training.train)), unchanged(parts):
            quantities = self.measured(tuple(copies), shared=False)
            return self._mean(quantities["loss"])

    def logs_update(self, batch_idx: int) -> bool:
        """Return whether the loss of this update goes to the loggers.

        It does every ``log_every_n_steps`` updates. `log` would wait for the device at the other
        updates too, and make rows of a study.
        """
        trainer = self.trainer
        # Lightning sets it where mypy does not see it.
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if not every or (self.global_step + 1) % every:
            return False
        return (
            batch_idx + 1
        ) % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch

    def record_update(self, loss: Tensor, measured: Measured, batch_idx: int) -> None:
        """Record the loss of an update and what is measured of its batch."""
        self._blocks.updates += 1
        self._record(measured)

    def _scaled_for_devices(self, mean: Tensor, weight: Tensor | float) -> Tensor:
        """Scale a mean so that the average gradient over devices is the overall mean's gradient."""
        if isinstance(weight, float) or self.trainer.world_size == 1:
            return mean  # every device has an equal share of the batch
        total: Tensor = self.trainer.strategy.reduce(
            weight.detach().clone(), reduce_op="sum"
        )
        return mean * (weight * self.trainer.world_size / total.clamp_min(LEAST))

    def on_train_epoch_end(self) -> None:
        """Log the epoch's training metrics."""
        member = self.members[0]

        # Log the means of the epoch. Without a separate pass both losses are equal.
        names = list(member.trained)
        if member.penalised:
            names.append("penalised_loss")
        if self._has_clean_pass:
            names.append("clean_loss")
        means = self._epoch_means("train", names)
        if member.clean_training_loss and "train/loss" in means:
            means.setdefault("train/clean_loss", means["train/loss"])
        self._log("train", means)

        # Log the learnt parameters.
        learnt = parameters.metrics_of(self)
        self.log_dict(learnt, sync_dist=self.trainer.world_size > 1)

        # Step a scheduler that follows a metric. Lightning raises an error for a
        # missing metric.
        if not self.trainer.is_last_batch:
            return
        for config in self.trainer.lr_scheduler_configs:
            scheduler: Any = config.scheduler
            metrics = {**self.trainer.callback_metrics, **means}
            value = metrics.get(str(config.monitor))
            if scheduler is self._plateau and value is not None:
                scheduler.step(value)

    def configure_optimizers(self) -> Any:
        """Return the optimiser, with torch's scheduler if there is one."""
        optimizer, owners = self.optimizer_of_all()

        # Move settings by our schedules.
        schedules = [member.schedules for member in self.members]
        if any(schedules):
            dropouts = [
                module
                for module in self.network.modules()
                if isinstance(module, Dropout)
            ]
            total = partial(building.total, self)
            self.moving = optim.Scheduler(
                optimizer, schedules, owners, dropouts, self._plateau_states, total
            )

        # Remember torch's scheduler, which may follow a metric.
        configured = building.scheduled(self, optimizer)
        self._plateau = None
        if isinstance(configured, dict):
            self._plateau = configured["lr_scheduler"]["scheduler"]
        return configured

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Step a scheduler, unless `on_train_epoch_end` steps it because it follows a metric.

        Lightning would step it only after the epoch's checkpoint.
        """
        if metric is None or scheduler is not self._plateau:
            super().lr_scheduler_step(scheduler, metric)

    def on_fit_start(self) -> None:
        """Forget the programs of an earlier fit; note what a checkpoint must restore."""
        self._complete.on_fit_start(self.trainer, self)
        # A program reads the memory of the weights, which each fit moves.
        self._blocks = Blocks()

    def on_train_start(self) -> None:
        """Continue the epoch of the checkpoint or start the next one."""
        self._complete.on_train_start(self.trainer, self)

        if self._logged is None:
            # Otherwise the last epoch would continue if max_steps is set.
            self.trainer.fit_loop.epoch_loop.restarting = False
        else:
            # Callbacks may monitor them.
            self.trainer.callback_metrics.update(self._logged)
        self._logged = None

        building.fuse(self.trainer.optimizers, self.device)

    def on_train_end(self) -> None:
        """Say how fast the updates on an accelerator were."""
        self._blocks.tell(self)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the state of plateau schedules and of an unfinished epoch."""
        self._complete.on_save_checkpoint(self.trainer, self, checkpoint)
        checkpoint["plateaus"] = self._plateau_states

        # Lightning also saves arguments of a datamodule that did not ask for it.
        datamodule = getattr(self.trainer, "datamodule", None)
        if not building.saves_hyperparameters(datamodule):
            checkpoint.pop(pl.LightningDataModule.CHECKPOINT_HYPER_PARAMS_KEY, None)

        resuming.record(self.trainer, self._means, checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore plateau schedules and an unfinished epoch; prepare for double weights."""
        trainer = self._trainer
        if trainer is not None and trainer.state.fn == "fit":
            self._complete.on_load_checkpoint(trainer, self, checkpoint)
            self._logged = resuming.restore(trainer, self._means, checkpoint)

        self._plateau_states.update(checkpoint.get("plateaus", {}))
        if trainer is None or trainer.precision == "64-true":
            as_precise_as(self, checkpoint)
