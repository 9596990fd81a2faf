"""Encoded pictures with labels, read one at a time from class folders or from tables of the hub's reader.

Shapes: ``N`` pictures.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from actlab.datamodules.images import IMAGE_COLUMNS, LABEL_COLUMNS, column_of, labels_of
from actlab.errors import ActlabError, one_line
from actlab.storage.files import regular

PARTS = {"train": ("train",), "val": ("val", "validation")}  # split → accepted names of its folder or table
SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")
PARTS_OF_SMALL = {"train": ("train",), "test": ("test", "val", "validation", "valid")}


class Encoded(ABC):
    """The encoded pictures and labels of one split.

    Attributes:
        labels: ``(N,)`` int64.
        num_classes: K.
    """

    labels: Tensor
    num_classes: int

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def read(self, number: int) -> bytes:
        """Return the bytes of one picture's file."""

    @abstractmethod
    def name(self, number: int) -> str:
        """Return the name of one picture for messages."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """A digest that identifies the pictures, computed without reading all of them."""


class Files(Encoded):
    """Picture files below a folder.

    The names are stored in one array. A Python list of a million names would gradually be copied into every
    worker process, because reference counting writes to its elements.

    Args:
        folder: the root of the names.
        names: paths of the files relative to ``folder``.
        labels: label of each file.
        num_classes: K.
    """

    def __init__(self, folder: Path, names: Sequence[str], labels: Sequence[int], num_classes: int) -> None:
        self.folder, self._names = folder, np.array([os.fsencode(name) for name in names])
        self.labels, self.num_classes = torch.tensor(labels, dtype=torch.int64), num_classes

    def _path(self, number: int) -> Path:
        return self.folder / os.fsdecode(self._names[number])

    def read(self, number: int) -> bytes:
        """Return the bytes of one file."""
        return regular(self._path(number)).read_bytes()

    def name(self, number: int) -> str:
        """Return the path of one file."""
        return str(self._path(number))

    def paths(self) -> list[Path]:
        """Return the paths of all files."""
        return [self._path(number) for number in range(len(self))]

    @property
    def digest(self) -> str:
        """A digest of the folder's path and of the files' names, sizes and modification times."""
        states = (self._path(number).stat() for number in range(len(self)))
        pair = np.dtype((np.int64, 2))
        known = np.fromiter(((state.st_size, state.st_mtime_ns) for state in states), pair, len(self))
        folder = os.fsencode(self.folder.resolve())
        return hashlib.sha256(b"\0".join((folder, self._names.tobytes(), known.tobytes()))).hexdigest()


class Rows(Encoded):
    """Rows of a ``datasets.Dataset``.

    Args:
        table: a dataset with a column of images and a column of labels.
        where: name of the table in messages.
        content: digest of the files; required for local files, because the reader's fingerprint covers only
            their paths and modification times.

    Raises:
        ActlabError: if a column is missing, or a label is not a class.
    """

    def __init__(self, table: Any, where: str, content: str = "") -> None:
        import datasets

        self.where, self._column = where, column_of(table.column_names, IMAGE_COLUMNS, "image", where)
        label = column_of(table.column_names, LABEL_COLUMNS, "label", where)
        self.labels, self.num_classes = labels_of(table, label, where)
        self._digest = f"{table._fingerprint}{content}"
        self._table = table.cast_column(self._column, datasets.Image(decode=False))
        self._copy = next((str(Path(file["filename"]).parent) for file in table.cache_files), "")

    def read(self, number: int) -> bytes:
        """Return the bytes of one picture, from the table or from the file that the table names."""
        found = self._table[number][self._column] or {}
        return found.get("bytes") or regular(Path(found.get("path") or "")).read_bytes()

    def name(self, number: int) -> str:
        """Return the row number of one picture, with the folder of the reader's copy."""
        copy = (
            f" (read from its copy in {self._copy}: delete that if the dataset is whole)" if self._copy else ""
        )
        return f"image {number} of the {self.where}{copy}"

    @property
    def digest(self) -> str:
        """The reader's fingerprint followed by ``content``."""
        return self._digest


