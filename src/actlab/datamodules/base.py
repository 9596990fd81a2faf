"""Datasets in memory and the base class of all datamodules.

A dataset gets a `Position` per batch: run seeds, epoch and sample indices. Random numbers that a
transform draws by this position are the same for a sample alone, in a stack, on any number of
devices and after a resume.

Shapes: ``B`` batch, ``R`` runs of a stack, ``N`` samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Self

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, SequentialSampler
from typing_extensions import TypedDict

from actlab.config.plain_values import of_call
from actlab.datamodules.samplers import BatchesInOrder, SeededBatches
from actlab.errors import ActlabError
from actlab.random.defaults import seed_or_default
from actlab.random.positions import BatchBlock, Position
from actlab.storage.files import DamagedError
from actlab.storage.json_files import checked
from actlab.storage.resources import resource
from actlab.validation import Count, validated

Batch = tuple[Tensor, ...]
# Runs on whole batches on the device of the dataset: tensors (B, …), or (R, B, …) in a
# stack.
Transform = Callable[[Batch, Position], Batch]
# Returns the function from the number of a batch to the end of its block, see
# `SlicedLoader`.
BeginBlocks = Callable[[], Callable[[int], int] | None]


class Samples(Dataset[Batch]):
    """A dataset that returns a whole batch for a `Position`, and also single samples.

    It is responsible for the values of samples. It does not order them: a batch sampler does that,
    and a `DataLoader` joins the two.

    A subclass defines ``__len__``, `device` and `batch`. Single samples are augmented as in epoch 0
    of ``seed``, which the datamodule sets to its own.

    Attributes:
        seed: of the augmentation of single samples.
        drawn: whether the position draws new samples in each epoch, so that shuffling is needless.
        device: where the dataset was loaded; the datamodule loads again for another device.
        groups: ``(N,)``, the number of the group of each sample, for example its sentence.
        file_names: the paths of samples that are files.
    """

    seed = 0
    drawn = False
    device: torch.device
    groups: Tensor | None = None
    file_names: Sequence[str] | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, position: Position) -> Batch:
        """Return the batch ``position.index``: tensors ``(B, …)``, or ``(R, B, …)`` in a stack."""

    def __getitem__(self, index: int) -> Batch:
        # Also counts negative indices from the end
        row = range(len(self))[index]  # IndexError beyond the samples
        samples: list[Batch] = self.__getitems__([row])
        return samples[0]

    def __getitems__(self, position: Position | Sequence[int]) -> Any:
        if isinstance(position, Position):
            return self.batch(position)

        batch = self.batch(self.position_of(position))
        return list(zip(*batch, strict=True))

    def position_of(self, index: Sequence[int]) -> Position:
        """Return the position of samples in epoch 0 of this dataset's seed."""
        return Position((self.seed,), 0, torch.as_tensor(index))


class TensorDataset(Samples):
    """A dataset of tensors in memory that gathers a whole batch at once, for an index of any shape.

    Each tensor is ``(N, …)``. Each batch is a copy, so the transform may modify it in place; the
    index of the position that it receives is on the device of the tensors.
    """

    def __init__(self, *tensors: Tensor, transform: Transform | None = None) -> None:
        lengths = [len(tensor) for tensor in tensors]
        if len(set(lengths)) != 1:
            raise ActlabError(
                f"dataset: expected tensors of equal length, got lengths {lengths}"
            )

        self.tensors = tensors
        self.device = tensors[0].device
        self.transform = transform

    def __len__(self) -> int:
        return len(self.tensors[0])

    def batch(self, position: Position) -> Batch:
        """Return the batch ``position.index``: tensors ``(B, …)``, or ``(R, B, …)`` in a stack."""
        index = position.index.to(self.device)
        rows = index.flatten()

        # Gather the rows of each tensor.
        gathered = []
        for tensor in self.tensors:
            values = tensor.index_select(0, rows)
            gathered.append(values.view(*index.shape, *tensor.shape[1:]))

        batch = tuple(gathered)
        if self.transform is None:
            return batch
        return self.transform(batch, position._replace(index=index))


