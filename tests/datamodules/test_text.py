"""Text as bytes: splits, windows, formats, the generated sample, and one line for each mistake."""

import gzip
import json
import lzma
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from actlab.datamodules import TextDataModule, text
from actlab.random.positions import Position, integers_at
from actlab.storage.resources import resource
from hub_folders import write_text_hub_folder
from text_files import file_of, refusal

LINES = b"".join(b"line %d of a text\n" % number for number in range(200))
SAMPLE = resource("data/samples/text")


def data_of(path: Path, **options: Any) -> TextDataModule:
    """A datamodule of small windows that has read its data."""
    data = TextDataModule(str(path), **{"context": 7, "windows": 3, "batch_size": 4, **options})
    data.setup("fit")
    return data


def windows_of(data: TextDataModule, part: str) -> list[bytes]:
    """The windows of a part for evaluation, each with its last target."""
    inputs, targets = getattr(data, part).tensors
    return [
        bytes([*row.tolist(), last])
        for row, last in zip(inputs, targets[:, -1].tolist(), strict=True)
    ]


def named_rows(name: str, split: str) -> list[str]:
    return [f"{name} {split}"] * 40


def test_a_file_is_divided_in_its_order(tmp_path):
    data = data_of(file_of(tmp_path, LINES))
    size = len(LINES)
    val, test = size * 9 // 10, (size * 9 // 10 + size) // 2
    assert data.text == {"train": LINES[:val], "val": LINES[val:test], "test": LINES[test:]}
    for part, start in (("val", val), ("test", test)):
        assert windows_of(data, part) == [
            LINES[start + 8 * n : start + 8 * n + 8] for n in range(3)
        ]
        inputs, targets = getattr(data, part).tensors
        assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert (data.num_classes, data.input_shape) == (256, (7,))
    every = data_of(file_of(tmp_path, LINES), windows=None)
    assert len(every.val) == (test - val) // 8  # type: ignore[arg-type]


def test_training_windows_are_drawn_by_seed_epoch_and_number(tmp_path):
    path = file_of(tmp_path, LINES)
    data = data_of(path, updates_per_epoch=3, seed=5)
    loader: Any = data.train_dataloader()
    batches = list(loader)
    assert len(batches) == 3
    text = torch.tensor(list(data.text["train"]))
    for number, (inputs, targets) in enumerate(batches):
        assert inputs.dtype == targets.dtype == torch.int64
        index = torch.arange(4 * number, 4 * number + 4)
        starts = integers_at(Position((5,), 0, index), "windows", len(text) - 7).tolist()
        assert torch.equal(inputs, torch.stack([text[start : start + 7] for start in starts]))
        assert torch.equal(targets, torch.stack([text[start + 1 : start + 8] for start in starts]))
    again = list(data_of(path, updates_per_epoch=3, seed=5).train_dataloader())
    assert all(torch.equal(a[0], b[0]) for a, b in zip(batches, again, strict=True))
    loader.batch_sampler.set_epoch(1)
    assert not torch.equal(next(iter(loader))[0], batches[0][0])


def test_the_last_offset_is_drawn_too(tmp_path):
    (tmp_path / "few").mkdir()
    data = data_of(
        file_of(tmp_path / "few", bytes(range(1, 201))), context=8, windows=1, batch_size=2000
    )
    inputs, _ = next(iter(data.train_dataloader()))
    assert (inputs.min(), inputs.max()) == (1, 179)  # of 180 bytes; the last is a target only
    assert inputs[:, 0].max() == 172


