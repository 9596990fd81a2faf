"""Read word vectors from text files of any size; only the needed words are kept in memory.

Shapes: ``V`` words, ``D`` numbers per vector.
"""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_info

from actlab.datamodules.clusters import FIRST, PADDING, UNKNOWN, WordFeatures, check_found
from actlab.datamodules.lines import decoded, lines
from actlab.errors import ActlabError

PADDING_WORD, UNKNOWN_WORD = "</s>", "UUUNKKK"  # as in embeddings-twitter.txt (GELU §3.3)
_LARGEST = float(np.finfo(np.float32).max)
Numbers = np.ndarray[Any, np.dtype[np.float64]]


def read_vectors(path: Path, needed: Set[str]) -> WordFeatures:
    """Return the vectors of words, with D as in the file.

    A line holds a word and its numbers, separated by spaces or a tab. A header line ``words numbers``, as
    word2vec writes it, is optional. Padding at a tweet's ends gets the vector of ``</s>``, and words without a
    vector get the vector of ``UUUNKKK``. If the file lacks these two, padding gets zeros and unknown words get
    the mean of all vectors in the file, and a message is printed once. The mean depends only on the file, so it
    contains no test data.

    Args:
        path: of the file, plain or gzipped.
        needed: the words to keep; a word listed twice gets its first vector.

    Raises:
        ActlabError: if the file cannot be read, vectors differ in length, a number is not finite, the header
            does not match the file, or no needed word is found.
    """
    kept: dict[str, Numbers] = {}
    header: tuple[int, int] | None = None
    total, size, count = np.zeros(1), 0, 0
    for number, raw in lines(path):
        line = decoded(raw, path, number)
        if number == 1 and (header := _parse_header(line)):
            size = header[1]
        elif line.strip(" "):
            word, vector = _parse_vector(line, size, f"{path}, line {number}")
            total, size, count = total + vector, len(vector), count + 1
            if word in needed or word in (PADDING_WORD, UNKNOWN_WORD):
                kept.setdefault(word, vector)
    if header and header[0] != count:
        raise ActlabError(f"{path}: its header says {header[0]} words, but it has {count}; fetch it again")
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


def _parse_header(line: str) -> tuple[int, int] | None:
    """Return the number of words and D if the line holds only these two numbers, otherwise None."""
    fields = line.split()
    whole = len(fields) == 2 and all(field.isdecimal() and len(field) < 16 for field in fields)
    return (int(fields[0]), int(fields[1])) if whole else None


def _parse_vector(line: str, size: int, where: str) -> tuple[str, Numbers]:
    """Return a word and its vector, of ``size`` numbers unless that is 0.

    A word followed by a tab may contain spaces. Without a tab, a word may contain spaces only after the first
    vector: the last ``size`` fields are then the numbers, provided that the field before them is not a number.
    """
    word, tab, rest = line.partition("\t")
    fields = _fields(rest.replace("\t", " ") if tab else line)
    if not tab:
        begin = len(fields) - size if size and len(fields) > size + 1 else 1
        if begin > 1 and _is_number(fields[begin - 1]):
            begin = 1
        word, fields = " ".join(fields[:begin]), fields[begin:]
    try:
        vector = np.array(list(map(_number if "_" in "".join(fields) else float, fields)))
    except ValueError:
        wrong = next(field for field in fields if not _is_number(field))
        raise ActlabError(f"{where}: {wrong[:60]!r} is not a number") from None
    if not size and not len(vector):
        raise ActlabError(f"{where} has no numbers; expected a word and the numbers of its vector")
    if size and len(vector) != size:
        raise ActlabError(f"{where} has {len(vector)} numbers, but those before it, or the header, have {size}")
    if (wrong := ~(np.abs(vector) <= _LARGEST)).any():
        raise ActlabError(f"{where} holds {float(vector[wrong][0])}; all numbers must be finite in float32")
    return word, vector


def _fields(text: str) -> list[str]:
    """Split at spaces only; ``split()`` would also split at other whitespace, which may be a word."""
    fields = text.split(" ")
    return [field for field in fields if field] if "" in fields else fields


def _number(field: str) -> float:
    """Parse a number, but reject ``1_0``, which Python parses as 10."""
    if "_" in field:
        raise ValueError(field)
    return float(field)


def _is_number(field: str) -> bool:
    try:
        _number(field)
    except ValueError:
        return False
    return True


@lru_cache
def say_once(message: str) -> None:
    """Print a message once per process, on rank 0 only."""
    rank_zero_info(message)
