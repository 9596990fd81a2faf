"""Tables from CSV and parquet files: features, classes, splits, standardisation and messages."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import torch

from actlab.checks import data_digests
from actlab.datamodules import TableDataModule
from actlab.datamodules.base import TensorDataset
from actlab.errors import ActlabError
from actlab.storage.resources import resource

Build = Callable[..., TableDataModule]
SAMPLE = resource("data/samples/table")


@pytest.fixture
def module(tmp_path: Path) -> Build:
    def build(dataset: Path, **options: Any) -> TableDataModule:
        defaults: dict[str, Any] = {"batch_size": 4, "cache_dir": str(tmp_path / "cache")}
        return TableDataModule(str(dataset), **{**defaults, **options})

    return build


def table(number: int, seed: int = 0, **columns: Any) -> pd.DataFrame:
    """Rows with a whole number, a float, a truth value and one of three classes."""
    random = np.random.default_rng(seed)
    values = {
        "age": random.integers(20, 60, number),
        "height": random.normal(170, 10, number),
        "member": random.random(number) < 0.5,
        "label": [("yes", "no", "perhaps")[row % 3] for row in range(number)],
    }
    return pd.DataFrame({**values, **columns})


def write(folder: Path, **splits: pd.DataFrame) -> Path:
    """Write a CSV file for each split."""
    folder.mkdir(exist_ok=True)
    for split, rows in splits.items():
        rows.to_csv(folder / f"{split}.csv", index=False)
    return folder


def features_of(rows: pd.DataFrame) -> np.ndarray:
    return rows[["age", "height", "member"]].to_numpy(np.float64)


def tensors_of(data: TableDataModule, part: str) -> tuple[np.ndarray, list[int]]:
    data.setup("fit")
    samples = getattr(data, part)
    assert isinstance(samples, TensorDataset)
    features, labels = samples.tensors
    assert (features.dtype, labels.dtype) == (torch.float32, torch.int64)
    return features.numpy(), labels.tolist()


def test_a_folder_of_csv_files_has_its_own_splits(module, tmp_path):
    train, test = table(30), table(12, 1)
    folder = write(tmp_path / "people", train=train, valid=table(9, 2), test=test)
    data = module(folder)
    assert (data.input_shape, data.num_classes) == ((3,), 3)
    assert data.class_names == ["no", "perhaps", "yes"]
    assert data.counts == {"train": 30, "val": 9, "test": 12}
    assert data.revisions == {}

    # The statistics of the training rows standardise all parts.
    values = features_of(train)
    for part, rows in {"train": train, "test": test}.items():
        expected = (features_of(rows) - values.mean(0)) / values.std(0)
        features, labels = tensors_of(data, part)
        np.testing.assert_allclose(features, expected, rtol=1e-5, atol=1e-6)
        assert labels == [data.class_names.index(name) for name in rows["label"]]


def test_a_single_file_is_divided_by_class(module, tmp_path):
    folder = write(tmp_path / "people", people=table(60))
    data = module(folder)
    parts = {part: tensors_of(data, part) for part in ("train", "val", "test")}
    labels = {part: sorted(own) for part, (_, own) in parts.items()}
    assert labels == {
        "train": [0] * 14 + [1] * 14 + [2] * 14,
        "val": [0] * 2 + [1] * 2 + [2] * 2,
        "test": [0] * 4 + [1] * 4 + [2] * 4,
    }

    # Each row is in one part, and the statistics are those of the training rows alone.
    rows = torch.cat([*data.rows.values()])
    assert sorted(rows.tolist()) == list(range(60))
    train, _ = parts["train"]
    np.testing.assert_allclose(train.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(train.std(0), 1, rtol=1e-5)

    # The run's seed does not change the parts; another seed of the split does.
    assert np.array_equal(tensors_of(module(folder, seed=5), "val")[0], parts["val"][0])
    assert not module(folder, split_seed=1).rows["val"].equal(data.rows["val"])


def test_a_share_replaces_a_split(module, tmp_path):
    folder = write(tmp_path / "people", train=table(60), test=table(12))
    assert module(folder).rows.keys() == {"val", "train"}
    rows = module(folder, test=0.5, validation=0.25).rows
    assert {part: len(own) for part, own in rows.items()} == {"test": 30, "val": 15, "train": 15}


def test_columns_are_chosen_by_name(module, tmp_path):
    """Classes may be numbers from 1, and a column may be left out."""
    rows = table(30, town="x", group=np.arange(30) % 4 + 1)
    folder = write(tmp_path / "people", train=rows)
    data = module(folder, label="group", leave_out=["town", "label"])
    assert (data.input_shape, data.class_names) == ((3,), ["1", "2", "3", "4"])


def test_names_of_classes_come_from_the_metadata(module, tmp_path):
    names = ["yes", "no", "never", "perhaps"]
    kinds = datasets.Features(
        {"x": datasets.Value("float32"), "label": datasets.ClassLabel(names=names)}
    )
    rows = datasets.Dataset.from_dict({"x": [0.5, 1.5, 3.0], "label": ["no", "yes", "no"]}, kinds)
    folder = tmp_path / "answers"
    rows.to_parquet(folder / "train-00000-of-00001.parquet")
    rows.to_parquet(folder / "test-00000-of-00001.parquet")
    data = module(folder)
    assert data.class_names == names
    assert data.table.tensors["test_labels"].tolist() == [1, 0, 1]


def test_a_constant_feature_is_only_centred(module, tmp_path):
    """Its mean may be inexact, and the difference must not be enlarged."""
    test = table(12, rate=0.3)
    folder = write(tmp_path / "people", train=table(30, rate=0.1), test=test)
    data = module(folder)
    assert np.abs(tensors_of(data, "train")[0][:, -1]).max() < 1e-12
    np.testing.assert_allclose(tensors_of(data, "test")[0][:, -1], 0.2, rtol=1e-5)


def test_large_numbers_keep_their_differences(module, tmp_path):
    """Seconds since 1970 differ by less than float32 can show."""
    times = 1_600_000_000 + np.arange(30)
    data = module(write(tmp_path / "people", train=table(30, time=times), test=table(9, time=0)))
    assert len(np.unique(tensors_of(data, "train")[0][:, -1])) > 20


@pytest.mark.parametrize(
    ("train", "options", "message"),
    [
        (table(9), {"label": "answer"}, "data.label: expected one of the columns age, height, "),
        (table(9), {"leave_out": ["id"]}, "data.leave_out: expected one of the columns age, "),
        (table(9, town="x"), {}, "except 'label', got other values in town. Encode them"),
        (
            table(9, height=[1.0, None, *[3.0] * 7]),
            {},
            "got missing or infinite ones in the columns height. Fill them in",
        ),
        (table(9, height=[np.inf] * 9), {}, "missing or infinite ones in the columns height."),
        (
            table(9, label=["yes", None, *["no"] * 7]),
            {},
            "expected one of the 2 classes of the training rows, got None in row 1. Remove",
        ),
        (
            table(9),
            {"label": "height", "leave_out": ["label"]},
            "expected whole numbers, texts, or true and false, got float64.",
        ),
        (
            table(9, label="yes"),
            {},
            "expected at least two classes in the training rows, got 1. Set",
        ),
        (
            table(9),
            {"leave_out": ["age", "height", "member"]},
            "expected columns of numbers besides 'label', got none. Remove columns from data.leave",
        ),
    ],
)
def test_unsuitable_columns_are_named(module, tmp_path, train, options, message):
    folder = write(tmp_path / "people", train=train)
    with pytest.raises(ActlabError) as error:
        module(folder, **options).setup("fit")
    assert message in str(error.value)


# The reader of `datasets` leaves its file open when it fails, until the memory is collected.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("test", [table(9, age=0.5), table(9, town=1)], ids=["type", "column"])
def test_files_of_other_columns_are_rejected_with_a_remedy(module, tmp_path, test):
    folder = write(tmp_path / "people", train=table(30), test=test)
    with pytest.raises(ActlabError, match=r"Use equal columns in all CSV files, and write whole n"):
        module(folder).setup("fit")
    gc.collect()


def test_a_class_that_training_lacks_is_named(module, tmp_path):
    test = table(9, 1, label=["yes"] * 8 + ["never"])
    folder = write(tmp_path / "people", train=table(30), test=test)
    with pytest.raises(
        ActlabError, match=r"test split .*: expected one of the 3 classes .*, got 'never' in row 8"
    ):
        module(folder).setup("fit")


@pytest.mark.parametrize(
    ("name", "message"),
    [(None, "expected parquet or CSV files, "), ("test", "rows in the split 'train', got the spl")],
)
def test_a_folder_without_training_rows_is_rejected(module, tmp_path, name, message):
    folder = tmp_path / "people"
    write(folder, **{name: table(9)} if name else {})
    with pytest.raises(ActlabError, match=message):
        module(folder).setup("fit")


def test_without_a_dataset_one_is_asked_for():
    with pytest.raises(ActlabError, match=r"data.dataset: expected a folder .*, got null\. Set it"):
        TableDataModule()


def test_too_few_rows_for_a_part_are_rejected(module, tmp_path):
    folder = write(tmp_path / "people", train=table(3))
    with pytest.raises(ActlabError, match=r"data\.test: expected at least two training rows of a"):
        module(folder).setup("fit")


def test_a_changed_file_is_read_again(module, tmp_path):
    folder = write(tmp_path / "people", train=table(30))
    before = module(folder).table.tensors["train_features"].clone()
    write(folder, train=table(30, 1))
    assert not module(folder).table.tensors["train_features"].equal(before)


def test_the_digest_covers_features_and_labels_of_all_splits(module, tmp_path):
    """It does not depend on the format of the files."""
    splits = {"train": table(30), "validation": table(9, 1), "test": table(12, 2)}
    by_csv = write(tmp_path / "csv", **splits)
    by_parquet = tmp_path / "parquet"
    by_parquet.mkdir()
    for split, rows in splits.items():
        rows.to_parquet(by_parquet / f"{split}.parquet")

    def digest(folder: Path) -> str:
        arguments = {"dataset": str(folder), "cache_dir": str(tmp_path / "cache")}
        path = "actlab.datamodules.TableDataModule"
        return data_digests.digest_of({"data": {"class_path": path, "init_args": arguments}})

    expected = digest(by_csv)
    assert digest(by_parquet) == expected
    splits["test"]["height"] += 1e-6
    assert digest(write(tmp_path / "moved", **splits)) != expected
    splits["test"] = table(12, 2, label=["no", "yes", "perhaps"] * 4)
    assert digest(write(tmp_path / "relabelled", **splits)) != expected


def test_the_sample_has_five_classes(tmp_path):
    data = TableDataModule(sample=True, cache_dir=str(tmp_path))
    assert data.counts == {"train": 600, "val": 100, "test": 200}
    assert (data.input_shape, data.class_names) == ((16,), ["A", "B", "C", "D", "E"])
