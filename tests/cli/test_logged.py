"""What loggers receive: the loss of single batches, and what a task's subclass logs by itself."""

import json

import pandas as pd
import pytest

from tiny_study import study_text

QUICK = [
    *("--data.sample", "true", "--model.network.hidden", "[8]", "--trainer.max_epochs", "2"),
    *("--trainer.limit_val_batches", "1", "--trainer.limit_test_batches", "1"),
    *("--trainer.enable_progress_bar", "false", "--trainer.logger", "line_logger.LineLogger"),
]
EACH = ["--trainer.log_every_n_steps", "1"]


@pytest.fixture
def rows(succeed, tmp_path, program):
    for name in ("line_logger", "logging_task"):
        program(name)

    def fit(*words):
        succeed("fit", "-c", "mnist_classifier", *QUICK, *words)
        (path,) = tmp_path.glob("runs/*/*/lines.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in lines if isinstance(line, list)]

    return fit


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (["--trainer.log_every_n_steps", "3"], [2, 5]),
        (["--trainer.log_every_n_steps", "0"], []),
        # The last batch of each update
        (
            [*EACH, "--trainer.accumulate_grad_batches", "2"],
            [0, 1, 2, 3],
        ),
    ],
)
def test_the_loss_is_logged_at_every_nth_update(rows, words, steps):
    found = rows("--trainer.limit_train_batches", "4", *words)
    assert [step for step, metrics in found if "train/loss_step" in metrics] == steps
    assert sum("train/loss" in metrics for _, metrics in found) == 2


def test_it_is_the_loss_of_the_batch(rows):
    """An epoch of one batch has its loss as its mean."""
    found = rows("--trainer.limit_train_batches", "1", *EACH)
    of_steps, of_epochs = (
        [metrics[name] for _, metrics in found if name in metrics]
        for name in ("train/loss_step", "train/loss")
    )
    assert len(of_steps) == 2
    assert of_steps == of_epochs


def test_a_study_records_no_row_of_it(succeed, tmp_path):
    (tmp_path / "one.yaml").write_text(study_text(seeds=1, epochs=1, trainer__log_every_n_steps=1))
    outcome = succeed("study", "run", "one.yaml", "--logger", "csv")
    (logged,) = tmp_path.glob("runs/one/**/metrics.csv")
    assert "train/loss_step" in pd.read_csv(logged).columns
    (path,) = tmp_path.glob("runs/one/*/metrics.parquet")
    table = pd.read_parquet(path)
    assert {"loss", "clean_loss"} == {*table[table["split"] == "train"]["metric"]}
    assert "loss_step" not in outcome.out


def test_a_fit_logs_what_a_subclass_logs(rows):
    words = ["--trainer.limit_train_batches", "3", "--trainer.limit_val_batches", "2", *EACH]
    found = [
        metrics for _, metrics in rows(*words, "--model.class_path", "logging_task.LoggingTask")
    ]
    times = {name: sum(name in metrics for metrics in found) for name in set().union(*found)}
    assert times["own/loss_step"] == times["train/loss_step"] == 6
    for name in ("own/loss_epoch", "own/norm", "own/epoch", "own/test_size", "train/loss"):
        assert times[name] == 2, name
    assert times["own/val_batch"] == times["own/validations"] == times["val/loss"]
    own, ours = ([m[name] for m in found if name in m] for name in ("own/loss_epoch", "train/loss"))
    assert own == pytest.approx(ours)


@pytest.mark.tries_stacks  # what a stack does not log is found by the trial
def test_a_study_records_what_a_subclass_logs(succeed, program, tmp_path):
    program("logging_task")
    (tmp_path / "own.yaml").write_text(study_text(model__class_path="logging_task.LoggingTask"))
    succeed("study", "run", "own.yaml")
    for path in tmp_path.glob("runs/own/*/metrics.parquet"):
        rows = pd.read_parquet(path)
        own = rows[rows["split"] == "own"].groupby("metric")["value"].agg(list)
        assert own["epoch"] == [0.0, 1.0]
        assert {"norm", "validations", "test_size"} <= {*own.index}
