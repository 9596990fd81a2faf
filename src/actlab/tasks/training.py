"""The Lightning hooks shared by single tasks and stacks: a single task has itself as its only member.

Shapes: ``B`` batch, ``R`` runs (a leading axis, in stacks only).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Self, cast

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from actlab import optim
from actlab.errors import ActlabError
from actlab.networks import Dropout
from actlab.random.hashing import seed_for
from actlab.random.positions import BatchBlock
from actlab.random.seeding import own_generators
from actlab.random.streams import Stream, global_seed
from actlab.runtime.modules import evaluating, unchanged, unfuse
from actlab.tasks import building, complete, loading, parameters, resuming
from actlab.tasks.batches import as_batch
from actlab.tasks.blocks import Blocks
from actlab.tasks.metrics import as_plain, log_table
from actlab.tasks.quantities import LEAST, Means, Quantity
from actlab.tasks.randomness import changeable
from actlab.tasks.restoring import as_precise_as
from actlab.tasks.sampling import SHARES, SampleSums, error_of_derived, of_groups, sampling_error

TRIED = 2  # batches of validation on which metrics are tried, as by default in Lightning
Batch = tuple[Tensor, ...]
STEP_LOSS = "train/loss_step"  # of single batches
Measured = dict[str, tuple[Tensor, Tensor | float]]  # a mean and its sum of weights, by metric name


class Training(pl.LightningModule, ABC):
    """A LightningModule that trains its members and logs the mean of each of their quantities once per epoch.

    Attributes:
        network: the network of all members.
        matrices: by ``{split}/{name}``, the latest result of each metric that is not a number, such
            as a confusion matrix: one per member, as nested lists.
        sampling_errors: by ``{split}/{name}``, the standard error that the mean of the latest
            evaluation has from its samples: one number per member, not finite if unknown.
        sample_losses: by ``{split}/loss_by_sample``, the loss of each sample of the latest
            evaluation on one device: a list per member, if the task keeps them.
        stream: their random numbers. Each step seeds Python's, NumPy's and torch's generators by
            its position, and restores them.
    """

    network: nn.Module
    stream: Stream
    tested_by_steps = True  # what `actlab.callbacks.TestEveryEpoch` needs
    stacked = False  # whether values have a leading run axis

    def __init__(self, known_class: type) -> None:
        super().__init__()
        self.known_class = known_class  # whose hooks of updates a block calls
        self.moving: optim.Scheduler | None = None
        self._plateau_states: dict[str, list[float]] = {}  # state of plateau schedules
        self._plateau: Any = None  # torch's scheduler that follows a metric
        self._means, self._samples = Means(), SampleSums()
        self.sampling_errors: dict[str, list[float]] = {}
        self.sample_losses: dict[str, list[list[float]]] = {}
        self.scored: dict[str, int] = {}  # number of samples in the last error, by split
        self.matrices: dict[str, list[Any]] = {}
        self._complete = complete.CompleteCheckpoint()
        self._blocks = Blocks()
        self._logged: dict[str, Any] | None = None  # in the epoch within which training resumes

    @property
    @abstractmethod
    def members(self) -> Sequence[Any]:
        """The tasks being trained; the metrics of the first hold for all."""

    @abstractmethod
    def measured(self, batch: Batch, shared: bool, split: str | None = None) -> dict[str, Quantity]:
        """Return the quantities of a batch in the current mode, with values ``(R, B, *)`` in a stack.

        A batch has tensors ``(B, *)``, or ``(R, B, *)`` if the members of a stack do not share it.
        ``split`` is the evaluation whose metrics of torchmetrics it updates; None updates none.
        """

    @abstractmethod
    def optimizer_of_all(self) -> tuple[Optimizer, Sequence[int]]:
        """Return the optimiser, and for each of its parameter groups the number of its member."""

    @abstractmethod
    def penalty(self) -> Tensor | float:
        """Return ½·decay·Σw² over the weights that ``l2`` decays, one number per member."""

    @abstractmethod
    def layers_of(self, r: int) -> list[nn.Module]:
        """Return the activation modules of a member in the order of its network, as they are now."""

    @property
    def _has_clean_pass(self) -> bool:  # because training differs from evaluation
        return self.members[0].clean_training_loss and any(
            member.differs for member in self.members
        )

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode, in which encoder layers call their own activation; see `unfuse`."""
        unfuse(self)
        return super().train(mode)

    def setup(self, stage: str) -> None:
        """Reject gradient accumulation over batches of different sizes; have metrics tried before training.

        Each batch would have the same weight. Lightning's sanity check updates and computes the
        metrics once. A training loader of torch will yield blocks; see `actlab.tasks.loading`.
        """
        task, number = self.members[0], self.trainer.accumulate_grad_batches
        if stage == "fit":
            loading.serve(self.trainer)
        if task.metrics:
            self.trainer.num_sanity_val_steps = max(TRIED, self.trainer.num_sanity_val_steps)
        if task.ragged and number > 1:
            raise ActlabError(
                f"trainer.accumulate_grad_batches {number}: the batches of {type(task).__name__} differ in "
                "size, but would have equal weight; give a larger data.batch_size"
            )

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Check the targets of a batch that leaves the CPU, where losses check them themselves."""
        if self.device.type != "cpu" and not (
            self.trainer.predicting or isinstance(batch, BatchBlock)
        ):
            self.members[0].check_targets(as_batch(batch))
        return batch

    # Else Lightning takes it for the user's, and warns beside each datamodule.
    on_before_batch_transfer.__wrapped__ = pl.LightningModule.on_before_batch_transfer  # type: ignore[attr-defined]

    def begin_blocks(self) -> Callable[[int], int] | None:
        """Return what says where a block of this epoch ends, or None; see `Blocks.begin`."""
        return self._blocks.begin(self)

    @property
    def single_updates(self) -> str:
        """Why updates are not made in blocks; empty where they are."""
        return self._blocks.reason or ""

    @property
    def not_replayed(self) -> str:
        """Why a GPU does not get the updates of a block as one program; empty where it does, or on a CPU."""
        return self._blocks.not_replayed(self)

    @property
    def settled(self) -> bool:
        """Whether the updates to come take a usual time; on a GPU the first ones take longer."""
        return self._blocks.is_settled(self)

    def training_step(self, batch: Batch | BatchBlock, batch_idx: int) -> Tensor:
        """Return the mean loss of the batch in training mode, summed over members; of a block, of its last."""
        if isinstance(batch, BatchBlock):
            return self._blocks.train(self, batch, batch_idx)
        return self.loss_of_update(as_batch(batch), batch_idx)

    def loss_of_update(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the loss of the batch of an update, and record what is measured of it."""
        self.begin_update(batch, batch_idx)
        # Networks and losses may draw without saying so.
        undrawn = self._blocks.undrawn
        with (
            nullcontext()
            if undrawn
            else own_generators(global_seed(self.stream), self._blocks.drew)
        ):
            loss, measured = self.measured_update(batch)
        self.record_update(loss, measured, batch_idx)
        return loss

    def begin_update(self, batch: Batch, batch_idx: int) -> None:
        """Move the random numbers and the schedules to the update of a batch."""
        self.stream.steps = True
        position, rank, part = [self.current_epoch, batch_idx], self.global_rank, None
        if self.members[0].ragged and self.trainer.world_size > 1:
            shape_here = torch.tensor(batch[0].shape, device=self.device)
            shapes = cast(Tensor, self.all_gather(shape_here)).tolist()  # of every device's part
            sizes = [size for size, *_ in shapes]
            part = sum(sizes[:rank]), sizes[rank]
            # Padded apart: no numbers of one device
            if any(shape[1:] != shapes[0][1:] for shape in shapes):
                position.append(rank)
        self.stream.move(*position, slice_=rank, part=part)
        if self.moving:
            self.moving.move(self.current_epoch, self.global_step)

    def measured_update(self, batch: Batch) -> tuple[Tensor, Measured]:
        """Return the loss of an update, and the means of its batch with their sums of weights."""
        measured: Measured = {}
        if self._has_clean_pass:
            # A network may change its inputs in place.
            given = tuple(part.clone() if isinstance(part, Tensor) else part for part in batch)
            # A stack that this pass changes would differ from its runs alone, and is not trained.
            parts = [] if self.stacked else changeable(self.network, self.members[0].activations)
            with evaluating(self, (nn.Module.train, Training.train)), unchanged(parts):
                measured["train/clean_loss"] = self._mean(
                    self.measured(given, shared=False)["loss"]
                )
        quantities = self.measured(batch, shared=False)
        measured |= {
            f"train/{name}": self._mean(quantities[name]) for name in self.members[0].trained
        }
        loss, weight = measured["train/loss"]
        if self.members[0].penalised:
            measured["train/penalised_loss"] = loss + self.penalty(), weight
        loss = self._scaled_for_devices(loss, weight)
        return loss.sum() if self.stacked else loss, measured

    def logs_update(self, batch_idx: int) -> bool:
        """Return whether the loss of this update goes to the loggers, every ``log_every_n_steps`` updates.

        `log` would wait for the device at the other updates too, and make rows of a study.
        """
        trainer = self.trainer
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # Lightning sets it elsewhere
        if not every or (self.global_step + 1) % every:
            return False
        return (batch_idx + 1) % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch

    def record_update(self, loss: Tensor, measured: Measured, batch_idx: int) -> None:
        """Record the loss of an update and what is measured of its batch."""
        self._blocks.updates += 1
        self._record(measured)

    def _record(self, measured: Measured) -> None:
        for name, (mean, weight) in measured.items():
            self._means.add(name, mean.detach(), weight)

    def _scaled_for_devices(self, mean: Tensor, weight: Tensor | float) -> Tensor:
        """Scale the mean so that averaging gradients over devices gives the gradient of the overall mean."""
        if isinstance(weight, float) or self.trainer.world_size == 1:
            return mean  # every device has an equal share of the batch
        everywhere: Tensor = self.trainer.strategy.reduce(weight.detach().clone(), reduce_op="sum")
        return mean * (weight * self.trainer.world_size / everywhere.clamp_min(LEAST))

    def validation_step(self, batch: Batch, *args: Any, **kwargs: Any) -> None:
        """Accumulate ``val/…``; the further arguments are the numbers of the batch and of its data loader."""
        self._evaluate("val", batch, *args, **kwargs)

    def test_step(self, batch: Batch, *args: Any, **kwargs: Any) -> None:
        """Accumulate ``test/…``; see `validation_step`."""
        self._evaluate("test", batch, *args, **kwargs)

    def _evaluate(
        self, split: str, batch: Batch, batch_idx: int = 0, dataloader_idx: int = 0
    ) -> None:
        if dataloader_idx:
            raise ActlabError(
                f"several data loaders of {split} data: their means have one name. Evaluate them one by one, "
                "or as one dataset, torch.utils.data.ConcatDataset"
            )
        first = self.members[0]
        with own_generators(seed_for(self.stream.seeds[0], "evaluation")):
            updated = {"split": split} if first.metrics else {}
            quantities = self.measured(batch, shared=True, **updated)
        groups = self._groups(split)
        if not first.sees_network and (
            first.independent if groups is None else self.trainer.world_size == 1
        ):
            inputs = next(iter(as_batch(batch)), None)
            for name in quantities.keys() - (SHARES if groups is None else set()):
                self._samples.add(f"{split}/{name}", quantities[name], inputs, self.stacked)
        self._record(
            {f"{split}/{name}": self._mean(quantity) for name, quantity in quantities.items()}
        )

    def _groups(self, split: str) -> Tensor | None:
        """Return the group's number of each sample of a split, ``(N,)``, if samples of a group are alike."""
        data = getattr(self._trainer, "datamodule", None)
        return getattr(getattr(data, split, None), "groups", None)

    def _mean(self, quantity: Quantity) -> tuple[Tensor, Tensor | float]:
        return quantity.mean(self.stacked), quantity.weight(self.stacked)

    def on_train_epoch_end(self) -> None:
        """Log the epoch's training metrics."""
        first = self.members[0]
        optional = {"penalised_loss": first.penalised, "clean_loss": self._has_clean_pass}
        names = [*first.trained, *(name for name, is_logged in optional.items() if is_logged)]
        collected = self._epoch_means("train", names)
        # Without a separate pass both are equal
        if first.clean_training_loss and "train/loss" in collected:
            collected.setdefault("train/clean_loss", collected["train/loss"])
        self._log("train", collected)
        self.log_dict(parameters.metrics_of(self), sync_dist=self.trainer.world_size > 1)
        for config in self.trainer.lr_scheduler_configs if self.trainer.is_last_batch else ():
            value = {**self.trainer.callback_metrics, **collected}.get(str(config.monitor))
            scheduler: Any = config.scheduler
            if scheduler is self._plateau and value is not None:  # else Lightning raises an error
                scheduler.step(value)

    def on_validation_epoch_end(self) -> None:
        """Log ``val/…``."""
        self._log("val", self._evaluated("val"))

    def on_test_epoch_end(self) -> None:
        """Log ``test/…``."""
        self._log("test", self._evaluated("test"))

    def _evaluated(self, split: str) -> dict[str, Tensor]:
        first = self.members[0]
        made_of = [name for quantity in first.derived.values() for name in quantity.of]
        names = [name for name in first.metric_names if name not in first.derived]
        means = self._epoch_means(split, list(dict.fromkeys([*names, *made_of])))
        self._keep_errors(split, means)
        values = first.reported(
            {name.removeprefix(f"{split}/"): mean for name, mean in means.items()}
        )
        return {f"{split}/{name}": value for name, value in values.items()} | self._epoch_metrics(
            split
        )

    def take_matrices(self) -> dict[str, list[Any]]:
        """Return the `matrices` since the last call."""
        matrices = self.matrices
        self.matrices = {}
        return matrices

    def _keep_errors(self, split: str, means: Mapping[str, Tensor]) -> None:
        """Set the `sampling_errors` and `sample_losses` of an evaluation, and forget its samples."""
        first, everywhere = self.members[0], partial(self.trainer.strategy.reduce, reduce_op="sum")
        sums = {name: self._samples.of(name, mean) for name, mean in means.items()}
        self._samples = SampleSums()
        if (groups := self._groups(split)) is not None:
            sums = {name: of_groups(of, groups) for name, of in sums.items()}
        errors = {name: sampling_error(of, everywhere) for name, of in sums.items()}
        for name, metric in first.derived.items():
            if len(metric.of) == 1 and (of := f"{split}/{metric.of[0]}") in means:
                errors[f"{split}/{name}"] = error_of_derived(metric, means[of], errors[of])
        self.sampling_errors |= {name: error.view(-1).tolist() for name, error in errors.items()}
        if (
            first.keeps_losses
            and (loss := f"{split}/loss") in sums
            and self.trainer.world_size == 1
        ):
            totals, weights = sums[loss]
            losses = (totals / weights).round(decimals=6)
            self.sample_losses[f"{loss}_by_sample"] = losses.view(len(self.members), -1).tolist()

    def _epoch_means(self, split: str, names: Sequence[str]) -> dict[str, Tensor]:
        """Return the means over all samples and devices since the last call, by ``{split}/{name}``."""
        means = {}
        for name in (f"{split}/{name}" for name in names):
            of_device, weight = self._means.take(name)
            total = torch.as_tensor(of_device, device=self.device)
            sums = total, torch.as_tensor(weight, dtype=total.dtype, device=self.device)
            everywhere: Any = [
                self.trainer.strategy.reduce(x.clone(), reduce_op="sum") for x in sums
            ]
            if not everywhere[1].any():  # a subclass has a step of its own
                continue
            means[name] = everywhere[0] / everywhere[1]
            if name == f"{split}/error" and split != "train":
                self.scored[split] = int(everywhere[1].max())
        return means

    def _epoch_metrics(self, split: str) -> dict[str, Tensor]:
        if not self.members[0].metrics:
            return {}
        of_members = [member.metrics.take(split, self.device) for member in self.members]
        results = {
            f"{split}/{name}": [of_run[name] for of_run in of_members] for name in of_members[0]
        }
        numbers = {
            name: torch.stack(of_runs)
            for name, of_runs in results.items()
            if isinstance(of_runs[0], Tensor) and of_runs[0].dim() == 0
        }
        if not self.trainer.sanity_checking:
            others = {
                name: as_plain(of_runs) for name, of_runs in results.items() if name not in numbers
            }
            self.matrices |= others
            for logger in (
                self.trainer.loggers if self.trainer.is_global_zero and not self.stacked else ()
            ):
                for name, (values,) in others.items():
                    log_table(logger, name, values, self.trainer.global_step)
        return {name: values if self.stacked else values[0] for name, values in numbers.items()}

    def _log(self, split: str, collected: dict[str, Tensor]) -> None:
        if self.moving and not self.trainer.sanity_checking:
            self.moving.observe(collected)
        # Lightning warns otherwise, though all devices have one mean
        several = self.trainer.world_size > 1
        self.log_dict(collected, prog_bar=split != "test", sync_dist=several)

    def configure_optimizers(self) -> Any:
        """Return the optimiser, with torch's scheduler if there is one."""
        optimizer, owners = self.optimizer_of_all()
        schedules = [member.schedules for member in self.members]
        if any(schedules):
            dropouts = [module for module in self.network.modules() if isinstance(module, Dropout)]
            total = partial(building.total, self)
            self.moving = optim.Scheduler(
                optimizer, schedules, owners, dropouts, self._plateau_states, total
            )
        configured = building.scheduled(self, optimizer)
        self._plateau = (
            configured["lr_scheduler"]["scheduler"] if isinstance(configured, dict) else None
        )
        return configured

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Step a scheduler unless it follows a metric: Lightning would step it after the epoch's checkpoint."""
        if metric is None or scheduler is not self._plateau:
            super().lr_scheduler_step(scheduler, metric)

    def on_fit_start(self) -> None:
        """Forget the programs of an earlier fit; note what a checkpoint must restore."""
        self._complete.on_fit_start(self.trainer, self)
        self._blocks = Blocks()  # a program reads the memory of the weights, which each fit moves

    def on_train_start(self) -> None:
        """Continue the epoch of the checkpoint or start the next one."""
        self._complete.on_train_start(self.trainer, self)
        if self._logged is None:
            self.trainer.fit_loop.epoch_loop.restarting = (
                False  # else, with max_steps, the last one continues
            )
        else:
            self.trainer.callback_metrics.update(self._logged)  # callbacks may monitor them
        self._logged = None
        building.fuse(self.trainer.optimizers, self.device)

    def on_train_end(self) -> None:
        """Say how fast the updates on an accelerator were."""
        self._blocks.tell(self)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the state of plateau schedules and of an unfinished epoch."""
        self._complete.on_save_checkpoint(self.trainer, self, checkpoint)
        checkpoint["plateaus"] = self._plateau_states
        if not building.saves_hyperparameters(getattr(self.trainer, "datamodule", None)):
            checkpoint.pop(pl.LightningDataModule.CHECKPOINT_HYPER_PARAMS_KEY, None)
        resuming.record(self.trainer, self._means, checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the state of plateau schedules and of an unfinished epoch; prepare for double weights."""
        trainer = self._trainer
        if trainer is not None and trainer.state.fn == "fit":
            self._complete.on_load_checkpoint(trainer, self, checkpoint)
            self._logged = resuming.restore(trainer, self._means, checkpoint)
        self._plateau_states.update(checkpoint.get("plateaus", {}))
        if trainer is None or trainer.precision == "64-true":
            as_precise_as(self, checkpoint)
