"""Random numbers for the samples of a batch: noise, crops, flips, windows.

A number depends only on (run seed, purpose, epoch, number of the sample, element), and not on the
batch, the other members of a stack, the device or torch's generator. A sample therefore gets the
same augmentation alone, in a stack, on any number of devices and after any resume::

    def noisy(batch: Batch, position: Position) -> Batch:
        signals, labels = batch
        return signals + 0.15 * normal_at(position, "noise", signals.shape[-1:]), labels

Each use needs its own purpose: equal purposes draw equal numbers.

Shapes: ``B`` batch, ``R`` runs in a stack, ``E`` elements per sample.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from actlab.errors import ActlabError
from actlab.random.hashing import hash_words, key_words, seed_for, to_unit_interval


class Position(NamedTuple):
    """The seeds, epoch and sample numbers of a batch, which determine its random numbers.

    Args:
        seeds: the seed of a single run, or the R seeds of a stack.
        epoch: epoch of the training.
        index: numbers of the samples within their dataset, below 2³¹: int64 ``(B,)``, or ``(R, B)``
            in a stack.
    """

    seeds: tuple[int, ...]
    epoch: int
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, a search that is not needed here


class BatchBlock:
    """The positions of several batches of a Trainer, which are trained as one batch.

    See `actlab.tasks.blocks`.
    """

    by_position = True  # whether the numbers of batches depend only on their position

    def __init__(self, samples: Any, positions: Sequence[Position]) -> None:
        self.samples = samples
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    def __iter__(self) -> Iterator[Any]:
        """Gather and yield one batch after the other."""
        return map(self.samples.__getitems__, self.positions)


def uniform_at(position: Position, purpose: str, shape: Sequence[int] = ()) -> Tensor:
    """Draw uniform numbers in [0, 1), multiples of 2⁻²⁴.

    Args:
        position: position of the batch.
        purpose: name of the use, distinct for each use.
        shape: shape of the numbers of each sample.

    Returns:
        float32 ``(*index.shape, *shape)``, on the device of ``index``.

    Raises:
        ActlabError: the number of seeds differs from the number of runs.
    """
    return to_unit_interval(_words_at(position, purpose, shape))


def normal_at(position: Position, purpose: str, shape: Sequence[int] = ()) -> Tensor:
    """Draw standard normal numbers, as quantiles of 2²³ equally likely probabilities.

    The probabilities are the odd multiples of 2⁻²⁴, never 0 or 1, so no number lies beyond ±5.3.
    Arguments, result and errors are the same as for `uniform_at`.
    """
    words = _words_at(position, purpose, shape)
    numbers = words.bitwise_right_shift_(9).bitwise_and_(0x7FFFFF).to(torch.float32)
    signed = numbers.add_(0.5).mul_(2.0**-22).sub_(1)  # 2u − 1, exact in float32
    return signed.erfinv_().mul_(math.sqrt(2))


def integers_at(
    position: Position, purpose: str, high: int, shape: Sequence[int] = ()
) -> Tensor:
    """Draw whole numbers from 0 to ``high`` − 1, equally likely up to ``high``·2⁻³²: int64.

    ``high`` is from 1 to 2³¹, else an `ActlabError` is raised. Other arguments and errors, and
    shape and device of the result, are the same as for `uniform_at`.
    """
    if not 1 <= high <= 2**31:
        raise ActlabError(
            f"high: expected a whole number from 1 to 2147483648, got {high}"
        )
    words = _words_at(position, purpose, shape).to(torch.int64).bitwise_and_(0xFFFFFFFF)
    return words.mul_(high).bitwise_right_shift_(32)


def _words_at(position: Position, purpose: str, shape: Sequence[int]) -> Tensor:
    """Return uniform int32 words ``(*index.shape, *shape)``.

    They are a hash of the numbers of elements, with a key for each sample.
    """
    # (B,) for one run, (R, B) for a stack
    seeds, epoch, index = position
    runs = index.shape[0] if index.dim() == 2 else 1
    if len(seeds) != runs:
        raise ActlabError(
            f"position: expected one seed for an index (B,), R seeds for (R, B), got {len(seeds)} "
            f"seeds for {tuple(index.shape)}"
        )

    # Hash the samples, then their elements.
    first_key, second_key = _keys(seeds, purpose, epoch, index.device)
    # (2, R, B, 1)
    samples = hash_words(index.to(torch.int32), first_key, second_key).unsqueeze(-1)
    elements = torch.arange(math.prod(shape), dtype=torch.int32, device=index.device)
    words = hash_words(elements, samples[0], samples[1])
    return words.view(*index.shape, *shape)


@lru_cache(maxsize=64)
def _keys(
    seeds: tuple[int, ...], purpose: str, epoch: int, device: torch.device
) -> Tensor:
    """Return the two key words of each run, also in reversed order: int32 ``(2, 2, R, 1)``."""
    words = key_words([seed_for(seed, purpose, epoch) for seed in seeds]).unsqueeze(-1)
    return torch.stack((words, words.flip(0))).to(device)
