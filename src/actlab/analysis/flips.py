"""Patterns of signs: every one of few differences, drawn ones of many."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

EXACT = 20  # 2^20 patterns take 8 MB; of more differences they are drawn
_DRAWS = 100_000
_AT_ONCE = 5_000  # of these in a product, which takes them as floats: for the sake of memory


def flipped_sums(d: Array, seed: int) -> Array:
    """The sum of the differences under every pattern of signs, or under drawn ones when those are too many."""
    if d.size > EXACT:
        return np.asarray(d.sum() - 2 * _sums_of_turned(d, seed), float)
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def parts(d: Array, seed: int) -> tuple[Array, Array]:
    """Sum and size of every part of the differences, or of drawn ones when those are too many."""
    if d.size > EXACT:
        return _sums_of_turned(d, seed), _sizes(d.size, seed)
    sums, sizes = np.zeros(1), np.zeros(1)
    for value in d:
        sums = np.concatenate([sums, sums + value])
        sizes = np.concatenate([sizes, sizes + 1])
    return sums, sizes


@lru_cache(maxsize=1)  # the tests of a table mostly have as many pairs
def drawn(n: int, seed: int = 0) -> npt.NDArray[np.bool_]:
    """Drawn patterns for n differences: which of them turn, a row each."""
    return np.asarray(np.random.default_rng(seed).integers(0, 2, (_DRAWS, n), dtype=np.int8) == 0)


def _sums_of_turned(d: Array, seed: int) -> Array:
    """The sum of the differences that turn, for each of the drawn patterns."""
    turned = drawn(d.size, seed)
    return np.concatenate([turned[i : i + _AT_ONCE] @ d for i in range(0, _DRAWS, _AT_ONCE)])


@lru_cache(maxsize=1)
def _sizes(n: int, seed: int) -> Array:
    """How many differences turn, for each of the drawn patterns."""
    return _sums_of_turned(np.ones(n), seed)
