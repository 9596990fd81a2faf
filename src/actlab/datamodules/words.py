"""Features of words, from Brown clusters or from word vectors; only the needed words are kept in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pytorch_lightning.utilities import rank_zero_info
from torch import Tensor

from actlab.datamodules.lines import lines
from actlab.errors import ActlabError

# Table rows: padding at a tweet's ends, words without features, first word
PADDING, UNKNOWN, FIRST = (
    0,
    1,
    2,
)
BITS = 16  # length of the longest path of a cluster
PADDING_WORD, UNKNOWN_WORD = "</s>", "UUUNKKK"  # as in embeddings-twitter.txt (GELU §3.3)
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
    tweet's ends. The columns of the file are ``path TAB word TAB count``. A word listed twice gets
    its first path.
    """
    paths: dict[str, str] = {}
    for number, line in lines(path):
        if not line:
            continue
        if not (cluster := _CLUSTER.fullmatch(line)):
            raise ActlabError(
                f"{path}, line {number}: {line[:60]!r} is no cluster; expected a path of 1 to {BITS} bits, a "
                "tab, the word, a tab and its count. For a file of word vectors, set data.vectors"
            )
        bits, word = cluster.groups()
        if word in needed:
            paths.setdefault(word, bits)
    table = torch.zeros(len(paths) + FIRST, 2 * BITS + 2)
    table[UNKNOWN, -2] = table[PADDING, -1] = 1
    rows = _rows(paths, needed, path)
    ones = [
        (rows[word], 2 * i + int(bit)) for word, bits in paths.items() for i, bit in enumerate(bits)
    ]
    table[tuple(torch.tensor(ones).T)] = 1
    return WordFeatures(rows, table)


def _rows(words: Iterable[str], needed: Set[str], path: Path) -> dict[str, int]:
    if rows := {
        word: row for row, word in enumerate((word for word in words if word in needed), FIRST)
    }:
        return rows
    raise ActlabError(
        f"{path} is empty or holds none of the {len(needed)} words of the tweets; check that it is the right "
        "file"
    )


def read_vectors(path: Path, needed: Set[str]) -> WordFeatures:
    """Return the vectors of words, with D as in the file.

    A line holds a word and its numbers, separated by spaces or tabs. A header line ``words
    numbers``, as word2vec writes it, is optional. Padding at a tweet's ends gets the vector of
    ``</s>``, and words without a vector get that of ``UUUNKKK``. If the file lacks these two,
    padding gets zeros and unknown words get the mean of all vectors in the file, and a message is
    printed once. A word listed twice gets its first vector.
    """
    kept: dict[str, Numbers] = {}
    total, size, count, header = np.zeros(1), 0, 0, -1
    for number, line in lines(path):
        if number == 1 and (match := _HEADER.fullmatch(line)):
            header, size = map(int, match.groups())
        elif line.strip(" "):
            # At spaces and tabs alone: a word may be another white space; it may have several
            # parts.
            fields = [field for field in line.replace("\t", " ").split(" ") if field]
            size = size or max(1, len(fields) - 1)
            try:
                vector = np.array(fields[-size:], float)
            except ValueError:
                vector = np.array([np.nan])
            if len(fields) <= size or not (np.abs(vector) <= _LARGEST).all():
                expected = f"a word and {size} numbers, finite in float32"
                raise ActlabError(
                    f"{path}, line {number}: {line[:60]!r} is malformed; expected {expected}"
                )
            word, total, count = " ".join(fields[:-size]), total + vector, count + 1
            if word in needed or word in (PADDING_WORD, UNKNOWN_WORD):
                kept.setdefault(word, vector)
    if header not in (-1, count):
        raise ActlabError(
            f"{path}: its header says {header} words, but it has {count}; fetch it again"
        )
    rows = _rows(kept, needed, path)
    table = np.empty((len(rows) + FIRST, total.size), np.float32)
    table[PADDING] = kept.get(PADDING_WORD, 0)
    table[UNKNOWN] = kept.get(UNKNOWN_WORD, total / count)
    table[FIRST:] = [kept[word] for word in rows]
    if missing := [word for word in (PADDING_WORD, UNKNOWN_WORD) if word not in kept]:
        instead = "padding gets zeros, unknown words the mean of all vectors"
        say_once(f"{path} has no vector of {' and '.join(missing)}: {instead}")
    return WordFeatures(rows, torch.from_numpy(table))
