"""The datamodule of tables: rows of numbers, classified by one of their columns.

Shapes: ``N`` rows, ``D`` features, ``B`` batch, ``K`` classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from actlab.datamodules.base import TensorDataModule, TensorDataset, dataset_or
from actlab.datamodules.cache import made_once
from actlab.datamodules.hub import locate
from actlab.datamodules.images import DEFAULTS, Share, draw_from_each_class
from actlab.datamodules.sources import digest_of_files, open_files
from actlab.errors import ActlabError
from actlab.storage.files import temporary
from actlab.storage.paths import cache_folder
from actlab.validation import Whole, validated

WHOLE_TYPES = ("int", "uint", "bool")  # beginnings of the names of column types
TEXT_TYPES = ("string", "large_string")
FORMAT = 2  # version of the cache; increased when reading changes


class Table(NamedTuple):
    """The splits of a table in memory."""

    # {part}_features float64 (N, D) and {part}_labels int64 (N,)
    tensors: dict[str, Tensor]
    class_names: list[str]
    revision: str | None = None  # commit of a hub dataset


class TableDataModule(TensorDataModule):
    """Rows of numbers with a class each, from CSV or parquet files or from the hub.

    This class selects features and classes, divides rows into training, validation and test, and
    standardises features by the training rows. It does not encode text and does not fill missing
    values: both are errors.

    A batch has features ``(B, D)`` float32 and labels ``(B,)`` int64. Features are all columns
    except ``label`` and ``leave_out``, in the order of the files: whole numbers, floats, or true
    and false as 1 and 0. Each has mean 0 and standard deviation 1 over the training rows. A feature
    that is constant in these rows is only centred.

    The metadata of parquet files may name the classes. Otherwise, the classes are the sorted labels
    of the split ``train``: whole numbers, texts, or true and false.

    Args:
        dataset: a folder of parquet or CSV files, whose names tell their splits, such as
            ``train.csv`` and ``test.csv``; or a hub id. Files without a split in their names belong
            to training.
        sample: use the bundled sample instead: 600 generated rows for training, 100 for validation
            and 200 for test.
        label: column of the classes.
        leave_out: columns that are not features, such as row numbers.
        name: of one of several datasets in a folder or repository.
        revision: commit, tag or branch of a hub dataset; by default the newest. A run records the
            commit.
        batch_size: size of the global training batch; an incomplete last batch of an epoch is
            dropped.
        eval_batch_size: batch size for validation, test and prediction.
        validation: share of the training rows of each class for validation. null: the split
            ``validation`` if there is one, else 0.1.
        test: share of the training rows of each class for test. null: the split ``test`` if there
            is one, else 0.2.
        split_seed: determines the shares; the same for all seeds of a study.
        cache_dir: folder for the tensors; by default ``$ACTLAB_CACHE`` or ``~/.cache/actlab``.
        seed: determines the order of batches.

    Raises:
        ActlabError: if the dataset or a column is missing or damaged, a feature is not a number, a
            value is missing or infinite, or a label is not a class of the training rows.
    """

    sample_replaces_dataset = True

    @validated
    def __init__(
        self,
        dataset: str | None = None,
        sample: bool = False,
        label: str = "label",
        leave_out: Sequence[str] = (),
        name: str | None = None,
        revision: str | None = None,
        batch_size: int = 128,
        eval_batch_size: int = 5000,
        validation: Share | None = None,
        test: Share | None = None,
        split_seed: Whole = 0,
        cache_dir: str | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(batch_size, eval_batch_size, seed)

        # A table has no default dataset
        self.dataset = dataset_or("", dataset, sample, "table")
        if not self.dataset:
            raise ActlabError(
                "data.dataset: expected a folder of CSV or parquet files or a dataset of the "
                "Hugging Face Hub, got null. Set it, or set data.sample to true."
            )

        # Where the rows are, and which columns count.
        self.label = label
        self.leave_out = tuple(leave_out)
        self.name = name
        self.revision = None if sample else revision
        self.cache_dir = cache_dir

        # What a part takes from the training split, first for the test.
        self.shares = {"test": test, "val": validation}
        self.split_seed = split_seed

    @cached_property
    def table(self) -> Table:
        """All splits; read on first use, or memory-mapped from an earlier use's cache."""
        # Find the files.
        folder, commit = locate(self.dataset, self.revision)
        files = _files_of(folder)
        content = commit or _digest_of(folder, files)

        def read() -> dict[str, Tensor]:
            # `datasets` makes a copy of the files in this temporary folder.
            with temporary(
                cache_folder(self.cache_dir), "reading", folder=True
            ) as reader_folder:
                splits = open_files(folder, files, reader_folder, self.name)
                tensors = _read(splits, self.label, self.leave_out, self.dataset)

            # A local folder may have changed while it was read; a commit cannot.
            if not commit and _digest_of(folder, files) != content:
                raise ActlabError(
                    f"{folder} changed while it was read. Run again when its files are complete."
                )
            return tensors

        # Read them, or the cache of an earlier use.
        key = (FORMAT, content, self.name, self.label, self.leave_out)
        tensors = made_once("table", key, self.cache_dir, read)
        lengths = tensors.pop("class_name_lengths").tolist()
        parts = torch.split(tensors.pop("class_names"), lengths)
        names = [bytes(part.tolist()).decode() for part in parts]
        return Table(tensors, names, commit)

    @property
    def revisions(self) -> dict[str, str]:
        """The dataset's hub id and commit; empty for a local folder."""
        commit = self.table.revision
        return {self.dataset: commit} if commit else {}

    @property
    def counts(self) -> Mapping[str, int]:  # type: ignore[override]
        """The number of rows in each split of the dataset."""
        counts = {}
        for part in DEFAULTS:
            labels = self.table.tensors.get(f"{part}_labels")
            if labels is not None:
                counts[part] = len(labels)
        return counts

    @property
    def num_classes(self) -> int:
        """The number of classes K."""
        return len(self.table.class_names)

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes."""
        return self.table.class_names

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(D,)."""
        return tuple(self.table.tensors["train_features"].shape[1:])

    @cached_property
    def rows(self) -> dict[str, Tensor]:
        """The sorted rows of the training split that each part takes.

        Raises:
            ActlabError: if there are too few rows.
        """
        tensors = self.table.tensors
        labels = tensors["train_labels"]
        available = torch.arange(len(labels))
        rows: dict[str, Tensor] = {}
        for part, share in self.shares.items():
            # A part with a split of its own takes no training rows.
            if share is None:
                if f"{part}_labels" in tensors:
                    continue
                share = 0.2 if part == "test" else 0.1

            # Draw the rows from those that are left.
            key = DEFAULTS[part]
            rows[part] = draw_from_each_class(
                labels, available, share, self.split_seed, key
            )
            if not len(rows[part]):
                raise ActlabError(
                    f"data.{key}: expected at least two training rows of a class in "
                    f"{self.dataset}, got {len(available)} rows. Add rows."
                )
            available = available[~torch.isin(available, rows[part])]
        return {**rows, "train": available}

    def prepare_data(self) -> None:
        """Read the table into the cache, once per machine."""
        _ = self.table

    def load(self, device: torch.device) -> None:
        """Standardise the rows of each part by the statistics of the training rows."""
        rows = self.rows
        tensors = self.table.tensors

        # Compute the statistics.
        train = tensors["train_features"][rows["train"]]
        mean = train.mean(0)
        # A constant feature is only centred.
        is_constant = (train == train[0]).all(0)
        scale = torch.where(is_constant, 1.0, train.std(0, correction=0))

        def part(name: str) -> TensorDataset:
            # Select the rows.
            split = "train" if name in rows else name
            features = tensors[f"{split}_features"]
            labels = tensors[f"{split}_labels"]
            if name in rows:
                features = features[rows[name]]
                labels = labels[rows[name]]

            # In float64 up to here: large numbers may differ by little
            standardised = ((features - mean) / scale).float()
            return TensorDataset(standardised.to(device), labels.to(device))

        self.train = part("train")
        self.val = part("val")
        self.test = part("test")


