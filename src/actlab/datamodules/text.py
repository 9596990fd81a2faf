"""The datamodule of text as bytes: windows of a file, of the files of a folder or of a hub dataset.

Shapes: ``N`` bytes, ``T`` tokens of a window, ``B`` batch, ``R`` runs of a stack.
"""

from __future__ import annotations

import gzip
import lzma
import tempfile
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from actlab.datamodules.base import (
    Batch,
    Draws,
    TensorDataModule,
    TensorDataset,
    dataset_or,
)
from actlab.datamodules.hub import locate
from actlab.datamodules.sources import open_parquet, parquet_files, state
from actlab.errors import ActlabError
from actlab.errors.messages import one_line, unknown
from actlab.random.positions import Position, integers_at
from actlab.storage.files import regular
from actlab.storage.paths import at_home
from actlab.validation import Count, validated

# The default dataset
WIKITEXT = "Salesforce/wikitext"
WIKITEXT_NAME = "wikitext-2-raw-v1"
WIKITEXT_ROWS = {"train": 36_718, "validation": 3_760, "test": 4_358}
BYTES = 256  # the vocabulary
SPLITS = {"train": "train", "val": "validation", "test": "test"}
# First bytes of packed files → what opens them.
_OPENERS: Mapping[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_TEXT_TYPES = ("string", "large_string")  # of columns
Text = Mapping[str, bytes]  # of train, val and test


def draw_windows(text: Tensor, context: int, position: Position) -> Batch:
    """Draw windows of T + 1 bytes at uniform offsets, as inputs and targets ``(…, B, T)``.

    Windows are drawn with replacement.
    """
    # The last window ends with the last byte
    starts = integers_at(position, "windows", len(text) - context)
    offsets = torch.arange(context + 1, device=text.device)
    return shifted(text[starts.unsqueeze(-1) + offsets])


def shifted(windows: Tensor) -> Batch:
    """Return windows ``(…, T + 1)`` as inputs and targets, one byte later, int64 ``(…, T)``."""
    tokens = windows.long()
    return tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous()


class TextDataModule(TensorDataModule):
    """Text as bytes, to predict each byte from those before it in a window.

    A batch has inputs and targets int64 ``(B, T)``, bytes 0 … 255; the targets are the inputs one
    byte later. Training windows start at offsets uniform over the training text, with replacement,
    which are functions of (seed, epoch, number of the window). Validation and test are the first
    adjoining windows of T + 1 bytes.

    The first nine tenths of a file or folder are the training text, the halves of the rest
    validation and test. A dataset in the hub's layout has its own splits ``train``, ``validation``
    and ``test``, whose rows are joined, each ended by a newline. Nothing is cached.

    Args:
        dataset: a text file, also packed by gzip or xz; a folder of such files, joined by newlines
            in the order of their paths, where names that start with a dot are left out; or a hub
            id, or a folder in the hub's layout (parquet files). By default ``Salesforce/wikitext``.
        sample: use the bundled sample instead: 56 kB of generated sentences, with as many windows
            for validation and test as it has.
        name: of one of several datasets in a folder or repository; by default ``wikitext-2-raw-v1``
            of ``Salesforce/wikitext``.
        revision: commit, tag or branch of a hub dataset; by default the newest. A run records the
            commit.
        column: column of the text in a dataset in the hub's layout; by default ``text``.
        context: T, number of bytes of an input.
        batch_size: windows in a global training batch.
        eval_batch_size: windows in a batch for validation, test and prediction.
        updates_per_epoch: batches in an epoch of training.
        windows: windows in validation and in test; null: all that there are.
        seed: determines the training windows.

    Raises:
        ActlabError: if the text is missing, damaged, not text or too short, or has no such column.
    """

    sample_replaces_dataset = True
    num_classes = BYTES

    @validated
    def __init__(
        self,
        dataset: str | None = None,
        sample: bool = False,
        name: str | None = None,
        revision: str | None = None,
        column: str | None = None,
        context: Count = 64,
        batch_size: int = 16,
        eval_batch_size: int = 64,
        updates_per_epoch: Count = 200,
        windows: Count | None = 256,
        seed: int | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)
        self.dataset = dataset_or(WIKITEXT, dataset, sample, "text/sample.txt")
        self.sample = sample
        self.name = name
        self.revision = revision
        self.column = column
        self.context = context
        self.updates_per_epoch = updates_per_epoch
        self.windows = windows

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(T,)."""
        return (self.context,)

    @cached_property
    def location(self) -> tuple[Path, str | None]:
        """The file or folder, and the commit of a hub dataset; fetched on first use."""
        # Use the user's files, for which settings of hub datasets have no effect.
        path = at_home(self.dataset)
        if is_plain(path):
            for key in ("name", "revision", "column"):
                value = getattr(self, key)
                if value is not None and not self.sample:
                    raise ActlabError(
                        f"data.{key}: expected null for the text {self.dataset!r}, got {value!r}. "
                        "Remove the setting."
                    )
            return path, None

        # Download only the default: the other datasets of its repository have hundreds
        # of MB.
        if self.dataset == WIKITEXT and self.name is None:
            self.name = WIKITEXT_NAME
        files = "*.parquet"
        if self.dataset == WIKITEXT and self.name == WIKITEXT_NAME:
            files = f"{WIKITEXT_NAME}/*.parquet"
        return locate(self.dataset, self.revision, files)

    @property
    def revisions(self) -> dict[str, str]:
        """The dataset's hub id and commit; empty for local files."""
        _, commit = self.location
        return {self.dataset: commit} if commit else {}

    @property
    def published(self) -> Mapping[str, int]:  # type: ignore[override]  # depends on the dataset
        """The number of rows in each split of ``wikitext-2-raw-v1``; empty for other text."""
        return WIKITEXT_ROWS if self.name == WIKITEXT_NAME else {}

    @property
    def counts(self) -> Mapping[str, int]:  # type: ignore[override]
        """The number of rows in each split; each ends with a newline."""
        return {SPLITS[part]: text.count(b"\n") for part, text in self.text.items()}

    @property
    def text(self) -> Text:
        """The bytes of train, val and test; rows are read once per process and state of files."""
        path, _ = self.location
        if is_plain(path):
            texts = [_unpack(file) for file in text_files(path)]
            return divide(b"\n".join(texts))

        # The cached text is read again if a file changes
        states = tuple(state(file) for file in parquet_files(path))
        return _read_rows(path, self.name, self.column, states)

    def load(self, device: torch.device) -> None:
        """Load the text of each split and cut the windows of validation and test."""
        text = self.text
        size = len(text["train"])
        if size <= self.context:
            raise self._too_short("train", size, 1)

        # Training windows are drawn when they are needed.
        train = _as_tensor(text["train"]).to(device)
        draw = partial(draw_windows, train, self.context)
        self.train = Draws(draw, self.updates_per_epoch, self.batch_size, device)
        self.val = self._adjoining_windows("val", text["val"], device)
        self.test = self._adjoining_windows("test", text["test"], device)

    def _adjoining_windows(
        self, part: str, text: bytes, device: torch.device
    ) -> TensorDataset:
        # Count the windows. The sample has fewer than the default.
        length = self.context + 1
        available = len(text) // length
        number = available if self.windows is None else self.windows
        if self.sample:
            number = min(number, available)
        if not 0 < number <= available:
            raise self._too_short(part, len(text), max(number, 1))

        # Cut them.
        windows = _as_tensor(text[: number * length]).view(number, length)
        inputs, targets = shifted(windows)
        return TensorDataset(inputs.to(device), targets.to(device))

    def _too_short(self, part: str, size: int, windows: int) -> ActlabError:
        needed = windows * (self.context + 1)
        return ActlabError(
            f"the {SPLITS[part]} part of {self.dataset!r} has {size:,} bytes, but {windows:,} "
            f"windows of {self.context} + 1 bytes require {needed:,}. Use a longer text, or set a "
            "smaller data.context or data.windows."
        )


def _as_tensor(text: bytes) -> Tensor:
    # A copy, because torch warns of memory that cannot be written
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def is_plain(path: Path) -> bool:
    """Return whether a path is a text file or a folder of such files, without parquet files."""
    return path.exists() and not any(path.rglob("*.parquet"))


def divide(text: bytes) -> Text:
    """Return nine tenths of a text for training, then a twentieth each for validation and test."""
    # At bytes, perhaps within a line or a letter
    end = len(text) * 9 // 10
    middle = (end + len(text)) // 2
    return {"train": text[:end], "val": text[end:middle], "test": text[middle:]}


def text_files(path: Path) -> list[Path]:
    """Return the file, or the files below a folder in the order of their paths, except hidden."""
    if not path.is_dir():
        return [path]

    files = []
    for file in sorted(path.rglob("*")):
        parts = file.relative_to(path).parts
        is_hidden = any(part.startswith(".") for part in parts)
        if not is_hidden and not file.is_dir():
            files.append(file)
    return files


def _unpack(file: Path) -> bytes:
    """Return the text of a file; raise an ActlabError if it is damaged or not text."""
    try:
        with regular(file).open("rb") as stream:
            # The first bytes say how it is packed.
            opened: Any = stream
            begin = stream.peek(6)
            for mark, opener in _OPENERS.items():
                if begin.startswith(mark):
                    opened = opener(stream)
            text: bytes = opened.read()
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ActlabError(
            f"{file} is damaged or cannot be read ({one_line(error)}). Fetch it again."
        ) from error

    # Binary files contain NUL bytes
    nul = text.find(b"\0")
    if nul >= 0:
        raise ActlabError(
            f"{file}: expected text, got a NUL byte at {nul:,}. Use only text files."
        )
    return text


@lru_cache(maxsize=2)
def _read_rows(
    folder: Path, name: str | None, column: str | None, states: tuple[bytes, ...]
) -> Text:
    """Return the text of each part, read once per process and state of the files."""
    # Each part needs a split in the files
    with tempfile.TemporaryDirectory() as reader_folder:
        tables = open_parquet(folder, Path(reader_folder), name)
        for split in SPLITS.values():
            if split not in tables:
                existing = ", ".join(map(repr, tables))
                raise ActlabError(
                    f"{folder}: expected the split {split!r}, got {existing}. Add the split, or "
                    "use a text file."
                )

        # Join the rows of each split to one text
        column = column or "text"
        text = {}
        for part, split in SPLITS.items():
            text[part] = _joined_rows(tables[split], column, f"{folder}, {split}")
        return text


def _joined_rows(table: Any, column: str, source: str) -> bytes:
    """Return the rows of a column of text, each ended by a newline."""
    # Check the column.
    candidates = []
    for name, kind in table.features.items():
        if getattr(kind, "dtype", None) in _TEXT_TYPES:
            candidates.append(name)
    if column not in candidates:
        raise unknown(
            f"text column of {source}", column, candidates, "Set data.column."
        )

    # Join the rows.
    rows = []
    for row in table[column]:
        # A row may be null
        text = row or ""
        rows.append(text if text.endswith("\n") else f"{text}\n")
    return "".join(rows).encode()
