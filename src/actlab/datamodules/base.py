"""Tensors in memory, splits and batches: what all datamodules share.

Shapes: ``B`` batch, ``R`` runs of a stack, ``N`` samples.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from actlab.errors import ActlabError
from actlab.streams import generator

Transform = Callable[..., tuple[Tensor, ...]]


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Tensors in memory; a batch is one gather, whatever the shape of its index.

    Args:
        tensors: each ``(N, …)``.
        transform: batched tensor code applied to each gathered batch, such as uint8 to float.
    """

    def __init__(self, *tensors: Tensor, transform: Transform | None = None) -> None:
        self.tensors = tensors
        self.transform = transform

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitems__(self, index: Tensor | list[int]) -> tuple[Tensor, ...]:
        """The batch at ``index``: ``(B,)``, or ``(R, B)`` for a stack."""
        rows = torch.as_tensor(index, device=self.tensors[0].device)
        batch = tuple(t.index_select(0, rows.flatten()).view(*rows.shape, *t.shape[1:]) for t in self.tensors)
        return self.transform(*batch) if self.transform else batch


class SeededBatches(Sampler[Tensor]):
    """A batch sampler whose order is a function of (seed, epoch) of the global batch; ranks slice it.

    So the order does not depend on the number of devices, and a stack of seeds gives each member the batches
    that its seed gives alone.

    Args:
        size: N.
        batch_size: of the global batch.
        seed: one seed for batches ``(B,)``, or R seeds for batches ``(R, B)``.
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

    def __iter__(self) -> Iterator[Tensor]:
        order = (
            self.order(self.seed)
            if isinstance(self.seed, int)
            else torch.stack([self.order(seed) for seed in self.seed])
        )
        for batch in torch.split(order, self.batch_size, dim=-1)[: len(self)]:
            yield batch.tensor_split(self.world_size, dim=-1)[self.rank]

    def order(self, seed: int) -> Tensor:
        """The permutation of one run's current epoch, ``(N,)``."""
        return torch.randperm(self.size, generator=generator(seed, "order", self.epoch))


def as_it_is(batch: Any) -> Any:
    """A collate function: the dataset has made the batch already."""
    return batch


class TensorDataModule(pl.LightningDataModule):
    """Base of the datamodules whose data fits in memory.

    A subclass gives ``num_classes`` and ``input_shape`` and fills ``train``, ``val`` and ``test`` in `load`.

    Args:
        batch_size: of the global training batch; the last, partial one is dropped.
        eval_batch_size: for validation, test and prediction, which use every sample. Every device evaluates
            everything: these sets are small, and so nothing is padded or counted twice.
        seed: the order of batches is a function of it; R seeds give stacked batches ``(R, B, …)``.
    """

    def __init__(self, batch_size: int, eval_batch_size: int, seed: int) -> None:
        super().__init__()
        for name, value in (("batch_size", batch_size), ("eval_batch_size", eval_batch_size)):
            if value < 1:
                raise ActlabError(f"{name} {value}: give a whole number from 1")
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.seed: int | Sequence[int] = seed
        self.train: TensorDataset | None = None
        self.val: TensorDataset | None = None
        self.test: TensorDataset | None = None

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
        """Fill ``train``, ``val`` and ``test``."""

    def setup(self, stage: str) -> None:
        """Load the data, onto the accelerator if the Trainer has one.

        Raises:
            ActlabError: when Lightning is to slice the batches for several devices.
        """
        trainer = self.trainer
        device = trainer.strategy.root_device if trainer else torch.device("cpu")
        # Lightning keeps the flag in its connector alone.
        if trainer and trainer.world_size > 1 and trainer._accelerator_connector.use_distributed_sampler:
            raise ActlabError(
                "this datamodule slices its batches itself: set trainer.use_distributed_sampler to false"
            )
        if self.train is None or self.train.tensors[0].device != device:
            self.load(device)

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches in the seed's order."""
        train = self._part("train")
        rank, world_size = (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)
        batches = SeededBatches(len(train), self.batch_size, self.seed, rank=rank, world_size=world_size)
        # An index tensor where torch's types ask for a list: the dataset takes both.
        return DataLoader(train, batch_sampler=batches, collate_fn=as_it_is)  # type: ignore[arg-type]

    def val_dataloader(self) -> DataLoader[Any]:
        """Validation batches, in file order."""
        return self._in_order("val")

    def test_dataloader(self) -> DataLoader[Any]:
        """Test batches, in file order."""
        return self._in_order("test")

    def predict_dataloader(self) -> DataLoader[Any]:
        """The test batches."""
        return self._in_order("test")

    def _in_order(self, part: str) -> DataLoader[Any]:
        return DataLoader(self._part(part), batch_size=self.eval_batch_size, collate_fn=as_it_is)

    def _part(self, part: str) -> TensorDataset:
        dataset: TensorDataset | None = getattr(self, part)
        if dataset is None:
            self.setup("fit")
            dataset = getattr(self, part)
        assert dataset is not None
        return dataset
