"""Word vectors from text files of any size: only the words that are needed are kept in memory.

Shapes: ``V`` words, ``D`` numbers of a vector.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Set
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_info

from actlab.datamodules.clusters import FIRST, PADDING, UNKNOWN, WordFeatures, check_found
from actlab.datamodules.lines import decoded, lines
from actlab.errors import ActlabError

PADDING_WORD, UNKNOWN_WORD = "</s>", "UUUNKKK"  # of embeddings-twitter.txt (GELU §3.3)
CHUNK = 2**17  # numbers that are looked at together
_LARGEST = float(np.finfo(np.float32).max)
Numbers = np.ndarray[Any, np.dtype[np.float64]]


class Chunk(NamedTuple):
    """Some words and their vectors, float64 ``(len(words), D)``."""

    words: list[str]
    vectors: Numbers


def read_vectors(path: Path, needed: Set[str]) -> WordFeatures:
    """The vectors of words, D as the file has it.

    A line is a word and its numbers, with spaces or a tab between; a first line ``words numbers``, as
    word2vec writes it, is optional. Places beyond a tweet's ends have the vector of ``</s>``, words without a
    vector that of ``UUUNKKK``; where the file lacks these, zeros and the mean of all its vectors, which is said
    once. That mean is of the file alone, so no test data is in it.

    Args:
        path: of the file, which may be gzipped.
        needed: the words to keep; a word that stands twice has its first vector.

    Raises:
        ActlabError: for a file that cannot be read, vectors of different lengths, what is no finite number, a
            header that the file does not keep, or no word that is needed.
    """
    kept: dict[str, Numbers] = {}
    total, count = np.zeros(1), 0
    for words, vectors in chunks(path):
        total, count = total + vectors.sum(axis=0), count + len(words)
        for word, vector in zip(words, vectors, strict=True):
            if (word in needed or word in (PADDING_WORD, UNKNOWN_WORD)) and word not in kept:
                kept[word] = vector.copy()  # a view would keep the chunk
    mine = [word for word in kept if word in needed]
    check_found(mine, needed, path)
    table = np.empty((len(mine) + FIRST, total.size), np.float32)
    table[PADDING] = kept.get(PADDING_WORD, 0)
    table[UNKNOWN] = kept.get(UNKNOWN_WORD, total / count)
    table[FIRST:] = [kept[word] for word in mine]
    for word, place, instead in (
        (PADDING_WORD, "places beyond a tweet's ends", "zeros"),
        (UNKNOWN_WORD, "unknown words", "the mean of its vectors"),
    ):
        if word not in kept:
            say_once(f"{path} has no vector of {word!r}: {place} are given {instead}")
    return WordFeatures({word: row for row, word in enumerate(mine, FIRST)}, torch.from_numpy(table))


def chunks(path: Path) -> Iterator[Chunk]:
    """All vectors of a file in order, some at a time, each of them checked.

    Raises:
        ActlabError: as `read_vectors`.
    """
    header: tuple[int, int] | None = None
    words: dict[int, str] = {}  # by the number of their line
    numbers = array("d")
    size = read = 0
    for number, raw in lines(path):
        line = decoded(raw, path, number)
        if (number == 1 and (header := _header(line))) or not line.strip(" "):
            continue
        where = f"{path}, line {number}"
        word, values = _vector(line, size, where)
        size = size or _size(values, header, where)
        words[number] = word
        numbers.extend(values)
        read += 1
        if len(numbers) >= CHUNK:
            yield _chunk(words, numbers, size, path)
            words, numbers = {}, array("d")
    if header and header[0] != read:
        raise ActlabError(f"{path}: its header says {header[0]} words, but it has {read}; fetch it anew")
    if words:
        yield _chunk(words, numbers, size, path)


def _header(line: str) -> tuple[int, int] | None:
    """The numbers of words and of each vector, if a file's first line says only these."""
    fields = line.split()
    whole = len(fields) == 2 and all(field.isdecimal() and len(field) < 16 for field in fields)
    return (int(fields[0]), int(fields[1])) if whole else None


def _size(values: list[float], header: tuple[int, int] | None, where: str) -> int:
    """D, as the first vector has it."""
    if not values:
        raise ActlabError(f"{where} has no numbers; a line is a word and the numbers of its vector")
    if header and header[1] != len(values):
        raise ActlabError(f"{where} has {len(values)} numbers, but the file's header says {header[1]}")
    return len(values)


def _vector(line: str, size: int, where: str) -> tuple[str, list[float]]:
    """A word and its numbers.

    Where a tab follows the word it may hold spaces; without one, it may if ``size``, that of the vectors
    before, tells where the numbers begin and what stands before them is no number.
    """
    word, tab, rest = line.partition("\t")
    fields = _fields(rest.replace("\t", " ") if tab else line)
    if not tab:
        begin = len(fields) - size if size and len(fields) > size + 1 else 1
        if begin > 1 and _is_number(fields[begin - 1]):
            begin = 1
        word, fields = " ".join(fields[:begin]), fields[begin:]
    try:
        values = list(map(_number if "_" in "".join(fields) else float, fields))
    except ValueError:
        wrong = next(field for field in fields if not _is_number(field))
        raise ActlabError(f"{where}: {wrong[:60]!r} is no number") from None
    if size and len(values) != size:
        raise ActlabError(f"{where} has {len(values)} numbers, the vectors before it {size}")
    return word, values


def _fields(text: str) -> list[str]:
    """What spaces separate; ``split()`` would take other blanks too, and one of these may be a word."""
    fields = text.split(" ")
    return [field for field in fields if field] if "" in fields else fields


def _number(field: str) -> float:
    """A number as files have it: not ``1_0``, which Python takes for 10."""
    if "_" in field:
        raise ValueError(field)
    return float(field)


def _is_number(field: str) -> bool:
    try:
        _number(field)
    except ValueError:
        return False
    return True


def _chunk(words: dict[int, str], numbers: array[float], size: int, path: Path) -> Chunk:
    """The numbers as vectors, each of which float32 can hold."""
    vectors: Numbers = np.frombuffer(numbers, np.float64).reshape(-1, size)
    wrong = ~(np.abs(vectors) <= _LARGEST)
    if wrong.any():
        line = list(words)[int(wrong.any(1).argmax())]
        raise ActlabError(f"{path}, line {line} holds {float(vectors[wrong][0])}; finite numbers are needed")
    return Chunk(list(words.values()), vectors)


@lru_cache
def say_once(message: str) -> None:
    """Print a message, unless this process has printed it before."""
    rank_zero_info(message)
