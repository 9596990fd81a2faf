"""Lightning's ways to change training, with a shipped config: they work, or one line says why."""

import json
from functools import partial
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import BatchSizeFinder

from actlab.datamodules import MNISTDataModule
from actlab.networks import MLP
from actlab.tasks import ClassificationTask

QUICK = [
    *("--data.sample", "true", "--trainer.max_epochs", "2", "--model.network.hidden", "[8]"),
    *("--trainer.limit_train_batches", "4", "--trainer.limit_val_batches", "1"),
    *("--trainer.limit_test_batches", "1", "--trainer.enable_model_summary", "false"),
]
LINES = ["--trainer.logger", "line_logger.LineLogger", "--trainer.enable_progress_bar", "false"]


@pytest.fixture
def fit(cli, program):
    program("line_logger")
    return lambda *words, command="fit": cli(command, "-c", "mnist_classifier", *QUICK, *words)


def test_averaged_weights_are_validated_tested_and_saved(fit, tmp_path):
    outcome = fit(*LINES, "--trainer.callbacks+", "EMAWeightAveraging")
    assert outcome.code == 0, outcome.err
    (path,) = tmp_path.glob("runs/*/*/checkpoints/last.ckpt")
    saved = torch.load(path, weights_only=True)
    names = saved["current_model_state"].keys()
    assert any(
        not torch.equal(saved["state_dict"][n], saved["current_model_state"][n]) for n in names
    )
    task = ClassificationTask.load_from_checkpoint(path)
    assert all(
        torch.equal(task.state_dict()[name], saved["state_dict"][name])
        for name in task.state_dict()
    )
    for command in ("validate", "test"):
        assert fit(*LINES, "--ckpt_path", path, command=command).code == 0
    lines = [
        json.loads(line) for line in (path.parents[1] / "lines.jsonl").read_text().splitlines()
    ]
    for name in ("val/loss", "test/loss"):
        trained, again = [
            line[1][name] for line in lines if isinstance(line, list) and name in line[1]
        ][-2:]
        assert trained == again


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["--trainer.callbacks+=LearningRateFinder"],
            "LearningRateFinder trains with another learning rate",
        ),
        (
            ["--trainer.callbacks+", "BatchSizeFinder"],
            "BatchSizeFinder trains with another batch size",
        ),
        (
            ["--trainer.callbacks+=StochasticWeightAveraging", "--trainer.callbacks.swa_lrs=0.01"],
            (
                "StochasticWeightAveraging keeps averaged weights that no checkpoint and no test "
                "would contain. Use"
            ),
        ),
        (
            ["--trainer.barebones=true"],
            "barebones excludes loggers and checkpoints. Set trainer.logger and",
        ),
    ],
)
def test_what_the_checkpoints_would_not_record_is_rejected(fit, words, reason):
    assert reason in fit(*words, "--trainer.logger", "false").rejection


# Lightning's, of what barebones leaves out
@pytest.mark.filterwarnings("ignore:You are trying to .self.log")
def test_barebones_train(fit):
    outcome = fit("--trainer.barebones=true", "--trainer.logger=null", "--trainer.callbacks=null")
    assert outcome.code == 0, outcome.err


def test_a_default_that_is_an_enum_is_recorded_and_read(fit, succeed, tmp_path):
    outcome = fit(
        *LINES, "--trainer.callbacks+", "Timer", "--trainer.callbacks.duration", "00:00:10:00"
    )
    assert outcome.code == 0, outcome.err
    (path,) = tmp_path.glob("runs/*/*/config.yaml")
    succeed("fit", "-c", path)


def test_a_batch_size_finder_works_in_a_script(tmp_path):
    finder = BatchSizeFinder("power", init_val=16, max_trials=2)
    options: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = pl.Trainer(
        max_epochs=1,
        limit_train_batches=2,
        default_root_dir=tmp_path,
        callbacks=[finder],
        **options,
    )
    data = MNISTDataModule(sample=True)
    trainer.fit(
        ClassificationTask(10, (1, 28, 28), "gelu", partial(MLP, hidden=[8])), datamodule=data
    )
    assert finder.optimal_batch_size == data.batch_size > 16
