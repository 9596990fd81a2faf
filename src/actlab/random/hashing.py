"""Seeds and counter-based hashes, the source of all random numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


def seed_for(seed: int, purpose: str, *position: int | str) -> int:
    """Return a 63-bit seed of a run for a ``purpose`` and ``position``, such as epoch and step."""
    text = ":".join([str(seed), purpose, *map(str, position)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(seed: int, purpose: str, *position: int | str) -> torch.Generator:
    """Return a fresh CPU generator for one purpose and position of a run."""
    return torch.Generator().manual_seed(seed_for(seed, purpose, *position))


def key_words(seeds: Sequence[int]) -> Tensor:
    """Return two int32 words for each of R 63-bit seeds, shape ``(2, R)``."""
    return (
        torch.tensor(seeds, dtype=torch.int64)
        .view(torch.int32)
        .view(-1, 2)
        .t()
        .contiguous()
    )


def hash_words(elements: Tensor, key: Tensor | int, second_key: Tensor) -> Tensor:
    """Hash int32 counters with two broadcast int32 keys and full avalanche to uniform int32 words.

    Two rounds of multiply and xor-shift with the constants of Chris Wellons' ``lowbias32``. Each
    round starts by mixing in a key word, so that the sequences of two keys are not shifts of each
    other.
    """
    # Operations are in place: allocating a tensor for each would cost more than the
    # operation.
    h = elements ^ key
    shifted = h >> 16
    h.bitwise_xor_(shifted.bitwise_and_(0xFFFF)).mul_(0x7FEB352D)

    h.bitwise_xor_(second_key)
    torch.bitwise_right_shift(h, 15, out=shifted)
    # The factor is 0x846CA68B as a signed word.
    h.bitwise_xor_(shifted.bitwise_and_(0x1FFFF)).mul_(-0x7B935975)

    torch.bitwise_right_shift(h, 16, out=shifted)
    return h.bitwise_xor_(shifted.bitwise_and_(0xFFFF))


def to_unit_interval(words: Tensor) -> Tensor:
    """Convert uniform int32 words to uniform float32 multiples of 2⁻²⁴ in [0, 1).

    The words are overwritten.
    """
    return (
        words.bitwise_right_shift_(8)
        .bitwise_and_(0xFFFFFF)
        .to(torch.float32)
        .mul_(2.0**-24)
    )
