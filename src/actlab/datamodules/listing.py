"""Check which files of a folder the hub's reader assigns to which split.

The reader guesses splits from file names. It reads a file twice if its folder and its name both name a split,
ignores files in a second folder, and does not detect shards that were never downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from actlab.errors import ActlabError
from actlab.storage.files import regular

REMEDY = (
    "give the folder of one dataset, with its splits in folders or files called train and test, or name the "
    "files of each split in a README.md (configs: data_files)"
)
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.parquet")
_CONFIGS = re.compile("^configs:", re.MULTILINE)
_SPLIT = re.compile(r"train|test|valid", re.IGNORECASE)


def names_files(card: Path) -> bool:
    """Return whether a dataset's ``README.md`` lists the files of its splits."""
    return card.is_file() and _CONFIGS.search(regular(card).read_text("utf-8", "replace")) is not None


def check_splits(
    splits: Mapping[str, Sequence[str]], files: Sequence[Path], folder: Path, stated: bool = False
) -> None:
    """Check that the reader neither reads a file twice, nor mixes datasets, nor skips a file.

    Args:
        splits: the files that the reader found for each split, relative to ``folder``.
        files: all parquet files of the folder.
        folder: of the dataset.
        stated: whether the dataset's ``README.md`` lists the files; otherwise the reader guessed the splits.

    Raises:
        ActlabError: for the first wrong assignment.
    """
    owners: dict[str, str] = {}
    for split, names in splits.items():
        for name in names:
            if name in owners:
                twice = f"{split!r}" if owners[name] == split else f"{owners[name]!r} and {split!r}"
                raise ActlabError(
                    f"{folder / name} would be read twice, as {twice}: its path names a split twice; {REMEDY}"
                )
            owners[name] = split
        if not stated and len(parents := {Path(name).parent for name in names}) > 1:
            first, second = sorted(parents)[:2]
            raise ActlabError(
                f"{folder}: {split!r} would be put together from {str(first)!r} and {str(second)!r}; {REMEDY}"
            )
    for file in files:
        name = str(file.relative_to(folder))
        if not stated and name not in owners and _SPLIT.search(name):
            raise ActlabError(
                f"{file} would be left out; the first file read is {next(iter(owners), 'none')}; {REMEDY}"
            )


def check_parts(files: Sequence[Path]) -> None:
    """Check that every file split into shards ``…-00000-of-00002.parquet`` has all shards, of one count.

    Raises:
        ActlabError: for the first missing shard, or for shards with different counts.
    """
    found: dict[Path, dict[int, set[int]]] = {}
    for file in files:
        if match := _PART.fullmatch(file.name):
            number, count = int(match[2]), int(match[3])
            found.setdefault(file.parent / match[1], {}).setdefault(count, set()).add(number)
    for stem, counts in found.items():
        if len(counts) > 1:
            raise ActlabError(
                f"{stem.parent} holds {stem.name!r} in {' and in '.join(map(str, sorted(counts)))} parts; "
                "keep the parts of only one count"
            )
        for count, numbers in counts.items():
            if missing := sorted(set(range(count)) - numbers):
                raise ActlabError(
                    f"{stem}-{missing[0]:05}-of-{count:05}.parquet is missing, {len(missing)} of {count} parts "
                    "in all; fetch it"
                )