class _DrawnAhead(NamedTuple):
    """The samples of some seeds and an epoch from index ``start`` to ``end`` (excluded)."""

    seeds: tuple[int, ...]
    epoch: int
    start: int
    end: int
    batch: Batch


class Draws(Samples):
    """Endless training data: each epoch has ``updates`` new batches of ``batch_size`` samples.

    ``draw`` draws the samples of a position, ``(B, …)``, or ``(R, B, …)`` in a stack, by
    `uniform_at` or `integers_at`: runs of one seed get the same samples, whatever they train.
    """

    drawn = True
    ahead = 16  # batches that are drawn at once, because drawing costs as much for one

    def __init__(
        self,
        draw: Callable[[Position], Batch],
        updates: int,
        batch_size: int,
        device: torch.device,
    ) -> None:
        self.draw = draw
        self.size = updates * batch_size
        self.device = device
        self._ahead: _DrawnAhead | None = None

    def __len__(self) -> int:
        return self.size

    def batch(self, position: Position) -> Batch:
        """Return the samples of a position. One draw covers several adjoining batches."""
        # If in order, the samples are one range
        seeds, epoch, index = position
        number = index.shape[-1]
        start = int(index.flatten()[0])
        end = start + number

        # Draw samples in another order by themselves.
        in_order = torch.arange(start, end).expand_as(index)
        if not index.equal(in_order):
            return self.draw(position._replace(index=index.to(self.device)))

        # Draw ahead, unless the samples have been drawn.
        ahead = self._ahead
        if (
            ahead is None
            or (ahead.seeds, ahead.epoch) != (seeds, epoch)
            or start < ahead.start
            or ahead.end < end
        ):
            # Not beyond the epoch, whose end a batch may exceed.
            ahead_end = min(start + self.ahead * number, max(self.size, end))
            indices = torch.arange(start, ahead_end, device=self.device)
            indices = indices.expand(*index.shape[:-1], -1)
            batch = self.draw(Position(seeds, epoch, indices))
            ahead = self._ahead = _DrawnAhead(seeds, epoch, start, ahead_end, batch)

        # Cut out the samples of this position.
        axis = index.dim() - 1
        parts = [
            tensor.narrow(axis, start - ahead.start, number) for tensor in ahead.batch
        ]
        return tuple(part.clone() for part in parts)


class _LoaderState(TypedDict):
    epoch: int
    batches: int


