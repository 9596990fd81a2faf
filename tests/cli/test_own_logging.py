"""A subclass of a task logs what it likes: alone, after a resume, in a study, and in a plain Trainer."""

import json

import pandas as pd
import pytest

from tiny_study import study_text

QUICK = [
    *("--data.sample", "true", "--model.network.hidden", "[8]", "--trainer.max_epochs", "2"),
    *("--trainer.limit_train_batches", "3", "--trainer.limit_val_batches", "2"),
    *("--trainer.limit_test_batches", "1", "--trainer.log_every_n_steps", "1"),
    *("--trainer.logger", "line_logger.LineLogger", "--model.class_path", "logging_task.LoggingTask"),
]


@pytest.fixture(autouse=True)
def _code(tmp_path, monkeypatch, program):
    for name in ("line_logger", "logging_task"):
        program(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_fit_logs_it(cli, tmp_path):
    outcome = cli("fit", "-c", "mnist_classifier", *QUICK)
    assert outcome.code == 0, outcome.err
    (path,) = tmp_path.glob("runs/*/*/lines.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = [line[1] for line in lines if isinstance(line, list)]
    times = {name: sum(name in metrics for metrics in found) for name in set().union(*found)}
    assert times["own/loss_step"] == times["train/loss_step"] == 6
    for name in ("own/loss_epoch", "own/norm", "own/epoch", "own/test_size", "train/loss"):
        assert times[name] == 2, name
    assert times["own/val_batch"] == times["own/validations"] == times["val/loss"]
    own, ours = ([m[name] for m in found if name in m] for name in ("own/loss_epoch", "train/loss"))
    assert own == pytest.approx(ours)


@pytest.mark.tries_stacks  # what a stack does not log is found by the trial
def test_a_study_records_it(cli, tmp_path):
    (tmp_path / "own.yaml").write_text(study_text(model__class_path="logging_task.LoggingTask"))
    outcome = cli("study", "run", "own.yaml")
    assert outcome.code == 0, outcome.err
    for path in tmp_path.glob("runs/own/*/metrics.parquet"):
        rows = pd.read_parquet(path)
        own = rows[rows["split"] == "own"].groupby("metric")["value"].agg(list)
        assert own["epoch"] == [0.0, 1.0]
        assert {"norm", "validations", "test_size"} <= {*own.index}
