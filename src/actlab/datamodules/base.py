"""Numbered samples, the order of their batches and the datamodule of both: what all datamodules share.

A batch is requested by its `Position`: run seeds, epoch and sample indices. The dataset gathers these samples
and passes them, with the position, to its transform. What `actlab.random.positions` draws there is therefore
the same for a sample alone, in a stack, on any number of devices and after a resume.

Shapes: ``B`` batch, ``R`` runs of a stack, ``N`` samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, SequentialSampler

from actlab.errors import ActlabError
from actlab.random.hashing import generator
from actlab.random.positions import Position

Batch = tuple[Tensor, ...]
# Batched tensor code on the device of the data: takes tensors (B, …), in a stack (R, B, …).
Transform = Callable[[Batch, Position], Batch]


class BatchSource(Protocol):
    """What a part of the data must be, such as a `TensorDataset`: numbered samples that come by the batch."""

    @property
    def device(self) -> torch.device:
        """The device that the source was made for; the datamodule loads anew for another one."""

    def __len__(self) -> int:
        """N."""

    def __getitems__(self, position: Position) -> Batch:
        """The batch of samples ``position.index``: tensors ``(B, …)``, or ``(R, B, …)`` in a stack."""


class TensorDataset(Dataset[Batch]):
    """Tensors in memory; a batch is one gather, whatever the shape of its index.

    A batch is a copy, so that a transform may work in place.

    Args:
        tensors: each ``(N, …)``.
        transform: applied to each gathered batch, such as uint8 to float, or noise; the index of its position
            lies on the device of the tensors.

    Raises:
        ActlabError: when the tensors differ in N.
    """

    def __init__(self, *tensors: Tensor, transform: Transform | None = None) -> None:
        if len({len(t) for t in tensors}) != 1:
            raise ActlabError(f"a dataset needs tensors of one length, not {[len(t) for t in tensors]}")
        self.tensors = tensors
        self.transform = transform

    @property
    def device(self) -> torch.device:
        """Where the tensors lie."""
        return self.tensors[0].device

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitems__(self, position: Position) -> Batch:
        """The batch of samples ``position.index``: tensors ``(B, …)``, or ``(R, B, …)`` in a stack.

        Raises:
            ActlabError: for plain numbers, as a loader without one of our samplers gives them.
        """
        if not isinstance(position, Position):
            raise ActlabError(
                f"a batch is asked for by its Position, not by a {type(position).__name__}; "
                "give the loader a batch_sampler, SeededBatches or BatchesInOrder"
            )
        index = position.index.to(self.device)
        rows = index.flatten()
        batch = tuple(t.index_select(0, rows).view(*index.shape, *t.shape[1:]) for t in self.tensors)
        return self.transform(batch, position._replace(index=index)) if self.transform else batch


class SeededBatches(Sampler[Position]):
    """A batch sampler whose order is a function of (seed, epoch) of the global batch; ranks slice it.

    So the order does not depend on the number of devices, and a stack of seeds gives each member the batches
    that its seed gives alone.

    Args:
        size: N.
        batch_size: of the global batch.
        seed: one seed for an index ``(B,)``, or R seeds for an index ``(R, B)``.
        rank: which slice of each batch to give.
        world_size: into how many slices.
        drop_last: leave out the last, partial batch.

    Raises:
        ActlabError: when the batches cannot be sliced evenly or there is not one.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        seed: int | Sequence[int],
        *,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = True,
    ) -> None:
        if batch_size % world_size:
            raise ActlabError(
                f"batch_size {batch_size} cannot be shared evenly by {world_size} devices; "
                f"give a multiple of {world_size}"
            )
        if size < batch_size and drop_last:
            raise ActlabError(
                f"the training part has {size} samples, fewer than one batch of {batch_size}; "
                "give a smaller batch_size, or a smaller validation part"
            )
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.rank, self.world_size, self.drop_last = rank, world_size, drop_last
        self.epoch = 0

    @property
    def sampler(self) -> SeededBatches:
        """Itself: Lightning sets the epoch of a batch sampler only through its ``sampler``."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next iteration gives."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size // self.batch_size if self.drop_last else -(-self.size // self.batch_size)

    def __iter__(self) -> Iterator[Position]:
        seeds = (self.seed,) if isinstance(self.seed, int) else tuple(self.seed)
        orders = [self.order(seed) for seed in seeds]
        order = orders[0] if isinstance(self.seed, int) else torch.stack(orders)
        for batch in torch.split(order, self.batch_size, dim=-1)[: len(self)]:
            index = batch.tensor_split(self.world_size, dim=-1)[self.rank] if self.world_size > 1 else batch
            yield Position(seeds, self.epoch, index)

    def order(self, seed: int) -> Tensor:
        """The permutation of one run's current epoch, ``(N,)``."""
        return torch.randperm(self.size, generator=generator(seed, "order", self.epoch))


