"""Datasets in memory, batch samplers and the base class that all datamodules share.

A sampler yields a `Position` per batch: run seeds, epoch and sample indices. Random numbers that a
transform draws by this position are the same for a sample alone, in a stack, on any number of
devices and after a resume.

Shapes: ``B`` batch, ``R`` runs of a stack, ``N`` samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Self

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, SequentialSampler
from typing_extensions import TypedDict

from actlab.config.plain_values import of_call
from actlab.errors import ActlabError
from actlab.random.defaults import seed_or_default
from actlab.random.hashing import generator
from actlab.random.positions import BatchBlock, Position
from actlab.storage.files import DamagedError
from actlab.storage.json_files import checked
from actlab.storage.resources import resource
from actlab.validation import Count, validated

Batch = tuple[Tensor, ...]
# Runs on whole batches on the device of the dataset: tensors (B, …), or (R, B, …) in a stack.
Transform = Callable[[Batch, Position], Batch]


BeginBlocks = Callable[[], Callable[[int], int] | None]


class Samples(Dataset[Batch]):
    """A dataset that returns a whole batch for a `Position`, and samples as any map-style dataset does.

    A subclass defines ``__len__``, `device` and `batch`. Single samples are augmented as in epoch 0
    of ``seed``, which is set to the datamodule's.
    """

    seed = 0
    # Whether each epoch has samples of its own, which the position draws: none are shuffled
    drawn = False
    # That this dataset was loaded for; the datamodule loads again for another one
    device: torch.device
    groups: Tensor | None = None  # of each sample, ``(N,)``, the number of its sentence or the like
    file_names: Sequence[str] | None = None  # of each sample that is a file, its path

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, position: Position) -> Batch:
        """Return the batch of samples ``position.index``: tensors ``(B, …)``, or ``(R, B, …)`` in a stack."""

    def __getitem__(self, index: int) -> Batch:
        # IndexError beyond the samples
        sample: Batch = self.__getitems__([range(len(self))[index]])[0]
        return sample

    def __getitems__(self, position: Position | Sequence[int]) -> Any:
        if isinstance(position, Position):
            return self.batch(position)
        return list(zip(*self.batch(self.position_of(position)), strict=True))

    def position_of(self, index: Sequence[int]) -> Position:
        """Return the position of samples in epoch 0 of this dataset's seed."""
        return Position((self.seed,), 0, torch.as_tensor(index))


class TensorDataset(Samples):
    """A dataset of tensors in memory that gathers a whole batch at once, for an index of any shape.

    Each tensor is ``(N, …)``. Each batch is a copy, so the transform may modify it in place; the
    index of the position that it receives is on the device of the tensors.
    """

    def __init__(self, *tensors: Tensor, transform: Transform | None = None) -> None:
        if len({len(t) for t in tensors}) != 1:
            raise ActlabError(
                f"a dataset needs tensors of one length, not {[len(t) for t in tensors]}"
            )
        self.tensors, self.device = tensors, tensors[0].device
        self.transform = transform

    def __len__(self) -> int:
        return len(self.tensors[0])

    def batch(self, position: Position) -> Batch:
        """Return the batch of samples ``position.index``: tensors ``(B, …)``, or ``(R, B, …)`` in a stack."""
        index = position.index.to(self.device)
        rows = index.flatten()
        batch = tuple(
            t.index_select(0, rows).view(*index.shape, *t.shape[1:]) for t in self.tensors
        )
        return self.transform(batch, position._replace(index=index)) if self.transform else batch


