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

from actlab.datamodules.base import Batch, Draws, TensorDataModule, TensorDataset, dataset_or
from actlab.datamodules.hub import located
from actlab.datamodules.sources import open_parquet, parquet_files, state
from actlab.errors import ActlabError
from actlab.errors.messages import one_line, unknown
from actlab.random.positions import Position, integers_at
from actlab.storage.files import regular
from actlab.storage.paths import at_home
from actlab.validation import Count, validated

WIKITEXT, WIKITEXT_NAME = "Salesforce/wikitext", "wikitext-2-raw-v1"  # the default
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


def drawn(text: Tensor, context: int, position: Position) -> Batch:
    """Draw windows of T + 1 bytes at uniform offsets, with replacement, as inputs and targets ``(…, B, T)``."""
    starts = integers_at(position, "windows", len(text) - context)
    return shifted(text[starts.unsqueeze(-1) + torch.arange(context + 1, device=text.device)])


def shifted(windows: Tensor) -> Batch:
    """Return inputs and targets, one byte later, of windows ``(…, T + 1)``: int64 ``(…, T)`` each."""
    tokens = windows.long()
    return tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous()


class TextDataModule(TensorDataModule):
    """Text as bytes, to predict each byte from those before it in a window.

    Batches: inputs and targets int64 ``(B, T)``, bytes 0 … 255; the targets are the inputs one byte
    later. Training windows start at offsets uniform over the training text, with replacement, which
    are functions of (seed, epoch, number of the window). Validation and test are the first
    adjoining windows of T + 1 bytes.

    The first nine tenths of a file or folder are the training text, the halves of the rest
    validation and test; a dataset in the hub's layout has splits ``train``, ``validation`` and
    ``test`` of its own, whose rows are joined, each ended by a newline. Nothing is cached.

    Args:
        dataset: a text file, also packed by gzip or xz; a folder of such files, joined by newlines
            in the order of their paths, where names that start with a dot are left out; or a hub
            id, or a folder in the hub's layout (parquet files). By default ``Salesforce/wikitext``.
        sample: use the embedded sample instead: 56 kB of generated sentences, with as many windows
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
        self.dataset, self.sample = dataset_or(WIKITEXT, dataset, sample, "text/sample.txt"), sample
        self.name, self.revision, self.column = name, revision, column
        self.context, self.updates_per_epoch, self.windows = context, updates_per_epoch, windows

    num_classes = BYTES

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(T,)."""
        return (self.context,)

    @cached_property
    def place(self) -> tuple[Path, str | None]:
        """The file or folder, and the commit of a hub dataset; fetched on first use."""
        path = at_home(self.dataset)
        if is_plain(path):
            for key in ("name", "revision", "column"):
                if (value := getattr(self, key)) is not None and not self.sample:
                    raise ActlabError(
                        f"data.{key} {value!r}: {self.dataset!r} is not in the hub's layout; remove the setting"
                    )
            return path, None
        if self.dataset == WIKITEXT and self.name is None:
            self.name = WIKITEXT_NAME
        # The other datasets of its repository have hundreds of MB.
        is_default = (self.dataset, self.name) == (WIKITEXT, WIKITEXT_NAME)
        files = f"{WIKITEXT_NAME}/*.parquet" if is_default else "*.parquet"
        return located(self.dataset, self.revision, files)

    @property
    def revisions(self) -> dict[str, str]:
        """The dataset's hub id and commit; empty for local files."""
        _, commit = self.place
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
        """The bytes of train, val and test; rows are read once per process and state of the files."""
        path, _ = self.place
        if is_plain(path):
            return divided(b"\n".join(map(_unpacked, text_files(path))))
        return _read_rows(path, self.name, self.column, tuple(map(state, parquet_files(path))))

    def load(self, device: torch.device) -> None:
        """Load the text of each split and cut the windows of validation and test."""
        text = self.text
        if (size := len(text["train"])) <= self.context:
            raise self._too_short("train", size, 1)
        train = torch.frombuffer(bytearray(text["train"]), dtype=torch.uint8).to(device)
        windows = partial(drawn, train, self.context)
        self.train = Draws(windows, self.updates_per_epoch, self.batch_size, device)
        self.val, self.test = (
            self._adjoining(part, text[part], device) for part in ("val", "test")
        )

    def _adjoining(self, part: str, text: bytes, device: torch.device) -> TensorDataset:
        length = self.context + 1
        whole = len(text) // length
        wanted = whole if self.windows is None else self.windows
        number = min(wanted, whole) if self.sample else wanted
        if not 0 < number <= whole:
            raise self._too_short(part, len(text), max(number, 1))
        cut = torch.frombuffer(bytearray(text[: number * length]), dtype=torch.uint8)
        return TensorDataset(*(half.to(device) for half in shifted(cut.view(number, length))))

    def _too_short(self, part: str, size: int, windows: int) -> ActlabError:
        return ActlabError(
            f"the {SPLITS[part]} part of {self.dataset!r} has {size:,} bytes, but {windows:,} windows of "
            f"{self.context} + 1 bytes need {windows * (self.context + 1):,}; give a longer text, or a smaller "
            "data.context or data.windows"
        )


def is_plain(path: Path) -> bool:
    """Return whether a path is a text file or a folder of such files, not a folder in the hub's layout."""
    return path.exists() and not any(path.rglob("*.parquet"))


def divided(text: bytes) -> Text:
    """Return the first nine tenths of a text for training, then a twentieth each for validation and test."""
    first, middle = len(text) * 9 // 10, (len(text) * 9 // 10 + len(text)) // 2
    return {"train": text[:first], "val": text[first:middle], "test": text[middle:]}


def text_files(path: Path) -> list[Path]:
    """Return the file, or the files below a folder in the order of their paths, without hidden ones."""
    if not path.is_dir():
        return [path]
    paths = sorted(file for file in path.rglob("*") if not file.is_dir())
    return [
        file for file in paths if not any(p.startswith(".") for p in file.relative_to(path).parts)
    ]


def _unpacked(file: Path) -> bytes:
    try:
        with regular(file).open("rb") as stream:
            begin = stream.peek(6)
            opener = next(
                (opener for mark, opener in _OPENERS.items() if begin.startswith(mark)), None
            )
            text: bytes = (opener(stream) if opener else stream).read()
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ActlabError(
            f"{file} is damaged or cannot be read ({one_line(error)}); fetch it again"
        ) from error
    if (at := text.find(b"\0")) >= 0:
        raise ActlabError(f"{file} is no text: byte {at:,} is NUL; give text files only")
    return text


@lru_cache(maxsize=2)
def _read_rows(
    folder: Path, name: str | None, column: str | None, states: tuple[bytes, ...]
) -> Text:
    with tempfile.TemporaryDirectory() as place:
        tables = open_parquet(folder, Path(place), name)
        if missing := [split for split in SPLITS.values() if split not in tables]:
            has = ", ".join(map(repr, tables))
            raise ActlabError(
                f"{folder} has no split {missing[0]!r} (it has {has}); give a text file instead"
            )
        return {
            part: _joined(tables[split], column, f"{folder}, {split}")
            for part, split in SPLITS.items()
        }


def _joined(table: Any, column: str | None, source: str) -> bytes:
    texts = [
        name for name, kind in table.features.items() if getattr(kind, "dtype", None) in _TEXT_TYPES
    ]
    if (column or "text") not in texts:
        raise unknown(f"text column of {source}; set data.column:", column or "text", texts)
    rows = (row or "" for row in table[column or "text"])
    return "".join(row if row.endswith("\n") else f"{row}\n" for row in rows).encode()
