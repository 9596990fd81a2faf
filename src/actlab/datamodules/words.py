"""Features of words, from Brown clusters or from word vectors; only needed words stay in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_info
from torch import Tensor

from actlab.datamodules.lines import lines
from actlab.errors import ActlabError

PADDING = 0  # table row for the padding at a tweet's ends
UNKNOWN = 1  # table row for words without features
FIRST_WORD = 2  # first table row of the words
BITS = 16  # length of the longest path of a cluster
# As in embeddings-twitter.txt (GELU §3.3)
PADDING_WORD = "</s>"
UNKNOWN_WORD = "UUUNKKK"
_CLUSTER = re.compile(rf"([01]{{1,{BITS}}})\t([^\t]+)\t\d+")
_HEADER = re.compile(r"\s*(\d{1,15})\s+(\d{1,15})\s*")
_LARGEST = float(np.finfo(np.float32).max)
Numbers = np.ndarray[Any, np.dtype[np.float64]]
say_once = lru_cache(rank_zero_info)  # per process, on rank 0 only


class WordFeatures(NamedTuple):
    """The input features of words."""

    rows: dict[str, int]  # of each word in the table; all other words use row `UNKNOWN`
    table: Tensor  # float32 (V + 2, D)


def read_clusters(path: Path, needed: Set[str]) -> WordFeatures:
    """Return the features of words from their Brown clusters, D = 34.

    Each of up to 16 bits of a path, from the root, becomes a pair: (1, 0) for 0, (0, 1) for 1, and
    (0, 0) after the end of the path. Two flags follow: word without a cluster, and padding at a
    tweet's ends.

    Args:
        path: of a file with the columns ``path TAB word TAB count``. A word listed twice gets its
            first path.
        needed: the words of the tweets.

    Raises:
        ActlabError: if the file is malformed, or has none of the words.
    """
    # Read the paths of the words.
    paths: dict[str, str] = {}
    for number, line in lines(path):
        if not line:
            continue
        cluster = _CLUSTER.fullmatch(line)
        if cluster is None:
            raise ActlabError(
                f"{path}, line {number}: expected a path of 1 to {BITS} bits, a tab, the word, a "
                f"tab and its count, got {line[:60]!r}. For a file of word vectors, set "
                "data.vectors."
            )
        bits, word = cluster.groups()
        if word in needed:
            paths.setdefault(word, bits)

    # Set the flags.
    table = torch.zeros(len(paths) + FIRST_WORD, 2 * BITS + 2)
    table[UNKNOWN, -2] = 1
    table[PADDING, -1] = 1

    # Set a number of each pair.
    rows = _rows(paths, needed, path)
    ones = []
    for word, bits in paths.items():
        for i, bit in enumerate(bits):
            ones.append((rows[word], 2 * i + int(bit)))
    table[tuple(torch.tensor(ones).T)] = 1
    return WordFeatures(rows, table)


def _rows(words: Iterable[str], needed: Set[str], path: Path) -> dict[str, int]:
    """Return the table rows of the needed words, in the order of the file."""
    rows: dict[str, int] = {}
    for word in words:
        if word in needed:
            rows[word] = FIRST_WORD + len(rows)
    if not rows:
        raise ActlabError(
            f"{path} is empty or has none of the {len(needed)} words of the tweets. Check that it "
            "is the right file."
        )
    return rows


def read_vectors(path: Path, needed: Set[str]) -> WordFeatures:
    """Return the vectors of words, with D as in the file.

    Padding at a tweet's ends gets the vector of ``</s>``, and words without a vector get the vector
    of ``UUUNKKK``. If the file lacks these two, padding gets zeros and unknown words get the mean
    of all vectors in the file, and a message is printed once.

    Args:
        path: of a file whose lines hold a word and its numbers, separated by spaces or tabs. A
            header line ``words numbers``, as word2vec writes it, is optional. A word listed twice
            gets its first vector.
        needed: the words of the tweets.

    Raises:
        ActlabError: if the file is malformed or cut off, or has none of the words.
    """
    # Read the vectors.
    vectors: dict[str, Numbers] = {}
    total = np.zeros(1)
    size = count = 0
    stated_count = None
    for number, line in lines(path):
        header = _HEADER.fullmatch(line) if number == 1 else None
        if header is not None:
            stated_count, size = int(header[1]), int(header[2])
        elif line.strip(" "):
            # At spaces and tabs alone: a word may be another white space; it may have
            # several parts.
            fields = [field for field in line.replace("\t", " ").split(" ") if field]
            size = size or max(1, len(fields) - 1)
            vector = _vector(fields[-size:])
            if vector is None or len(fields) <= size:
                raise ActlabError(
                    f"{path}, line {number}: expected a word and {size} numbers, finite in "
                    f"float32, got {line[:60]!r}"
                )
            total = total + vector
            count += 1
            word = " ".join(fields[:-size])
            if word in needed or word in (PADDING_WORD, UNKNOWN_WORD):
                vectors.setdefault(word, vector)
    if stated_count not in (None, count):
        raise ActlabError(
            f"{path}: expected {stated_count} words, as in its header, got {count}. Fetch it again."
        )

    # Fill the table.
    rows = _rows(vectors, needed, path)
    table = np.empty((len(rows) + FIRST_WORD, total.size), np.float32)
    table[PADDING] = vectors.get(PADDING_WORD, 0)
    table[UNKNOWN] = vectors.get(UNKNOWN_WORD, total / count)
    table[FIRST_WORD:] = [vectors[word] for word in rows]

    # Say what replaces a missing vector.
    missing = [word for word in (PADDING_WORD, UNKNOWN_WORD) if word not in vectors]
    if missing:
        replacement = "padding gets zeros, unknown words the mean of all vectors"
        say_once(f"{path} has no vector of {' and '.join(missing)}: {replacement}")
    return WordFeatures(rows, torch.from_numpy(table))


def _vector(fields: Sequence[str]) -> Numbers | None:
    """Return fields as numbers, None if they are not numbers that are finite in float32."""
    try:
        vector = np.array(fields, float)
    except ValueError:
        return None
    return vector if (np.abs(vector) <= _LARGEST).all() else None