class Draws(Samples):
    """Endless training data: each epoch has ``updates`` new batches of ``batch_size`` samples.

    ``draw`` draws the samples of a position, ``(B, …)``, or ``(R, B, …)`` in a stack, by
    `uniform_at` or `integers_at`: runs of one seed get the same samples, whatever they train.
    """

    drawn = True
    ahead = 16  # batches that are drawn at once, because drawing costs as much for one

    def __init__(
        self, draw: Callable[[Position], Batch], updates: int, batch_size: int, device: torch.device
    ) -> None:
        self.draw, self.size, self.device = draw, updates * batch_size, device
        self._known: tuple[tuple[tuple[int, ...], int], int, int, Batch] | None = (
            None  # epoch, first, end
        )

    def __len__(self) -> int:
        return self.size

    def batch(self, position: Position) -> Batch:
        """Return the samples of a position, those of neighbours from one draw."""
        seeds, epoch, index = position
        number, first = index.shape[-1], int(index.flatten()[0])
        last = first + number - 1
        if not index.equal(torch.arange(first, last + 1).expand_as(index)):
            return self.draw(position._replace(index=index.to(self.device)))
        known = self._known
        if known is None or known[0] != (seeds, epoch) or not known[1] <= first <= last < known[2]:
            end = min(first + self.ahead * number, max(self.size, last + 1))
            several = torch.arange(first, end, device=self.device).expand(*index.shape[:-1], -1)
            self._known = known = (
                (seeds, epoch),
                first,
                end,
                self.draw(Position(seeds, epoch, several)),
            )
        start, axis = first - known[1], index.dim() - 1
        return tuple(part.narrow(axis, start, number).clone() for part in known[3])


class SeededBatches(Sampler[Position]):
    """A batch sampler that shuffles by (seed, epoch) and gives each rank a slice of every global batch.

    The order does not depend on the number of devices. One seed yields an index ``(B,)``; R seeds
    yield an index ``(R, B)``, where each run has the batches that its seed has alone. A partial
    last batch is dropped. Samples that their position draws (`Draws`) stay in order: not
    ``shuffled``. The order of an epoch is moved to ``device`` at once, because a copy of each index
    would wait for an accelerator at each batch.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        seed: int | Sequence[int],
        *,
        rank: int = 0,
        world_size: int = 1,
        shuffled: bool = True,
        device: torch.device | None = None,
    ) -> None:
        if batch_size % world_size:
            raise ActlabError(
                f"batch_size {batch_size} cannot be divided evenly by {world_size} devices; "
                f"give a multiple of {world_size}"
            )
        if size < batch_size:
            raise ActlabError(
                f"the training set has {size} samples, fewer than one batch of {batch_size}; "
                "give a smaller batch_size, or a smaller validation set"
            )
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.rank, self.world_size, self.shuffled = rank, world_size, shuffled
        self.device = device
        self.epoch = 0
        self.first = 0  # number of the batch that the next iteration starts at

    @property
    def sampler(self) -> SeededBatches:
        """This sampler: Lightning sets the epoch of a batch sampler only through its ``sampler``."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch whose order the next iteration yields."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size // self.batch_size

    def __iter__(self) -> Iterator[Position]:
        seeds = (self.seed,) if isinstance(self.seed, int) else tuple(self.seed)
        orders = [self.order(seed) for seed in seeds]
        order = orders[0] if isinstance(self.seed, int) else torch.stack(orders)
        order = order.to(self.device)
        for batch in torch.split(order, self.batch_size, dim=-1)[self.first : len(self)]:
            yield Position(
                seeds, self.epoch, batch.tensor_split(self.world_size, dim=-1)[self.rank]
            )

    def order(self, seed: int) -> Tensor:
        """Return the permutation ``(N,)`` of the current epoch for one run's seed."""
        if not self.shuffled:
            return torch.arange(self.size)
        return torch.randperm(self.size, generator=generator(seed, "order", self.epoch))


class BatchesInOrder(BatchSampler):
    """A batch sampler for evaluation that yields all samples in order, with seed 0 and epoch 0.

    Random numbers drawn during an evaluation, such as the noise of a robustness curve, are
    therefore the same for every run, activation and stack member. The first arguments are those of
    torch's ``BatchSampler``, because Lightning constructs the sampler again for prediction. No
    device's slice of a batch is empty: a last batch of fewer samples than devices is joined to the
    batch before it.
    """

    sampler: SequentialSampler

    def __init__(
        self,
        sampler: Sampler[int],
        batch_size: int,
        drop_last: bool,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(sampler, batch_size, drop_last)
        self.rank, self.world_size = rank, world_size
        if world_size > 1 and (least := min(batch_size, len(self.sampler))) < world_size:
            raise ActlabError(
                f"evaluation of {least} samples at a time on {world_size} devices: give a larger "
                "eval_batch_size and more samples, or fewer devices"
            )

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest >= self.world_size)

    def __iter__(self) -> Iterator[Position]:  # type: ignore[override]  # torch's yields lists
        index = torch.tensor(list(self.sampler))
        ends = [self.batch_size * number for number in range(1, len(self))]
        for batch in index.tensor_split(ends)[: len(self)]:
            yield Position((0,), 0, batch.tensor_split(self.world_size)[self.rank])


