"""``train/loss_step``: the loss of single batches, at every n-th update, in loggers but no row of a study."""

import json

import pandas as pd
import pytest

from tiny_study import study_text

QUICK = [
    *("--data.sample", "true", "--model.network.hidden", "[8]", "--trainer.max_epochs", "2"),
    *("--trainer.limit_val_batches", "1", "--trainer.limit_test_batches", "1"),
    *("--trainer.enable_progress_bar", "false", "--trainer.logger", "line_logger.LineLogger"),
]


@pytest.fixture
def rows(cli, tmp_path, monkeypatch, program):
    program("line_logger")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def fit(*words):
        outcome = cli("fit", "-c", "mnist_classifier", *QUICK, *words)
        assert outcome.code == 0, outcome.err
        (path,) = tmp_path.glob("runs/*/*/lines.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [line for line in lines if isinstance(line, list)]

    return fit


@pytest.mark.parametrize(("every", "steps"), [(3, [2, 5]), (0, [])])
def test_the_loss_is_logged_at_every_nth_update(rows, every, steps):
    found = rows("--trainer.limit_train_batches", "4", "--trainer.log_every_n_steps", every)
    assert [step for step, metrics in found if "train/loss_step" in metrics] == steps
    assert sum("train/loss" in metrics for _, metrics in found) == 2


def test_accumulated_gradients_log_their_last_batch_once(rows):
    words = ["--trainer.accumulate_grad_batches", "2", "--trainer.log_every_n_steps", "1"]
    found = rows("--trainer.limit_train_batches", "4", *words)
    assert [step for step, metrics in found if "train/loss_step" in metrics] == [0, 1, 2, 3]


def test_it_is_the_loss_of_the_batch(rows):
    """An epoch of one batch has its loss as its mean."""
    found = rows("--trainer.limit_train_batches", "1", "--trainer.log_every_n_steps", "1")
    of_steps, of_epochs = (
        [metrics[name] for _, metrics in found if name in metrics] for name in ("train/loss_step", "train/loss")
    )
    assert len(of_steps) == 2
    assert of_steps == of_epochs


def test_the_progress_bar_shows_it(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*QUICK[:-4], "--trainer.logger", "false", "--trainer.limit_train_batches", "2"]
    outcome = cli("fit", "-c", "mnist_classifier", *words, "--trainer.log_every_n_steps", "1")
    assert outcome.code == 0, outcome.err
    assert "train/loss_step" in outcome.out


def test_a_study_records_no_row_of_it(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(study_text(seeds=1, epochs=1, trainer__log_every_n_steps=1))
    outcome = cli("study", "run", "one.yaml", "--logger", "csv")
    assert outcome.code == 0, outcome.err
    (logged,) = tmp_path.glob("runs/one/**/metrics.csv")
    assert "train/loss_step" in pd.read_csv(logged).columns
    (path,) = tmp_path.glob("runs/one/*/metrics.parquet")
    table = pd.read_parquet(path)
    assert {"loss", "clean_loss"} == {*table[table["split"] == "train"]["metric"]}
    assert "loss_step" not in outcome.out