def _files_of(folder: Path) -> list[Path]:
    """Return all parquet files below a folder, sorted, or else all CSV files.

    Raises:
        ActlabError: if there are none of either kind.
    """
    for pattern in ("*.parquet", "*.csv"):
        files = [file for file in sorted(folder.rglob(pattern)) if file.is_file()]
        if files:
            return files
    raise ActlabError(
        f"{folder}: expected parquet or CSV files, such as train.csv and test.csv, got none. Use "
        "another folder."
    )


def _digest_of(folder: Path, files: Sequence[Path]) -> str:
    return digest_of_files(folder, [str(file) for file in files])


def _read(
    splits: Mapping[str, Any], label: str, leave_out: Sequence[str], dataset: str
) -> dict[str, Tensor]:
    """Return features and labels of each part, and the names of the classes as bytes."""
    # The training split tells the columns and the classes.
    if "train" not in splits or not len(splits["train"]):
        raise ActlabError(
            f"dataset {dataset!r}: expected rows in the split 'train', got the splits "
            f"{', '.join(splits) or 'none'}. Rename its files, such as train.csv."
        )
    columns = _feature_columns(splits["train"], label, leave_out, dataset)
    classes = _classes(splits["train"], label, dataset)

    # Validation and test may have no split.
    tensors: dict[str, Tensor] = {}
    for part, split in DEFAULTS.items():
        if split in splits and len(splits[split]):
            table = splits[split].with_format("arrow")[:]
            place = f"{split} split of dataset {dataset!r}"
            tensors[f"{part}_features"] = _features(table, columns, place)
            tensors[f"{part}_labels"] = _labels(table, label, classes, place)

    # The cache stores tensors only.
    # Tensors hold the names as their bytes, one after the other
    names = [name.encode() for name in classes.values()]
    tensors["class_names"] = torch.tensor(list(b"".join(names)), dtype=torch.uint8)
    tensors["class_name_lengths"] = torch.tensor([len(name) for name in names])
    return tensors


