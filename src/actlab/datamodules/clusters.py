"""Brown clusters as word features: the bits of each word's path, one-hot encoded.

Shapes: ``V`` words, ``D`` features.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from actlab.datamodules.lines import decoded, lines
from actlab.errors import ActlabError

PADDING, UNKNOWN, FIRST = 0, 1, 2  # table rows: padding at a tweet's ends, words without features, first word
BITS = 16  # length of the longest path
UNKNOWN_FLAG, BOUNDARY_FLAG = 2 * BITS, 2 * BITS + 1


class WordFeatures(NamedTuple):
    """The input features of words.

    Args:
        rows: maps each word to its row in the table; all other words use row `UNKNOWN`.
        table: float32 ``(V + 2, D)``.
    """

    rows: dict[str, int]
    table: Tensor


def read_clusters(path: Path, needed: Set[str]) -> WordFeatures:
    """Return the features of words from their Brown clusters, D = 34.

    Each of up to 16 bits of a path, from the root, becomes a pair: (1, 0) for 0, (0, 1) for 1, and (0, 0) after
    the end of the path. Two flags follow: word without a cluster, and padding at a tweet's ends.

    Args:
        path: of a file, plain or gzipped, with the columns ``path TAB word TAB count``.
        needed: the words to keep; a word listed twice gets its first path.

    Raises:
        ActlabError: if the file cannot be read, a line is malformed, or no needed word is found.
    """
    paths: dict[str, bytes] = {}
    for number, line in lines(path):
        if not line:
            continue
        bits, word, count = _columns(line, path, number)
        if not bits or bits.strip(b"01") or len(bits) > BITS or not word or not count.isdigit():
            raise ActlabError(
                f"{path}, line {number}: {line[:60]!r} is no cluster; expected a path of 1 to {BITS} bits, a "
                "tab, the word, a tab and its count"
            )
        if (text := decoded(word, path, number)) in needed:
            paths.setdefault(text, bits)
    check_found(paths, needed, path)
    table = torch.zeros(len(paths) + FIRST, 2 * BITS + 2)
    table[UNKNOWN, UNKNOWN_FLAG] = table[PADDING, BOUNDARY_FLAG] = 1
    ones = [
        (row, 2 * i + bit - ord("0")) for row, b in enumerate(paths.values(), FIRST) for i, bit in enumerate(b)
    ]
    table[tuple(torch.tensor(ones).T)] = 1
    return WordFeatures({word: row for row, word in enumerate(paths, FIRST)}, table)


def check_found(found: object, needed: Set[str], path: Path) -> None:
    """Check that a file contains at least one needed word.

    Args:
        found: the words found, as a container; empty if there are none.
        needed: all needed words.
        path: of the file.

    Raises:
        ActlabError: if ``found`` is empty.
    """
    if not found:
        raise ActlabError(
            f"{path} is empty or holds none of the {len(needed)} words of the tweets; check that it is the "
            "right file"
        )


def _columns(line: bytes, path: Path, number: int) -> tuple[bytes, bytes, bytes]:
    columns = line.split(b"\t")
    if len(columns) != 3:
        raise ActlabError(
            f"{path}, line {number} has {len(columns)} columns; a file of clusters has 3, separated by tabs: "
            "path, word and count. For a file of word vectors, set data.vectors"
        )
    return columns[0], columns[1], columns[2]