class SlicedLoader:
    """The batches of a data loader whose batch sampler slices them between devices, for a Trainer.

    This class is responsible for resuming: training resumes at any batch. The state is the epoch
    and the number of its batches that were yielded, and holds for that epoch only.

    It is not a ``DataLoader``, because Lightning would replace the sampler of one on several
    devices. ``begin_blocks`` begins the blocks of an epoch; see `actlab.tasks.blocks.Blocks.begin`.
    """

    def __init__(
        self, loader: DataLoader[Any], begin_blocks: BeginBlocks | None = None
    ) -> None:
        self.begin_blocks = begin_blocks
        self.loader = loader
        self.dataset = loader.dataset
        self.batch_sampler = loader.batch_sampler
        self.epoch = 0
        self.batches = 0
        self._resumed = False

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of the epoch, which the Trainer sets before the first one."""
        sampler: Any = self.batch_sampler
        epoch = getattr(sampler, "epoch", 0)

        # Start at the first batch, unless a checkpoint holds the state of this epoch.
        if not (self._resumed and epoch == self.epoch):
            self.batches = 0
        self._resumed = False
        self.epoch = epoch
        sampler.first = self.batches

        # Yield single batches.
        end_of_block = self.begin_blocks() if self.begin_blocks else None
        if end_of_block is None:
            for batch in self.loader:
                self.batches += 1
                yield batch
            return

        # Yield the positions of several batches as a block.
        positions = iter(sampler)
        while True:
            size = end_of_block(self.batches) - self.batches
            block = list(islice(positions, size))
            if not block:
                return
            self.batches += len(block)
            yield BatchBlock(self.dataset, block)

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and the number of its batches that were yielded."""
        return {"epoch": self.epoch, "batches": self.batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Start the next iteration after the batches of the state, if it is of the same epoch."""
        try:
            checked(state, _LoaderState)
        except ValueError as error:
            raise DamagedError(
                f"the data loader's state in the checkpoint is damaged ({error}). Use another file."
            ) from error
        self.epoch = state["epoch"]
        self.batches = state["batches"]
        self._resumed = True


def uncollated(batch: Any) -> Any:
    """Return the batch unchanged: a collate function for datasets that return whole batches."""
    return batch


class TensorDataModule(pl.LightningDataModule, ABC):
    """Base class of datamodules whose datasets fit in memory.

    It is responsible for loading the datasets onto a Trainer's device, for the order of batches and
    for their division between devices. It does not read files, which is the part of a subclass, and
    it does not know the task or the network.

    A subclass defines `input_shape` and, unless the task knows it, ``num_classes`` or
    ``num_outputs``. In `load` it sets ``train``, ``val`` and ``test``, each with its own transform.
    Only the transform of ``train`` may be random. Without ``test`` there are no test metrics.
    ``hparams`` holds the arguments as plain values; they are not logged, because a module may have
    other arguments of these names.

    Args:
        batch_size: size of the global training batch; an incomplete last batch of an epoch is
            dropped.
        eval_batch_size: size of the global batch for validation and test, and of the batches for
            prediction.
        seed: determines the order of the training batches; None as in tasks. After the
            construction, R seeds give stacked batches ``(R, B, …)``.

    Raises:
        ActlabError: if a batch size is below 1.
    """

    # `actlab.callbacks.TestEveryEpoch` needs no ``setup("test")``.
    tested_by_steps = True
    sample_replaces_dataset = False  # whether ``sample`` takes the place of ``dataset``
    absence = "Set train, val and test in `load`."  # ends the message about a part without samples
    counts: Mapping[
        str, int
    ] = {}  # of the images, sentences or rows in each split of the dataset
    published: Mapping[str, int] = {}  # the same in a complete copy

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Record the arguments; a copy is made without arguments and gets the original's state."""
        self = super().__new__(cls)
        arguments = of_call(cls, args, kwargs)
        self._set_hparams(arguments.complete)
        return self

    @validated
    def __init__(
        self, batch_size: Count, eval_batch_size: Count, seed: int | None
    ) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.seed: int | Sequence[int] = seed_or_default(seed)
        self.hparams["seed"] = self.seed
        self.train: Samples | None = None
        self.val: Samples | None = None
        self.test: Samples | None = None

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""

    @property
    def class_names(self) -> Sequence[str] | None:
        """The names of the K classes, None if they have no names."""
        return None

    @abstractmethod
    def load(self, device: torch.device) -> None:
        """Set ``train``, ``val`` and ``test``, loaded for a device."""

    @property
    def stackable(self) -> bool:
        """Whether this datamodule supports batches for R seeds; verified before runs are stacked.

        If True, nothing that `load` reads may depend on ``seed``, ``train`` must accept an index
        ``(R, B)``, and its transform must accept a batch ``(R, B, …)``.
        """
        return type(self).train_dataloader is TensorDataModule.train_dataloader

    def setup(self, stage: str) -> None:
        """Load the datasets, onto the accelerator of a Trainer that runs."""
        trainer = self._running_trainer
        device = (
            torch.device("cpu") if trainer is None else trainer.strategy.root_device
        )
        if self.train is None or self.train.device != device:
            self.load(device)

        # Single samples are augmented by the seed of the first run.
        seed = self.seed if isinstance(self.seed, int) else self.seed[0]
        for samples in (self.train, self.val, self.test):
            if isinstance(samples, Samples):
                samples.seed = seed

    def train_dataloader(self) -> DataLoader[Any] | SlicedLoader:
        """Return the training batches, shuffled by seed and epoch; under a Trainer, this device's.

        The Trainer sets the epoch. Without a Trainer, the epoch is 0 until
        ``loader.batch_sampler.set_epoch`` is called.
        """
        # Order the samples, on their device if they are gathered there.
        samples = self._samples("train")
        device = samples.device if isinstance(samples, TensorDataset) else None
        rank, world_size = self._rank_and_world_size
        batches = SeededBatches(
            len(samples),
            self.batch_size,
            self.seed,
            rank=rank,
            world_size=world_size,
            shuffled=not samples.drawn,
            device=device,
        )
        loader = self._loader(samples, batches)

        # Form blocks of batches, unless workers of another loader read ahead.
        begin_blocks = None
        trainer = self._running_trainer
        if trainer is not None and type(self)._loader is TensorDataModule._loader:
            begin_blocks = getattr(trainer.lightning_module, "begin_blocks", None)
        return self._sliced(loader, begin_blocks)

    def val_dataloader(self) -> DataLoader[Any] | SlicedLoader:
        """Return the validation batches, in file order; under a Trainer, this device's."""
        loader = self._loader_in_order("val", *self._rank_and_world_size)
        return self._sliced(loader)

    def test_dataloader(self) -> DataLoader[Any] | SlicedLoader | list[Any]:
        """Return the test batches, in file order; under a Trainer, this device's.

        Without test samples the result is an empty list, or an ActlabError if the Trainer is to
        test.
        """
        self._samples("train")  # loads the datasets
        is_testing = self.trainer is not None and self.trainer.testing
        if self.test is None and not is_testing:
            return []

        loader = self._loader_in_order("test", *self._rank_and_world_size)
        return self._sliced(loader)

    def predict_dataloader(self) -> DataLoader[Any]:
        """Return the test batches; a prediction writer receives their positions."""
        return self._loader_in_order("test")

    @property
    def _running_trainer(self) -> pl.Trainer | None:
        """The Trainer once it runs; None if it is only attached, as in checks before training."""
        return self.trainer if self.trainer and self.trainer.state.fn else None

    @property
    def _rank_and_world_size(self) -> tuple[int, int]:
        if not self.trainer:
            return 0, 1
        return self.trainer.global_rank, self.trainer.world_size

    def _sliced(
        self, loader: DataLoader[Any], begin_blocks: BeginBlocks | None = None
    ) -> DataLoader[Any] | SlicedLoader:
        return SlicedLoader(loader, begin_blocks) if self.trainer else loader

    def _loader_in_order(
        self, part: str, rank: int = 0, world_size: int = 1
    ) -> DataLoader[Any]:
        samples = self._samples(part)
        order = SequentialSampler(samples)
        batches = BatchesInOrder(order, self.eval_batch_size, False, rank, world_size)
        return self._loader(samples, batches)

    def _loader(self, samples: Samples, batches: Sampler[Any]) -> DataLoader[Any]:
        return DataLoader(samples, batch_sampler=batches, collate_fn=uncollated)

    @property
    def training_samples(self) -> Samples:
        """The training samples with the transform of ``val``, so not augmented.

        If ``train`` or ``val`` is not a `TensorDataset`, this is ``train`` itself.
        """
        train = self._samples("train")
        val = self._samples("val")
        if isinstance(train, TensorDataset) and isinstance(val, TensorDataset):
            return TensorDataset(*train.tensors, transform=val.transform)
        return train

    def _samples(self, part: str) -> Samples:
        if self.train is None:
            self.setup("fit")
        samples: Samples | None = getattr(self, part)
        if samples is None:
            raise ActlabError(
                f"{type(self).__name__} has no {part} samples. {self.absence}"
            )
        return samples


def dataset_or(default: str, dataset: str | None, sample: bool, bundled: str) -> str:
    """Return the dataset that a config selects: ``dataset``, ``default`` or the bundled sample.

    ``bundled`` is the path of the sample in ``data/samples``.

    Raises:
        ActlabError: if both ``dataset`` and ``sample`` are set.
    """
    if sample and dataset is not None:
        raise ActlabError(
            f"data.dataset: expected null with data.sample true, got {dataset!r}. Remove one of "
            "them."
        )
    if sample:
        return str(resource(f"data/samples/{bundled}"))
    return dataset or default