def _feature_columns(
    table: Any, label: str, leave_out: Sequence[str], dataset: str
) -> list[str]:
    """Return the columns of numbers; raise an ActlabError if there are others, or none."""
    # Both settings name columns of the table.
    names: list[str] = table.column_names
    for key, settings in {"label": [label], "leave_out": leave_out}.items():
        for column in settings:
            if column not in names:
                raise ActlabError(
                    f"data.{key}: expected one of the columns {', '.join(names)} of dataset "
                    f"{dataset!r}, got {column!r}. Set data.{key} to existing columns."
                )

    # All other columns are numbers. Numbers of classes have no order.
    columns = [name for name in names if name not in (label, *leave_out)]
    others = []
    for name in columns:
        kind = table.features[name]
        is_number = getattr(kind, "dtype", "").startswith((*WHOLE_TYPES, "float"))
        if not is_number or hasattr(kind, "names"):
            others.append(name)
    if others:
        raise ActlabError(
            f"dataset {dataset!r}: expected numbers in all columns except {label!r}, got other "
            f"values in {', '.join(others)}. Encode them as numbers, or add them to "
            "data.leave_out."
        )
    if not columns:
        raise ActlabError(
            f"dataset {dataset!r}: expected columns of numbers besides {label!r}, got none. "
            "Remove columns from data.leave_out, or use another dataset."
        )
    return columns


def _classes(table: Any, label: str, dataset: str) -> dict[Any, str]:
    """Return the label and the name of each class, in their order.

    They are the names in the metadata, or else the sorted labels of the training rows.
    """
    # Files with metadata contain the numbers of their classes.
    kind = table.features[label]
    names = getattr(kind, "names", None)
    if names is not None:
        return dict(enumerate(names))

    # The type of another column may have no dtype.
    kind_name = getattr(kind, "dtype", "other values")
    if not kind_name.startswith((*WHOLE_TYPES, *TEXT_TYPES)):
        raise ActlabError(
            f"column {label!r} of dataset {dataset!r}: expected whole numbers, texts, or true and "
            f"false, got {kind_name}. Set data.label to the column of the classes."
        )

    # Missing labels are found later, in all splits.
    column = table.with_format("arrow")[:].column(label)
    values = set(column.unique().to_pylist()) - {None}
    if len(values) < 2:
        raise ActlabError(
            f"column {label!r} of dataset {dataset!r}: expected at least two classes in the "
            f"training rows, got {len(values)}. Set data.label to the column of the classes."
        )
    return {value: str(value) for value in sorted(values)}


def _features(table: Any, columns: Sequence[str], place: str) -> Tensor:
    """Return the columns as float64 ``(N, D)``; reject missing and infinite values."""
    values = np.empty((table.num_rows, len(columns)))
    for number, name in enumerate(columns):
        # Missing values become nan
        column = table.column(name).cast("float64", safe=False)
        values[:, number] = column.to_numpy()

    # Name all columns to fill in.
    faulty = np.flatnonzero(~np.isfinite(values).all(0)).tolist()
    if faulty:
        names = ", ".join(columns[number] for number in faulty)
        raise ActlabError(
            f"{place}: expected finite numbers, got missing or infinite ones in the columns "
            f"{names}. Fill them in, remove their rows, or add the columns to "
            "data.leave_out."
        )
    return torch.from_numpy(values)


def _labels(table: Any, label: str, classes: Mapping[Any, str], place: str) -> Tensor:
    """Return the number of each row's class, int64 ``(N,)``."""
    numbers = {value: number for number, value in enumerate(classes)}
    labels = []
    for row, value in enumerate(table.column(label).to_pylist()):
        if value not in numbers:
            raise ActlabError(
                f"column {label!r} of the {place}: expected one of the {len(classes)} classes of "
                f"the training rows, got {value!r} in row {row}. Remove such rows."
            )
        labels.append(numbers[value])
    return torch.tensor(labels)
