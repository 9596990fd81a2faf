"""Batch samplers: the order of samples, and the slice of each batch that a device gets.

A sampler yields a `Position` per batch: run seeds, epoch and sample indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, Sampler, SequentialSampler

from actlab.errors import ActlabError
from actlab.random.hashing import generator
from actlab.random.positions import Position


class SeededBatches(Sampler[Position]):
    """A batch sampler that shuffles by (seed, epoch) and slices each global batch between ranks.

    The order does not depend on the number of devices. One seed yields an index ``(B,)``; R seeds
    yield an index ``(R, B)``, where each run has the batches that its seed has alone. A partial
    last batch is dropped.

    Args:
        size: number of samples N.
        batch_size: size of the global batch.
        seed: of the order; several for a stack.
        rank: number of this device.
        world_size: number of devices.
        shuffled: False for samples that their position draws (`Draws`), which stay in order.
        device: where the order of an epoch is moved at once. A copy of each index would wait for an
            accelerator at each batch.

    Raises:
        ActlabError: if the devices cannot share a batch evenly, or there is not one whole batch.
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
        # Slices of equal size have equal weight in the mean over devices
        if batch_size % world_size:
            raise ActlabError(
                f"data.batch_size: expected a multiple of the {world_size} devices, got "
                f"{batch_size}"
            )
        if size < batch_size:
            raise ActlabError(
                f"data.batch_size: expected at most the {size} training samples, got {batch_size}. "
                "Set a smaller batch_size, or use fewer samples for validation."
            )
        self.size = size
        self.batch_size = batch_size
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.shuffled = shuffled
        self.device = device
        self.epoch = 0
        self.first = 0  # number of the batch that the next iteration starts at

    @property
    def sampler(self) -> SeededBatches:
        """This sampler: Lightning sets a batch sampler's epoch only through its ``sampler``."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch whose order the next iteration yields."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size // self.batch_size

    def __iter__(self) -> Iterator[Position]:
        # Shuffle the samples of each run.
        seeds: tuple[int, ...]
        if isinstance(self.seed, int):
            seeds = (self.seed,)
            order = self.order(self.seed)
        else:
            seeds = tuple(self.seed)
            order = torch.stack([self.order(seed) for seed in seeds])

        # At once for the epoch, not batch by batch
        order = order.to(self.device)

        # Yield this device's slice of each whole batch.
        batches = torch.split(order, self.batch_size, dim=-1)
        for batch in batches[self.first : len(self)]:
            slices = batch.tensor_split(self.world_size, dim=-1)
            yield Position(seeds, self.epoch, slices[self.rank])

    def order(self, seed: int) -> Tensor:
        """Return the permutation ``(N,)`` of the current epoch for one run's seed."""
        # Drawn samples are in random order already
        if not self.shuffled:
            return torch.arange(self.size)
        return torch.randperm(self.size, generator=generator(seed, "order", self.epoch))


class BatchesInOrder(BatchSampler):
    """A batch sampler for evaluation that yields all samples in order, with seed 0 and epoch 0.

    Random numbers drawn during an evaluation, such as the noise of a robustness curve, are
    therefore the same for every run, activation and stack member. The first arguments are the
    arguments of torch's ``BatchSampler``, because Lightning constructs the sampler again for
    prediction. Each device gets samples of every batch: a last batch of fewer samples than devices
    is joined to the batch before it.

    Raises:
        ActlabError: if a batch, or all samples, are fewer than the devices.
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
        self.rank = rank
        self.world_size = world_size

        # The others would wait for a device without samples
        smallest = min(batch_size, len(self.sampler))
        if world_size > 1 and smallest < world_size:
            raise ActlabError(
                f"data.eval_batch_size: expected at least one sample per device ({world_size}), "
                f"got {smallest}. Set a larger eval_batch_size, or use fewer devices."
            )

    def __len__(self) -> int:
        # A remainder of fewer samples than devices joins the batch before it
        number, remainder = divmod(len(self.sampler), self.batch_size)
        if remainder >= self.world_size:
            number += 1
        return number

    def __iter__(self) -> Iterator[Position]:  # type: ignore[override]  # torch's yields lists
        index = torch.tensor(list(self.sampler))
        ends = [self.batch_size * number for number in range(1, len(self))]
        for batch in index.tensor_split(ends)[: len(self)]:
            slices = batch.tensor_split(self.world_size)
            yield Position((0,), 0, slices[self.rank])
