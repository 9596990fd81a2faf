"""Predictions reach a table with one row a sample."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from actlab.cli.predictions import rows
from actlab.datamodules import MNISTDataModule
from actlab.errors import ActlabError
from actlab.tasks import ClassificationTask

QUICK = [
    *("--data.sample", "true", "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "3"),
    *(
        "--model.network.hidden",
        "[8]",
        "--trainer.logger",
        "false",
        "--trainer.enable_progress_bar",
        "false",
    ),
]


def test_predict_writes_one_row_a_sample_into_the_runs_folder(succeed, tmp_path):
    succeed("fit", "-c", "mnist_classifier", *QUICK)
    (checkpoint,) = tmp_path.glob("runs/*/*/checkpoints/last.ckpt")
    words = ("--trainer.enable_progress_bar", "false", "--data.eval_batch_size", "300")
    outcome = succeed("predict", "--ckpt_path", checkpoint, *words)
    path = checkpoint.parents[1] / "predictions.parquet"
    assert str(path) in outcome.out
    table = pd.read_parquet(path)
    scores = [f"probability_{k}" for k in range(10)]  # the classes of digits are named "0" to "9"
    of_classes = ["label", "label_class", "predicted", "predicted_class", "probability"]
    assert list(table) == ["index", *of_classes, *scores]

    task = ClassificationTask.load_from_checkpoint(checkpoint).eval()
    data = MNISTDataModule(sample=True)
    data.prepare_data()
    data.setup("test")
    images, labels = (torch.cat(parts) for parts in zip(*data.test_dataloader(), strict=True))
    with torch.no_grad():
        expected = task(images).softmax(-1)
    assert table["index"].tolist() == list(range(len(labels)))
    assert table["label"].tolist() == labels.tolist()
    assert table["label_class"].tolist() == [str(label) for label in labels.tolist()]
    found = torch.from_numpy(table[scores].to_numpy(copy=True))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert table["predicted"].tolist() == found.argmax(1).tolist()
    assert table["predicted_class"].tolist() == [str(label) for label in found.argmax(1).tolist()]
    assert table["probability"].tolist() == found.amax(1).tolist()
    path.unlink()
    succeed("predict", "-c", "mnist_classifier", *QUICK, "--ckpt_path", "last")
    assert path.exists(), "the words of the fit find its folder"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("predict", ["--ckpt_path", "FILE"]),
        ("test", ["-c", "mnist_classifier", *QUICK, "--ckpt_path", "last"]),
        (
            "fit",
            ["-c", "mnist_classifier", *QUICK, "--trainer.max_epochs", "2", "--ckpt_path", "FILE"],
        ),
    ],
    ids=["its record", "the newest", "a resumed fit"],
)
def test_a_checkpoint_is_read_once(succeed, tmp_path, monkeypatch, command, words):
    succeed("fit", "-c", "mnist_classifier", *QUICK)
    (checkpoint,) = tmp_path.glob("runs/*/*/checkpoints/last.ckpt")
    read, load = [], torch.load

    def noted(file, **options):
        read.append(Path(file).resolve())
        return load(file, **options)

    monkeypatch.setattr(torch, "load", noted)
    succeed(command, *(str(checkpoint) if word == "FILE" else word for word in words))
    assert read == [checkpoint.resolve()]


def test_predictions_in_bfloat16_are_written_as_float32():
    frame = rows(torch.tensor([[0.5, 2]], dtype=torch.bfloat16), [torch.zeros(1, 5)], "output", 0)
    assert frame.to_dict("list") == {"index": [0], "output_0": [0.5], "output_1": [2]}
    assert frame.dtypes["output_0"] == "float32"


def test_rows_of_any_shape():
    frame = rows(torch.arange(6.0).view(2, 3, 1), [torch.zeros(2, 5)], "output", 4)
    assert frame.to_dict("list") == {
        "index": [4, 5],
        "output_0": [0, 3],
        "output_1": [1, 4],
        "output_2": [2, 5],
    }
    frame = rows(
        torch.tensor([[0.25, 0.75]]),
        (torch.zeros(1), torch.tensor([0])),
        "probability",
        3,
        ["a", "b"],
    )
    assert frame.to_dict("list") == {
        **{"index": [3], "label": [0], "label_class": ["a"]},
        **{"predicted": [1], "predicted_class": ["b"], "probability": [0.75]},
        **{"probability_a": [0.25], "probability_b": [0.75]},
    }
    frame = rows(torch.tensor([1.0, 2.0]), (torch.zeros(2), torch.tensor([7, 8])), "output", [9, 3])
    assert frame.to_dict("list") == {"index": [9, 3], "output": [1, 2], "label": [7, 8]}
    frame = rows(torch.tensor([1.0, 2.0]), torch.zeros(2, 2), "output", 0)
    assert list(frame) == ["index", "output"]
    frame = rows({"score": torch.tensor([0.5, 1.0]), "box": torch.ones(2, 2)}, {}, "output", 0)
    assert frame.to_dict("list") == {
        "index": [0, 1],
        "score": [0.5, 1.0],
        "box_0": [1, 1],
        "box_1": [1, 1],
    }


@pytest.mark.parametrize(
    "prediction", [{"a": 1}, {}, {"a": torch.ones(2), "b": torch.ones(3)}, torch.tensor(1.0)]
)
def test_what_is_no_table_is_refused(prediction):
    with pytest.raises(ActlabError, match="predict_step"):
        rows(prediction, (), "output", 0)
