"""Brown clusters as features of words: the bits of each word's path, one-hot.

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

PADDING, UNKNOWN, FIRST = 0, 1, 2  # rows of a table: beyond a tweet's ends, words without features, the words
BITS = 16  # of the longest path
UNKNOWN_FLAG, BOUNDARY_FLAG = 2 * BITS, 2 * BITS + 1


class WordFeatures(NamedTuple):
    """What a network is given of words.

    Args:
        rows: word → its row in the table; other words have row `UNKNOWN`.
        table: float32 ``(V + 2, D)``.
    """

    rows: dict[str, int]
    table: Tensor


def read_clusters(path: Path, needed: Set[str]) -> WordFeatures:
    """The features of words by their Brown clusters, D = 34.

    Each of up to 16 bits of a path, from the root, is a pair: (1, 0) for 0, (0, 1) for 1, (0, 0) where the path
    has ended. Then a flag of words that have no cluster, and one of places beyond the tweet's ends.

    Args:
        path: of a file with the columns ``path TAB word TAB count``, which may be gzipped.
        needed: the words to keep; a word that stands twice has its first path.

    Raises:
        ActlabError: for a file that cannot be read, a line that has another form, or no word that is needed.
    """
    paths: dict[str, bytes] = {}
    for number, line in lines(path):
        if not line:
            continue
        bits, word, count = _columns(line, path, number)
        if not bits or bits.strip(b"01") or len(bits) > BITS or not word or not count.isdigit():
            raise ActlabError(
                f"{path}, line {number}: {line[:60]!r} is no cluster; needed are a path of 1 to {BITS} bits, a "
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
    """Refuse a file that knows none of the words.

    Raises:
        ActlabError: when nothing was found.
    """
    if not found:
        raise ActlabError(
            f"{path} is empty or holds none of the {len(needed)} words that are needed; is it the right file?"
        )


def _columns(line: bytes, path: Path, number: int) -> tuple[bytes, bytes, bytes]:
    columns = line.split(b"\t")
    if len(columns) != 3:
        raise ActlabError(
            f"{path}, line {number} has {len(columns)} columns; clusters have 3: path, word and count, with "
            "tabs between. A file of word vectors is named by data.vectors"
        )
    return columns[0], columns[1], columns[2]
