"""Which files of a folder belong to which split: the reader guesses by names, and a wrong guess is refused.

It takes a file twice whose folder and name both tell a split, leaves out files of a second folder, and does not
miss a part that was never downloaded.
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
    """Whether a dataset's ``README.md`` says itself which files its splits have."""
    return card.is_file() and _CONFIGS.search(regular(card).read_text("utf-8", "replace")) is not None


def check_splits(
    splits: Mapping[str, Sequence[str]], files: Sequence[Path], folder: Path, stated: bool = False
) -> None:
    """Refuse files that the reader takes twice, or from several datasets, or leaves out.

    Args:
        splits: the files of each, below the folder, as the reader has found them.
        files: all that are there.
        folder: where they lie.
        stated: whether they are the dataset's own statement, and not a guess.

    Raises:
        ActlabError: for the first such file.
    """
    owners: dict[str, str] = {}
    for split, names in splits.items():
        for name in names:
            if name in owners:
                twice = f"{split!r}" if owners[name] == split else f"{owners[name]!r} and {split!r}"
                raise ActlabError(
                    f"{folder / name} would be read twice, as {twice}: its path tells a split twice; {REMEDY}"
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
            raise ActlabError(f"{file} would be left out, beside {next(iter(owners), 'nothing')}; {REMEDY}")


def check_parts(files: Sequence[Path]) -> None:
    """Refuse files of which some parts are missing, or that are there in two divisions into parts.

    Raises:
        ActlabError: for the first part that is not there.
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
                "take one of these out"
            )
        for count, numbers in counts.items():
            if missing := sorted(set(range(count)) - numbers):
                raise ActlabError(
                    f"{stem}-{missing[0]:05}-of-{count:05}.parquet is missing, {len(missing)} of {count} parts "
                    "in all; fetch it"
                )