@pytest.mark.parametrize("packed", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_packed_files_are_read_as_they_lie(tmp_path, packed):
    data = data_of(file_of(tmp_path, packed(LINES), "text.any"))
    assert b"".join(data.text.values()) == LINES
    cut = file_of(tmp_path, packed(LINES)[:40], "cut.txt")
    assert "cut.txt is damaged" in refusal(lambda: data_of(cut))


def test_a_folder_is_joined_in_the_order_of_its_paths(tmp_path):
    for name, content in {
        "b.txt": b"second" * 90,
        "a/z.md": b"first" * 90,
        ".hidden": b"never" * 90,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    data = data_of(tmp_path)
    assert b"".join(data.text.values()) == b"first" * 90 + b"\n" + b"second" * 90
    (tmp_path / "c.txt").write_bytes(b"third" * 90)
    assert b"".join(data_of(tmp_path).text.values()).endswith(b"\n" + b"third" * 90)


def test_a_dataset_in_the_hubs_layout_has_its_own_splits(tmp_path):
    folder = write_text_hub_folder(tmp_path)
    data = data_of(folder)
    assert data.text["val"] == b"".join(b"validation row %d\n" % n for n in range(40))
    assert data.text["train"].startswith(b"train row 0\ntrain row 1\n")
    assert windows_of(data, "test")[0] == b"test row"
    assert data.revisions == {}


def test_rows_end_with_one_newline_and_may_be_empty(tmp_path):
    folder = write_text_hub_folder(tmp_path, rows=lambda split: ["one\n", "", None, "two"] * 30)
    assert data_of(folder).text["train"].startswith(b"one\n\n\ntwo\none\n")


def test_one_of_several_datasets_and_another_column(tmp_path):
    for name in ("first", "second"):
        write_text_hub_folder(tmp_path, name, column="body", rows=partial(named_rows, name))
    listed = "\n".join(
        f"- config_name: {name}\n  data_files:\n"
        + "\n".join(
            f"  - split: {s}\n    path: {name}/data/{s}-*" for s in ("train", "validation", "test")
        )
        for name in ("first", "second")
    )
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{listed}\n---\n")
    data = data_of(tmp_path, name="second", column="body")
    assert data.text["test"] == b"second test\n" * 40
    assert "set data.name" in refusal(lambda: data_of(tmp_path, column="body"))


def test_of_the_default_dataset_only_one_part_is_fetched(tmp_path, monkeypatch):
    asked: list[str] = []

    def locate(dataset: str, revision: str | None, files: str) -> tuple[Path, str]:
        asked.append(files)
        return write_text_hub_folder(tmp_path, "wikitext-2-raw-v1"), "abc"

    monkeypatch.setattr(text, "locate", locate)
    data = TextDataModule(context=7, windows=3)
    assert data.revisions == {"Salesforce/wikitext": "abc"}
    assert TextDataModule(name="wikitext-103-v1").revisions == {"Salesforce/wikitext": "abc"}
    assert asked == ["wikitext-2-raw-v1/*.parquet", "*.parquet"]


@pytest.mark.parametrize(
    ("content", "options", "parts"),
    [
        (b"", {}, ["train part", "file.txt' has 0 bytes", "Use a longer text"]),
        (b"text\n" * 30 + b"\0" * 30, {}, ["file.txt: expected text", "got a NUL byte at 150"]),
        (
            b"text\n" * 30,
            {},
            ["validation part", "has 7 bytes", "3 windows of 7 + 1 bytes require 24"],
        ),
        (
            b"text\n" * 4,
            {"context": 64},
            ["train part", "has 18 bytes", "64 + 1 bytes", "data.context"],
        ),
        (LINES, {"context": 0}, ["context: expected a number greater than or equal to 1, got 0"]),
        (LINES, {"windows": 0}, ["windows: expected a number greater than or equal to 1", "got 0"]),
        (
            LINES,
            {"column": "text"},
            ["data.column: expected null for the text", "got 'text'", "Remove"],
        ),
        (LINES, {"name": "one"}, ["data.name: expected null for the text", "got 'one'"]),
        (LINES, {"revision": "main"}, ["data.revision: expected null for the text", "got 'main'"]),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, content, options, parts):
    message = refusal(lambda: data_of(file_of(tmp_path, content), **options))
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    "dataset", ["nowhere.txt", "nowhere.txt.xz", "./nowhere", "~no-such-user/text"]
)
def test_a_missing_path_is_named(dataset):
    message = refusal(lambda: TextDataModule(dataset).text)
    assert f"a folder or a dataset of the Hugging Face Hub, got {dataset!r} (" in message


@pytest.mark.parametrize(
    ("columns", "asked", "parts"),
    [
        ({"number": [1] * 40}, None, ["unknown text column", "'text'", "data.column"]),
        ({"body": ["row"] * 40}, None, ["'text'", "Allowed: body", "data.column"]),
        ({"text": ["row"] * 40, "number": [1] * 40}, "txt", ["'txt'", "did you mean 'text'"]),
    ],
)
def test_a_missing_column_is_named(tmp_path, columns, asked, parts):
    (tmp_path / "data").mkdir()
    for split in ("train", "validation", "test"):
        pq.write_table(pa.table(columns), tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    message = refusal(lambda: data_of(tmp_path, column=asked))
    assert all(part in message for part in parts), message


def test_a_missing_split_is_named(tmp_path):
    folder = write_text_hub_folder(tmp_path, splits=("train", "test"))
    assert "expected the split 'validation', got 'train', 'test'" in refusal(
        lambda: data_of(folder)
    )


def test_the_sample_has_as_many_windows_as_there_are():
    data = TextDataModule(sample=True)

    data.setup("fit")

    assert len(data.val) == len(data.test) == 43  # type: ignore[arg-type]


def test_a_changed_text_is_another_run(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = {"set": {"data.dataset": "./a.txt"}, "grid": {"model.activation": ["gelu"]}, "seeds": 1}
    file_of(tmp_path, json.dumps({"base": "gpt_plain", **own}), "study.yaml")
    plans = []
    for content in (LINES, LINES + b"more\n", LINES):
        file_of(tmp_path, content, "a.txt")
        out = cli("study", "plan", "study.yaml").succeeded()
        plans.append([word for word in out.split() if word.startswith("gelu-seed0-")])
    assert plans[0] == plans[2] != plans[1]
