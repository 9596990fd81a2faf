"""Encoded pictures with labels, read one at a time: files in folders of classes, or rows of the hub's tables.

Shapes: ``N`` pictures.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from actlab.datamodules.images import IMAGE_COLUMNS, LABEL_COLUMNS, column_of, labels_of, words
from actlab.errors import ActlabError
from actlab.storage.files import regular

PARTS = {"train": ("train",), "val": ("val", "validation")}  # part → what its folder or split may be called
SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")
LAYOUT = "expected are train/CLASS/*.JPEG and val/CLASS/*.JPEG (or validation)"


class Encoded(ABC):
    """The pictures of one part, as files hold them.

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
        """The file of one picture."""

    @abstractmethod
    def name(self, number: int) -> str:
        """What one picture is called in messages."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """What pictures these are, known without reading them all."""


class Files(Encoded):
    """Files below a folder.

    Their names are kept as one array: Python's own lists of a million names are copied bit by bit into every
    worker, since counting references writes to them.

    Args:
        folder: that the names begin in.
        names: of the files.
        labels: of each.
        num_classes: K.
    """

    def __init__(self, folder: Path, names: Sequence[str], labels: Sequence[int], num_classes: int) -> None:
        self.folder, self._names = folder, np.array([os.fsencode(name) for name in names])
        self.labels, self.num_classes = torch.tensor(labels, dtype=torch.int64), num_classes

    def _path(self, number: int) -> Path:
        return self.folder / os.fsdecode(self._names[number])

    def read(self, number: int) -> bytes:
        """The file."""
        return regular(self._path(number)).read_bytes()

    def name(self, number: int) -> str:
        """Its path."""
        return str(self._path(number))

    @property
    def digest(self) -> str:
        """Of the folder, and the names, sizes and times of the files: nothing is read."""
        states = (self._path(number).stat() for number in range(len(self)))
        pair = np.dtype((np.int64, 2))
        known = np.fromiter(((state.st_size, state.st_mtime_ns) for state in states), pair, len(self))
        folder = os.fsencode(self.folder.resolve())
        return hashlib.sha256(b"\0".join((folder, self._names.tobytes(), known.tobytes()))).hexdigest()


class Rows(Encoded):
    """Rows of a table of the hub's reader, a ``datasets.Dataset``.

    Args:
        table: has a column of images and one of labels.
        where: the table in messages.
        content: digest of the files, where the reader's own fingerprint is of their paths and times alone.

    Raises:
        ActlabError: for missing columns, and for labels that are no classes.
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
        """The bytes in the table, or those of the file that it names."""
        found = self._table[number][self._column] or {}
        return found.get("bytes") or regular(Path(found.get("path") or "")).read_bytes()

    def name(self, number: int) -> str:
        """Its number in the table, and where the reader's copy of it lies."""
        copy = (
            f" (read from its copy in {self._copy}: delete that if the dataset is whole)" if self._copy else ""
        )
        return f"image {number} of the {self.where}{copy}"

    @property
    def digest(self) -> str:
        """The reader's own fingerprint, with that of the content."""
        return self._digest


def rows_of(tables: Any, given: str, content: str = "") -> dict[str, Encoded]:
    """Both parts of a dataset of the hub's reader.

    Args:
        tables: a ``datasets.DatasetDict``.
        given: the dataset as the user named it.
        content: as of `Rows`.

    Raises:
        ActlabError: when a part is missing or cannot be used, or the parts have other classes.
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


def tree(folder: Path) -> dict[str, Encoded]:
    """Both parts of a tree ``train/CLASS/…`` and ``val/CLASS/…`` (or ``validation/``).

    Labels number the classes by name. Files of other kinds than `SUFFIXES`, and hidden ones, are left out.

    Raises:
        ActlabError: when a folder is missing, there are no classes or pictures, or the parts' classes differ.
    """
    tops: dict[str, Path] = {}
    for part, names in PARTS.items():
        top = next((folder / name for name in names if (folder / name).is_dir()), None)
        if top is None:
            raise ActlabError(f"{folder} has no folder {' or '.join(map(repr, names))}; {LAYOUT}")
        tops[part] = top
    classes = {
        part: _visible(entry.name for entry in os.scandir(top) if entry.is_dir()) for part, top in tops.items()
    }
    for part, found in classes.items():
        if not found:
            raise ActlabError(
                f"{tops[part]} has no class folders; {LAYOUT}. Sort the files into folders by their labels"
            )
    if alone := sorted(set(classes["train"]) ^ set(classes["val"])):
        owner = tops["train" if alone[0] in classes["train"] else "val"]
        raise ActlabError(
            f"the classes of {tops['train']} and {tops['val']} differ: {alone[0]!r} is in {owner} alone, "
            f"{len(alone)} of this kind in all; both need the same class folders"
        )
    return {part: _files(top, classes[part]) for part, top in tops.items()}


def _files(top: Path, classes: Sequence[str]) -> Files:
    """The pictures of one part, by class and name."""
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
        raise ActlabError(f"{top} has no pictures in its class folders; {LAYOUT}")
    if empty:
        raise ActlabError(
            f"{top / empty[0]} has no pictures ({', '.join(SUFFIXES)}), as {len(empty)} of {len(classes)} "
            "classes; unpack them anew, or take these folders out of all parts"
        )
    return Files(top, names, labels, len(classes))


def _visible(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("."))


def unreadable(picture: str, error: BaseException) -> ActlabError:
    """The error for a picture that cannot be read or decoded."""
    return ActlabError(f"{picture} cannot be decoded ({words(error)}); fetch it anew, or take it out")