class _LoaderState(TypedDict):
    epoch: int
    batches: int


class SlicedLoader:
    """The batches of a data loader whose batch sampler slices them between devices, for a Trainer.

    Not a ``DataLoader``, because Lightning would replace the sampler of one on several devices.
    Training resumes at any batch: the state is the epoch and the number of its batches that were
    yielded, and holds for that epoch only. ``begin_blocks`` begins the blocks of an epoch; see
    `actlab.tasks.blocks.Blocks.begin`.
    """

    def __init__(self, loader: DataLoader[Any], begin_blocks: BeginBlocks | None = None) -> None:
        self.begin_blocks = begin_blocks
        self.loader, self.dataset, self.batch_sampler = loader, loader.dataset, loader.batch_sampler
        self.epoch = self.batches = 0
        self._resumed = False

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of the epoch, which the Trainer sets before the first one."""
        sampler: Any = self.batch_sampler
        epoch = getattr(sampler, "epoch", 0)
        if not (self._resumed and epoch == self.epoch):
            self.batches = 0
        self.epoch, self._resumed, sampler.first = epoch, False, self.batches
        end = self.begin_blocks() if self.begin_blocks else None
        if end is None:
            for batch in self.loader:
                self.batches += 1
                yield batch
        else:
            positions = iter(sampler)
            while block := [*islice(positions, end(self.batches) - self.batches)]:
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
                f"the checkpoint's state of the data loader is wrong, {error}: give another file"
            ) from error
        self.epoch, self.batches, self._resumed = state["epoch"], state["batches"], True


def as_it_is(batch: Any) -> Any:
    """Return the batch unchanged: a collate function for datasets that return whole batches."""
    return batch


class TensorDataModule(pl.LightningDataModule, ABC):
    """Base class of datamodules whose datasets fit in memory.

    A subclass defines `input_shape` and, unless the task knows it, ``num_classes`` or
    ``num_outputs``, and sets ``train``, ``val`` and ``test`` in `load`, each with its own
    transform. Only the transform of ``train`` may be random. Without ``test`` there are no test
    metrics. ``hparams`` holds the arguments as plain values; they are not logged, because a module
    may have other arguments of these names.

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

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Keep the arguments; a copy is made without any, and takes those of the original."""
        self = super().__new__(cls)
        self._set_hparams(of_call(cls, args, kwargs).shown)
        return self

    @validated
    def __init__(self, batch_size: Count, eval_batch_size: Count, seed: int | None) -> None:
        super().__init__()
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.seed: int | Sequence[int] = seed_or_default(seed)
        self.hparams["seed"] = self.seed
        self.train: Samples | None = None
        self.val: Samples | None = None
        self.test: Samples | None = None

    tested_by_steps = True  # `actlab.callbacks.TestEveryEpoch` needs no ``setup("test")``
    sample_replaces_dataset = False  # whether ``sample`` takes the place of ``dataset``
    absence = (
        "`load` sets train, val and test"  # why a part has no samples, and the remedy, for messages
    )
    counts: Mapping[str, int] = {}  # of the images, sentences or rows in each split of the dataset
    published: Mapping[str, int] = {}  # the same in a complete copy

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""

    @property
    def class_names(self) -> Sequence[str] | None:
        """The names of the K classes, None where they have none."""
        return None

    @abstractmethod
    def load(self, device: torch.device) -> None:
        """Set ``train``, ``val`` and ``test``, loaded for a device."""

    @property
    def stackable(self) -> bool:
        """Whether this datamodule supports batches for R seeds at once; verified before runs are stacked.

        If True, nothing that `load` reads may depend on ``seed``, ``train`` must accept an index
        ``(R, B)``, and its transform must accept a batch ``(R, B, …)``.
        """
        return type(self).train_dataloader is TensorDataModule.train_dataloader

    def setup(self, stage: str) -> None:
        """Load the datasets, onto the accelerator of a Trainer that runs."""
        device = self._running.strategy.root_device if self._running else torch.device("cpu")
        if self.train is None or self.train.device != device:
            self.load(device)
        for samples in (self.train, self.val, self.test):
            if isinstance(samples, Samples):
                samples.seed = self.seed if isinstance(self.seed, int) else self.seed[0]

    def train_dataloader(self) -> DataLoader[Any] | SlicedLoader:
        """Return the training batches, shuffled by seed and epoch; under a Trainer those of this device.

        The Trainer sets the epoch. Without a Trainer, the epoch is 0 until
        ``loader.batch_sampler.set_epoch`` is called.
        """
        samples, (rank, size) = self._part("train"), self._rank
        batches = SeededBatches(
            *(len(samples), self.batch_size, self.seed),
            rank=rank,
            world_size=size,
            shuffled=not samples.drawn,
            device=samples.device if isinstance(samples, TensorDataset) else None,
        )
        in_memory = type(self)._loader is TensorDataModule._loader  # no workers read ahead
        module = self._running.lightning_module if self._running and in_memory else None
        return self._sliced(self._loader(samples, batches), getattr(module, "begin_blocks", None))

    def val_dataloader(self) -> DataLoader[Any] | SlicedLoader:
        """Return the validation batches, in file order; under a Trainer those of this device."""
        return self._sliced(self._in_order("val", *self._rank))

    def test_dataloader(self) -> DataLoader[Any] | SlicedLoader | list[Any]:
        """Return the test batches, in file order; under a Trainer those of this device.

        Without test samples the result is an empty list, or an ActlabError if the Trainer is to
        test.
        """
        self._part("train")
        if self.test is None and not (self.trainer and self.trainer.testing):
            return []
        return self._sliced(self._in_order("test", *self._rank))

    def predict_dataloader(self) -> DataLoader[Any]:
        """Return the test batches; a prediction writer receives their positions."""
        return self._in_order("test")

    @property
    def _running(self) -> pl.Trainer | None:
        """The Trainer once it runs; None while it is only attached, as in checks before training."""
        return self.trainer if self.trainer and self.trainer.state.fn else None

    @property
    def _rank(self) -> tuple[int, int]:
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)

    def _sliced(
        self, loader: DataLoader[Any], begin_blocks: BeginBlocks | None = None
    ) -> DataLoader[Any] | SlicedLoader:
        return SlicedLoader(loader, begin_blocks) if self.trainer else loader

    def _in_order(self, part: str, rank: int = 0, world_size: int = 1) -> DataLoader[Any]:
        samples = self._part(part)
        order = SequentialSampler(samples)
        return self._loader(
            samples, BatchesInOrder(order, self.eval_batch_size, False, rank, world_size)
        )

    def _loader(self, samples: Samples, batches: Sampler[Any]) -> DataLoader[Any]:
        return DataLoader(samples, batch_sampler=batches, collate_fn=as_it_is)

    @property
    def training_samples(self) -> Samples:
        """The training samples with the transform of ``val``, so not augmented.

        If ``train`` or ``val`` is not a `TensorDataset`, this is ``train`` itself.
        """
        train, val = self._part("train"), self._part("val")
        if not (isinstance(train, TensorDataset) and isinstance(val, TensorDataset)):
            return train
        return TensorDataset(*train.tensors, transform=val.transform)

    def _part(self, part: str) -> Samples:
        if self.train is None:
            self.setup("fit")
        samples: Samples | None = getattr(self, part)
        if samples is None:
            raise ActlabError(f"{type(self).__name__} has no {part} samples; {self.absence}")
        return samples


def dataset_or(default: str, dataset: str | None, sample: bool, embedded: str | None = None) -> str:
    """Return the given dataset, or ``default``, or the folder of the ``embedded`` sample; not two of them."""
    if sample and dataset is not None:
        raise ActlabError(
            f"data.dataset {dataset!r} beside data.sample true has no effect: give one of them"
        )
    return str(resource(f"data/samples/{embedded}")) if sample and embedded else dataset or default