def rows_of(tables: Any, given: str, content: str = "") -> dict[str, Encoded]:
    """Return the splits ``train`` and ``val`` of a dataset that the hub's reader has opened.

    Args:
        tables: a ``datasets.DatasetDict``.
        given: the dataset as the user named it.
        content: see `Rows`.

    Raises:
        ActlabError: if a split is missing or unusable, or the splits differ in their number of classes.
    """
    found: dict[str, Encoded] = {}
    for part, names in PARTS.items():
        split = next((name for name in names if name in tables and len(tables[name])), None)
        if split is None:
            raise ActlabError(
                f"dataset {given!r} has no {names[-1]!r} images; it has {', '.join(tables) or 'no splits'}"
            )
        found[part] = Rows(tables[split], f"{split} split of dataset {given!r}", content)
    if found["train"].num_classes != found["val"].num_classes:
        numbers = " and ".join(str(part.num_classes) for part in found.values())
        raise ActlabError(f"the splits of dataset {given!r} have {numbers} classes; both need the same")
    return found


def layout(parts: Mapping[str, Sequence[str]]) -> str:
    """Return the expected folders in words.

    >>> layout(PARTS)
    'expected are train/CLASS/*.png and val/CLASS/*.png (or validation)'
    """
    others = {names[0]: f" (or {', '.join(names[1:])})" if names[1:] else "" for names in parts.values()}
    return f"expected are {' and '.join(f'{name}/CLASS/*.png{more}' for name, more in others.items())}"


def has_class_folders(folder: Path) -> bool:
    """Return whether a folder has class folders in ``train/``, as torchvision's ``ImageFolder`` reads them."""
    top = folder / "train"
    if not top.is_dir() or any(top.glob("*.parquet")) or any(top.glob("*/*.parquet")):
        return False
    return any(entry.is_dir() for entry in top.iterdir())


def tree(folder: Path, parts: Mapping[str, Sequence[str]] = PARTS) -> dict[str, Files]:
    """Return the splits of a folder tree such as ``train/CLASS/…`` and ``val/CLASS/…`` (or ``validation/``).

    Labels number the classes in order of their names. Hidden files, and files without one of the `SUFFIXES`,
    are skipped.

    Args:
        folder: holds a folder for each split.
        parts: accepted names of the folder of each split.

    Raises:
        ActlabError: if a folder is missing, there are no classes or pictures, or the splits' classes differ.
    """
    tops: dict[str, Path] = {}
    for part, names in parts.items():
        top = next((folder / name for name in names if (folder / name).is_dir()), None)
        if top is None:
            raise ActlabError(f"{folder} has no folder {' or '.join(map(repr, names))}; {layout(parts)}")
        tops[part] = top
    classes = {
        part: _visible(entry.name for entry in os.scandir(top) if entry.is_dir()) for part, top in tops.items()
    }
    for part, found in classes.items():
        if not found:
            raise ActlabError(
                f"{tops[part]} has no class folders; {layout(parts)}. Sort the files by their labels"
            )
    first, *others = parts
    for other in others:
        if alone := sorted(set(classes[first]) ^ set(classes[other])):
            owner = tops[first if alone[0] in classes[first] else other]
            raise ActlabError(
                f"the classes of {tops[first]} and {tops[other]} differ: {alone[0]!r} is only in {owner} "
                f"({len(alone)} such classes in all); both need the same class folders"
            )
    return {part: _files(top, classes[part], layout(parts)) for part, top in tops.items()}


def _files(top: Path, classes: Sequence[str], expected: str) -> Files:
    """Return the pictures of one split, in order of class and name."""
    names: list[str] = []
    labels: list[int] = []
    empty: list[str] = []
    for label, kind in enumerate(classes):
        found = _visible(entry.name for entry in os.scandir(top / kind))
        pictures = [f"{kind}/{name}" for name in found if name.lower().endswith(SUFFIXES)]
        empty += [] if pictures else [kind]
        names += pictures
        labels += [label] * len(pictures)
    if not names:
        raise ActlabError(f"{top} has no pictures in its class folders; {expected}")
    if empty:
        raise ActlabError(
            f"{top / empty[0]} has no pictures ({', '.join(SUFFIXES)}); {len(empty)} of {len(classes)} class "
            "folders have none: unpack them again, or remove them from all splits"
        )
    return Files(top, names, labels, len(classes))


def _visible(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("."))


def unreadable(picture: str, error: BaseException) -> ActlabError:
    """Return the error for a picture that cannot be read or decoded."""
    return ActlabError(f"{picture} cannot be decoded ({one_line(error)}); fetch it again, or remove it")