class BatchesInOrder(BatchSampler):
    """All samples of a sampler, at one position for every run, unit and member of a stack.

    So what an evaluation draws, such as the noise of a robustness curve, is the same for all that are compared.
    It is built like torch's ``BatchSampler``, because Lightning makes it anew for prediction.

    Args:
        sampler: of the dataset, in file order.
        batch_size: of all batches but the last.
        drop_last: leave out the last, partial batch.
    """

    sampler: SequentialSampler

    def __iter__(self) -> Iterator[Position]:  # type: ignore[override]  # torch's yields lists
        for index in torch.split(torch.tensor(list(self.sampler)), self.batch_size)[: len(self)]:
            yield Position((0,), 0, index)


def as_it_is(batch: Any) -> Any:
    """A collate function: the dataset has made the batch already."""
    return batch


class TensorDataModule(pl.LightningDataModule, ABC):
    """Base of the datamodules whose data fits in memory.

    A subclass gives `num_classes` and `input_shape` and fills ``train``, ``val`` and ``test`` in `load`, each
    with its own transform, without anything random but for ``train``.

    Args:
        batch_size: of the global training batch; the last, partial one is dropped.
        eval_batch_size: for validation, test and prediction; every device evaluates every sample once.
        seed: the order of batches is a function of it; R seeds give stacked batches ``(R, B, …)``.
    """

    def __init__(self, batch_size: int, eval_batch_size: int, seed: int) -> None:
        super().__init__()
        for name, value in (("batch_size", batch_size), ("eval_batch_size", eval_batch_size)):
            if value < 1:
                raise ActlabError(f"{name} {value}: give a whole number from 1")
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.seed: int | Sequence[int] = seed
        self.train: BatchSource | None = None
        self.val: BatchSource | None = None
        self.test: BatchSource | None = None

    slices_batches = True  # by device, which Lightning's distributed sampler does for other data

    def __init_subclass__(cls) -> None:
        """Declare ``slices_batches = False`` for a class that replaces the training loader without a word."""
        if "train_dataloader" in vars(cls) and "slices_batches" not in vars(cls):
            cls.slices_batches = False

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """K."""

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""

    @abstractmethod
    def load(self, device: torch.device) -> None:
        """Fill ``train``, ``val`` and ``test`` for a device."""

    @property
    def stackable(self) -> bool:
        """Whether its batches may be made for R seeds at once, which is tried before runs are stacked.

        Then nothing that it loads depends on ``seed``, ``train`` takes an index ``(R, B)`` and its transform a
        batch ``(R, B, …)``.
        """
        return type(self).train_dataloader is TensorDataModule.train_dataloader

    def setup(self, stage: str) -> None:
        """Load the data, onto the accelerator if the Trainer has one.

        Raises:
            ActlabError: when Lightning is to slice the batches for several devices.
        """
        trainer = self.trainer
        device = trainer.strategy.root_device if trainer else torch.device("cpu")
        connector = trainer._accelerator_connector if trainer and trainer.world_size > 1 else None
        if self.slices_batches and connector and connector.use_distributed_sampler:
            raise ActlabError(
                "this datamodule slices its batches itself: set trainer.use_distributed_sampler to false"
            )
        if self.train is None or self.train.device != device:
            self.load(device)

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches in the seed's order of the epoch, which the Trainer sets.

        Iterated by hand, they are those of epoch 0 until ``loader.batch_sampler.set_epoch`` says another.
        """
        return _loader(self._part("train"), self._seeded_batches())

    def val_dataloader(self) -> DataLoader[Any]:
        """Validation batches, in file order."""
        return self._in_order("val")

    def test_dataloader(self) -> DataLoader[Any]:
        """Test batches, in file order."""
        return self._in_order("test")

    def predict_dataloader(self) -> DataLoader[Any]:
        """The test batches; a prediction writer gets their positions."""
        return self._in_order("test")

    def _seeded_batches(self) -> SeededBatches:
        """The training batches of this device."""
        rank, world_size = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        size = len(self._part("train"))
        return SeededBatches(size, self.batch_size, self.seed, rank=rank, world_size=world_size)

    def _in_order(self, part: str) -> DataLoader[Any]:
        samples = self._part(part)
        return _loader(samples, BatchesInOrder(SequentialSampler(samples), self.eval_batch_size, False))

    @property
    def training_samples(self) -> BatchSource:
        """The training samples, where they are in memory as validation shows them: not augmented."""
        train, val = self._part("train"), self._part("val")
        if not (isinstance(train, TensorDataset) and isinstance(val, TensorDataset)):
            return train
        return TensorDataset(*train.tensors, transform=val.transform)

    def _part(self, part: str) -> BatchSource:
        if getattr(self, part) is None:
            self.setup("fit")
        source: BatchSource | None = getattr(self, part)
        if source is None:
            raise ActlabError(f"{type(self).__name__}.load must fill train, val and test; {part!r} is empty")
        return source


def _loader(samples: BatchSource, batches: Sampler[Any]) -> DataLoader[Any]:
    """The stock loader. Its types ask for a ``Dataset``, of which it needs only what a `BatchSource` has."""
    return DataLoader(samples, batch_sampler=batches, collate_fn=as_it_is)  # type: ignore[arg-type]
