"""Random numbers for the samples of a batch: noise, crops, flips, windows.

A number is a function of (run seed, purpose, epoch, number of the sample, element), never of the batch that the
sample is in, of the other members of a stack, of the device that holds it or of torch's generator. So a sample
is changed in the same way alone, in a stack, on any number of devices and after any resume::

    def noisy(batch: Batch, position: Position) -> Batch:
        signals, labels = batch
        return signals + 0.15 * normal_at(position, "noise", signals.shape[-1:]), labels

Each use needs a purpose of its own: equal purposes draw equal numbers.

Shapes: ``B`` batch, ``R`` runs in a stack, ``E`` elements a sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from actlab.errors import ActlabError
from actlab.random.hashing import hash_words, key_words, seed_for, to_unit_interval


class Position(NamedTuple):
    """Which samples a batch holds, of which run and epoch: what its random numbers are a function of.

    Args:
        seeds: one seed of a run alone, or the R of a stack.
        epoch: of the training.
        index: numbers of the samples within their dataset, below 2³¹: int64 ``(B,)``, or ``(R, B)`` in a stack.
    """

    seeds: tuple[int, ...]
    epoch: int
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which searches: of no use here


def uniform_at(position: Position, purpose: str, shape: Sequence[int] = ()) -> Tensor:
    """Uniform numbers in [0, 1), multiples of 2⁻²⁴.

    Args:
        position: of the batch.
        purpose: what the numbers are for, a name of its own for each use.
        shape: what is drawn for each sample.

    Returns:
        float32 ``(*index.shape, *shape)``, on the device of ``index``.

    Raises:
        ActlabError: when the position has another number of seeds than of runs.
    """
    return to_unit_interval(_words_at(position, purpose, shape))


def normal_at(position: Position, purpose: str, shape: Sequence[int] = ()) -> Tensor:
    """Numbers of the standard normal distribution: its quantile function of 2²³ equally likely values.

    These are the odd multiples of 2⁻²⁴, never 0 or 1, so no number lies beyond ±5.3.

    Args:
        position: of the batch.
        purpose: what the numbers are for, a name of its own for each use.
        shape: what is drawn for each sample.

    Returns:
        float32 ``(*index.shape, *shape)``, on the device of ``index``.

    Raises:
        ActlabError: when the position has another number of seeds than of runs.
    """
    words = _words_at(position, purpose, shape)
    whole = words.bitwise_right_shift_(9).bitwise_and_(0x7FFFFF).to(torch.float32)
    signed = whole.add_(0.5).mul_(2.0**-22).sub_(1)  # 2u − 1, exact in float32
    return signed.erfinv_().mul_(math.sqrt(2))


def integers_at(position: Position, purpose: str, high: int, shape: Sequence[int] = ()) -> Tensor:
    """Whole numbers from 0 to ``high`` − 1, equally likely to ``high``·2⁻³².

    Args:
        position: of the batch.
        purpose: what the numbers are for, a name of its own for each use.
        high: the first number that is too large, up to 2³¹.
        shape: what is drawn for each sample.

    Returns:
        int64 ``(*index.shape, *shape)``, on the device of ``index``.

    Raises:
        ActlabError: for an impossible ``high``, or when the position has another number of seeds than of runs.
    """
    if not 1 <= high <= 2**31:
        raise ActlabError(f"cannot draw whole numbers below {high}; give a number from 1 to 2147483648")
    words = _words_at(position, purpose, shape).to(torch.int64).bitwise_and_(0xFFFFFFFF)
    return words.mul_(high).bitwise_right_shift_(32)


def _words_at(position: Position, purpose: str, shape: Sequence[int]) -> Tensor:
    """Uniform int32 words ``(*index.shape, *shape)``: each sample has two key words and counts its elements."""
    seeds, epoch, index = position
    runs = index.shape[0] if index.dim() == 2 else 1
    if len(seeds) != runs:
        raise ActlabError(
            f"a position has {len(seeds)} seeds and an index of shape {tuple(index.shape)}; "
            "give one seed for (B,), R seeds for (R, B)"
        )
    first, second = _keys(seeds, purpose, epoch, index.device)
    sample = hash_words(index.to(torch.int32), first, second).unsqueeze(-1)  # (2, R, B, 1)
    elements = torch.arange(math.prod(shape), dtype=torch.int32, device=index.device)
    return hash_words(elements, sample[0], sample[1]).view(*index.shape, *shape)


@lru_cache(maxsize=64)
def _keys(seeds: tuple[int, ...], purpose: str, epoch: int, device: torch.device) -> Tensor:
    """The two key words of each run, in this order and in the other: int32 ``(2, 2, R, 1)``."""
    words = key_words([seed_for(seed, purpose, epoch) for seed in seeds]).unsqueeze(-1)
    return torch.stack((words, words.flip(0))).to(device)
