"""Training batches of torch's `DataLoader` in blocks of updates (`actlab.tasks.blocks`).

Lightning hands each data loader to the strategy of its Trainer, which may replace it. For a task on
one device, the strategy replaces the loader of training data by a copy that yields blocks. The copy
has the samples, workers and pinned memory of the loader. A batch is loaded after the update before
it, as in Lightning's loop.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.plugins.precision import MixedPrecision, Precision
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from actlab.random.positions import BatchBlock
from actlab.tasks.blocks import outside_autocast

# Their lengths are exact, and they do not look at the training.
_SAMPLERS = (
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
# Others change torch's default type around a training step, within which a block is
# loaded.
_PRECISIONS = (Precision, MixedPrecision)


class LoadedBlock(BatchBlock):
    """The next batches of a data loader, which may draw from the global generators."""

    by_position = False

    def __init__(self, batches: Iterator[Any], size: int, trainer: pl.Trainer) -> None:
        self.batches = batches
        self.size = size
        self.trainer = trainer

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Any]:
        """Load and yield one batch after the other."""
        for _ in range(self.size):
            with outside_autocast(self.trainer):
                batch = next(self.batches)
            yield batch


class LoaderInBlocks(DataLoader[Any]):
    """A data loader that yields blocks, or batches if its Trainer makes each update alone."""

    _trainer: pl.Trainer

    def __iter__(self) -> Any:
        # It draws seeds now, as torch's iterator does.
        return self._in_blocks(super().__iter__())

    def _in_blocks(self, batches: Iterator[Any]) -> Iterator[Any]:
        trainer = self._trainer
        # Another module may follow a task in its Trainer.
        begin = getattr(trainer.lightning_module, "begin_blocks", None)
        is_only_loader = trainer.train_dataloader is self
        end = None
        if begin and is_only_loader and type(trainer.precision_plugin) in _PRECISIONS:
            end = begin()
        if end is None:
            yield from batches
            return

        # Above 0 after a resume within an epoch
        number = trainer.fit_loop.epoch_loop.batch_progress.current.ready
        while number < trainer.num_training_batches:
            size = end(number) - number
            yield LoadedBlock(batches, size, trainer)
            number += size


def serve(trainer: pl.Trainer) -> None:
    """Have the strategy of a Trainer on one device replace torch's loaders of training data."""

    def process(loader: Any) -> Any:
        # A subclass may do more than load batches in order
        if not (trainer.training and type(loader) is DataLoader):
            return loader
        # A user's sampler may look at what training has done so far
        if (
            type(loader.batch_sampler) is not BatchSampler
            or type(loader.sampler) not in _SAMPLERS
        ):
            return loader
        # A copy of another class: torch's constructor would check and build all parts
        # again
        in_blocks = copy.copy(loader)
        in_blocks.__class__ = LoaderInBlocks
        in_blocks._trainer = trainer
        return in_blocks

    # Such a strategy returns each loader as it is.
    if type(trainer.strategy) is SingleDeviceStrategy:
        trainer.strategy.process_dataloader = process  # type: ignore[method-assign, assignment]
