"""The means, sampling errors and metrics of validation and test data, and the means of an epoch.

Shapes: ``R`` runs (a leading axis, in stacks only), ``N`` samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from actlab.errors import ActlabError
from actlab.optim import Scheduler
from actlab.random.hashing import seed_for
from actlab.random.seeding import own_generators
from actlab.random.streams import Stream
from actlab.tasks.batches import as_batch
from actlab.tasks.metrics import as_plain, log_table
from actlab.tasks.quantities import Means, Quantity
from actlab.tasks.sampling import (
    SHARES,
    SampleSums,
    error_of_derived,
    of_groups,
    sampling_error,
)

Batch = tuple[Tensor, ...]
# A mean and its sum of weights, by metric name.
Measured = dict[str, tuple[Tensor, Tensor | float]]


class Evaluation(pl.LightningModule, ABC):
    """The evaluation of a task or a stack, by Lightning's hooks.

    It is responsible for the means of an epoch over batches and devices, for their sampling
    errors, and for the metrics of torchmetrics. It makes no update: `Training` does.

    Attributes:
        matrices: by ``{split}/{name}``, the latest result of each metric that is not a number, such
            as a confusion matrix: one per member, as nested lists.
        sampling_errors: by ``{split}/{name}``, the standard error that the mean of the latest
            evaluation has from its samples: one number per member, not finite if unknown.
        sample_losses: by ``{split}/loss_by_sample``, the loss of each sample of the latest
            evaluation on one device: a list per member, if the task keeps them.
    """

    stream: Stream
    stacked = False  # whether values have a leading run axis
    moving: Scheduler | None

    def __init__(self) -> None:
        super().__init__()
        self._means = Means()
        self._samples = SampleSums()
        self.sampling_errors: dict[str, list[float]] = {}
        self.sample_losses: dict[str, list[list[float]]] = {}
        self.scored: dict[
            str, int
        ] = {}  # number of samples in the last error, by split
        self.matrices: dict[str, list[Any]] = {}

    @property
    @abstractmethod
    def members(self) -> Sequence[Any]:
        """The tasks being trained; the metrics of the first hold for all."""

    @abstractmethod
    def measured(
        self, batch: Batch, shared: bool, split: str | None = None
    ) -> dict[str, Quantity]:
        """Return the quantities of a batch in the current mode.

        Values are ``(R, B, *)`` in a stack. A batch has tensors ``(B, *)``, or ``(R, B, *)`` if the
        members of a stack do not share it.
        ``split`` is the evaluation whose metrics of torchmetrics it updates; None updates none.
        """

    def _record(self, measured: Measured) -> None:
        for name, (mean, weight) in measured.items():
            self._means.add(name, mean.detach(), weight)

    def validation_step(self, batch: Batch, *args: Any, **kwargs: Any) -> None:
        """Accumulate ``val/…``.

        The further arguments are the numbers of the batch and of its data loader.
        """
        self._evaluate("val", batch, *args, **kwargs)

    def test_step(self, batch: Batch, *args: Any, **kwargs: Any) -> None:
        """Accumulate ``test/…``; see `validation_step`."""
        self._evaluate("test", batch, *args, **kwargs)

    def _evaluate(
        self, split: str, batch: Batch, batch_idx: int = 0, dataloader_idx: int = 0
    ) -> None:
        # Metrics are named by split, not by loader
        if dataloader_idx:
            raise ActlabError(
                f"{split} data: expected one data loader, got several. Evaluate them one by one, "
                "or join their datasets with torch.utils.data.ConcatDataset."
            )

        # Measure the batch. A user's `measured` may accept no split.
        member = self.members[0]
        with own_generators(seed_for(self.stream.seeds[0], "evaluation")):
            if member.metrics:
                quantities = self.measured(batch, shared=True, split=split)
            else:
                quantities = self.measured(batch, shared=True)

        # Add up the values of each sample. Groups are numbered by sample, which devices
        # divide.
        groups = self._groups(split)
        has_errors = (
            member.independent if groups is None else self.trainer.world_size == 1
        )
        if has_errors and not member.sees_network:
            inputs = next(iter(as_batch(batch)), None)
            for name, quantity in quantities.items():
                if groups is not None or name not in SHARES:
                    self._samples.add(f"{split}/{name}", quantity, inputs, self.stacked)

        # Add the batch to the means of the epoch
        self._record(
            {
                f"{split}/{name}": self._mean(values)
                for name, values in quantities.items()
            }
        )

    def _groups(self, split: str) -> Tensor | None:
        """Return the group number of each sample, ``(N,)``, if samples of a group are alike."""
        datamodule = getattr(self._trainer, "datamodule", None)
        dataset = getattr(datamodule, split, None)
        return getattr(dataset, "groups", None)

    def _mean(self, quantity: Quantity) -> tuple[Tensor, Tensor | float]:
        return quantity.mean(self.stacked), quantity.weight(self.stacked)

    def on_validation_epoch_end(self) -> None:
        """Log ``val/…``."""
        self._log("val", self._evaluated("val"))

    def on_test_epoch_end(self) -> None:
        """Log ``test/…``."""
        self._log("test", self._evaluated("test"))

    def _evaluated(self, split: str) -> dict[str, Tensor]:
        """Return the metrics of an evaluation by logged name, and store their sampling errors."""
        member = self.members[0]

        # Average the metrics, and the quantities of which other metrics are functions.
        names = [name for name in member.metric_names if name not in member.derived]
        for metric in member.derived.values():
            names += metric.quantities
        distinct_names = list(dict.fromkeys(names))
        means = self._epoch_means(split, distinct_names)
        self._store_errors(split, means)

        # Compute the functions of means.
        mean_of = {name.removeprefix(f"{split}/"): mean for name, mean in means.items()}
        metrics = {}
        for name, value in member.reported(mean_of).items():
            metrics[f"{split}/{name}"] = value
        return metrics | self._epoch_metrics(split)

    def take_matrices(self) -> dict[str, list[Any]]:
        """Return the `matrices` since the last call."""
        matrices = self.matrices
        self.matrices = {}
        return matrices

    def _store_errors(self, split: str, means: Mapping[str, Tensor]) -> None:
        """Set `sampling_errors` and `sample_losses` of an evaluation, and forget its samples."""
        member = self.members[0]
        over_devices = partial(self.trainer.strategy.reduce, reduce_op="sum")

        # Sum over the values of each sample, or over the samples of each group.
        groups = self._groups(split)
        sums = {}
        for name, mean in means.items():
            sums[name] = self._samples.sums(name, mean)
            if groups is not None:
                sums[name] = of_groups(sums[name], groups)
        self._samples = SampleSums()

        # Compute the errors of means, and of functions of one mean.
        errors = {
            name: sampling_error(parts, over_devices) for name, parts in sums.items()
        }
        for name, metric in member.derived.items():
            arguments = [f"{split}/{argument}" for argument in metric.quantities]
            if len(arguments) == 1 and arguments[0] in means:
                mean = means[arguments[0]]
                error = errors[arguments[0]]
                errors[f"{split}/{name}"] = error_of_derived(metric, mean, error)
        for name, error in errors.items():
            self.sampling_errors[name] = error.view(-1).tolist()

        # Store the loss of each sample.
        loss = f"{split}/loss"
        if member.keeps_losses and loss in sums and self.trainer.world_size == 1:
            totals, weights = sums[loss]
            losses = (totals / weights).round(decimals=6)
            self.sample_losses[f"{loss}_by_sample"] = losses.view(
                len(self.members), -1
            ).tolist()

    def _epoch_means(self, split: str, names: Sequence[str]) -> dict[str, Tensor]:
        """Return the means over samples and devices since the last call, by ``{split}/{name}``."""
        # Add up sums and weights over devices, then divide
        over_devices: Any = partial(self.trainer.strategy.reduce, reduce_op="sum")
        means = {}
        for name in names:
            local_total, local_weight = self._means.take(f"{split}/{name}")
            total = torch.as_tensor(local_total, device=self.device)
            weight = torch.as_tensor(
                local_weight, dtype=total.dtype, device=self.device
            )

            # A reduction may be in place.
            total = over_devices(total.clone())
            weight = over_devices(weight.clone())
            if not weight.any():  # a subclass has a step of its own
                continue

            means[f"{split}/{name}"] = total / weight
            # The weight of the error counts its samples
            if name == "error" and split != "train":
                self.scored[split] = int(weight.max())
        return means

    def _epoch_metrics(self, split: str) -> dict[str, Tensor]:
        """Return the metrics of torchmetrics that are numbers; store the others as `matrices`."""
        if not self.members[0].metrics:
            return {}

        # Taking the results also resets the metrics
        member_results = [
            member.metrics.take(split, self.device) for member in self.members
        ]

        # Separate numbers from other results.
        numbers = {}
        tables = {}
        for name in member_results[0]:
            results = [by_name[name] for by_name in member_results]
            if isinstance(results[0], Tensor) and results[0].dim() == 0:
                values = torch.stack(results)
                numbers[f"{split}/{name}"] = values if self.stacked else values[0]
            else:
                tables[f"{split}/{name}"] = results

        # The sanity check has no results to store
        if not self.trainer.sanity_checking:
            self._store_matrices(
                {name: as_plain(results) for name, results in tables.items()}
            )
        return numbers

    def _store_matrices(self, matrices: Mapping[str, list[Any]]) -> None:
        """Add to `matrices`, and pass the matrices of a single task to its loggers."""
        self.matrices |= matrices
        if self.stacked or not self.trainer.is_global_zero:
            return
        for logger in self.trainer.loggers:
            for name, (matrix,) in matrices.items():
                log_table(logger, name, matrix, self.trainer.global_step)

    def _log(self, split: str, means: dict[str, Tensor]) -> None:
        if self.moving and not self.trainer.sanity_checking:
            self.moving.observe(means)

        # Without sync_dist Lightning warns, though all devices have one mean.
        several = self.trainer.world_size > 1
        self.log_dict(means, prog_bar=split != "test", sync_dist=several)
