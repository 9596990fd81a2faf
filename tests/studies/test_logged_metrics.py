"""What users' modules log: which values are better, the loop, and the number of batches."""

import pandas as pd
import pytest

from actlab.api import results
from actlab.engines.packed_rows import packed, unpacked
from actlab.storage.series import names
from actlab.studies.rows import Row

BASE = {
    "model": {"class_path": "logged_metrics.Module"},
    "data": {"class_path": "logged_metrics.Data"},
    "trainer": {"max_epochs": 2, "accelerator": "cpu"},
}
STUDY = """\
base: base.yaml
grid: {model.activation: [relu], model.lr: [0.03, 1.0e-6]}
select: {tune: [model.lr], metric: METRIC}
seeds: 1
table: [COLUMNS]
"""


@pytest.fixture
def study(own_study):
    on = own_study("logged_metrics", BASE)

    def run(command, *words, metric="valid/acc", columns="{metric: val_loss}"):
        return on(STUDY.replace("METRIC", metric).replace("COLUMNS", columns), command, *words)

    return run


def test_the_last_word_of_a_name_says_which_values_are_better(study):
    columns = (
        "{metric: valid_BinaryF1Score, at: best valid/acc}, "
        "{metric: valid_BinaryHingeLoss, mode: min}"
    )
    columns += ", {metric: val_mean, ranked: false}"
    outcome = study("run", columns=columns)
    assert outcome.code == 0, outcome.err
    found = results("own.yaml")
    assert found.study.select.mode == "max"
    modes = {column.metric: column.mode for column in found.stages[-1].columns}
    assert modes == {"valid_BinaryF1Score": "max", "valid_BinaryHingeLoss": "min", "val_mean": ""}
    assert list(found.table["lr"]) == ["0.03"]


@pytest.mark.parametrize(
    ("metric", "column"),
    [
        ("valid/acc", "{metric: val_mean}"),
        ("valid/acc", "{metric: val_mean, ranked: false, at: best}"),
        ("valid/acc", "{metric: val_loss, at: best val_mean}"),
        ("val_mean", "{metric: val_loss}"),
    ],
)
def test_an_unknown_direction_is_asked_for_before_training(study, tmp_path, metric, column):
    for command in ("plan", "run"):
        outcome = study(command, metric=metric, columns=column)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert (
            "val_mean does not say whether low or high values are better. Set 'mode: min' or"
            in outcome.err
        )
    assert not (tmp_path / "runs").exists()


def test_a_given_mode_holds_in_the_table_too(study):
    outcome = study("run", metric="val_mean, mode: max", columns="{metric: val_mean, at: best}")
    assert outcome.code == 0, outcome.err


def test_rows_say_which_loop_logged_them_and_what_is_of_one_batch(study, tmp_path):
    columns = (
        "{metric: train/loss}, {metric: val/loss}, {metric: train_loss}, "
        "{metric: batch, ranked: false}"
    )
    outcome = study("run", metric="val_loss", columns=columns)
    assert outcome.code == 0, outcome.err
    for path in tmp_path.glob("runs/own/*/metrics.parquet"):
        frame = pd.read_parquet(path)
        rows = frame.groupby(["metric", "condition", "loop"]).size().to_dict()
        assert rows.pop(("acc", "", "val")) == 2
        expected = [("loss", "", loop) for loop in ("train", "val")]
        expected += [
            ("val_loss", "", "val"),
            ("val_mean", "", "val"),
            ("train_loss", "one batch", "train"),
            ("batch", "one batch", "train"),
        ]
        expected += [(f"valid_{name}", "", "val") for name in ("BinaryF1Score", "BinaryHingeLoss")]
        assert rows == dict.fromkeys(expected, 2)
        assert frame[frame["metric"] == "batch"]["value"].tolist() == [3, 3]
    shown = study("show", metric="val_loss", columns=columns).out
    assert "train loss (one batch, last)" in " ".join(shown.split())
    (row,) = results("own.yaml").table.to_dict("records")
    assert row["val/loss@last"] != row["train/loss@last"]


def test_what_another_loop_logged_selects_nothing(study):
    outcome = study("plan", metric="train_loss")
    assert "'select: metric: train_loss' is not a validation metric" in outcome.err
    outcome = study("run", metric="batch, mode: min")
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert (
        "batch' is not a validation metric. Use one, such as val/loss, val_loss, val_mean, "
        in outcome.err
    )


def test_a_checkpoint_keeps_loops_and_conditions():
    rows = [
        Row(1.0, 4, "", "loss", "one batch", 0.5, "train"),
        Row(1.0, 4, "valid", "acc", "", 0.5, "val"),
        Row(1.0, 4, "activation", "beta", "layer=1", 0.5),
    ]
    assert unpacked(packed(rows)) == rows


def test_a_name_that_two_loops_logged_never_hides_another():
    assert names([("loss", ""), ("loss", "val")]) == {
        ("loss", ""): "loss",
        ("loss", "val"): "val/loss",
    }
    logs = [("loss", "train"), ("loss", "val"), ("val/loss", "val")]
    assert len({*names(logs).values()}) == 3
