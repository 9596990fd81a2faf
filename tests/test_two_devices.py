"""Two devices with a progress bar and a logger: one device must not need the other's reads."""

import pickle

import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import RichProgressBar, TQDMProgressBar

from actlab.callbacks import BlockProgressBar, TestEveryEpoch, UnitStatistics
from actlab.reports.wandb import RunLogger
from toys import QUIET, Frames, FrameTask

TWO = {"devices": 2, "accelerator": "cpu", "enable_progress_bar": True, "max_epochs": 2}


@pytest.mark.parametrize(
    ("bar", "first"),
    [
        (BlockProgressBar, True),
        (BlockProgressBar, False),
        (RichProgressBar, True),
        (TQDMProgressBar, False),
    ],
)
def test_a_bar_reads_what_callbacks_log(tmp_path, bar, first):
    """In a plain Trainer; its processes are forked, which takes no imports."""
    callbacks = [TestEveryEpoch(), UnitStatistics(samples=8)]
    callbacks.insert(0 if first else 2, bar())
    options = {
        **QUIET,
        **TWO,
        "strategy": "ddp_fork",
        "precision": "64-true",
        "default_root_dir": tmp_path,
    }
    trainer = pl.Trainer(**options, callbacks=callbacks)
    trainer.fit(FrameTask(0), datamodule=Frames())
    assert {"test/loss", "units/median_of_means"} <= trainer.callback_metrics.keys()


# Two processes import everything; the tests beside it fork, and send the logger by a pickle
@pytest.mark.slow
@pytest.mark.usefixtures("spawning")
def test_a_spawned_fit_with_the_default_logger_and_bar(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--data.sample", "true", "--model.network.hidden", "[8]", "--trainer.max_epochs", "1"]
    words += [f"--trainer.limit_{part}_batches=2" for part in ("train", "val", "test")]
    words += [
        "--trainer.accelerator",
        "cpu",
        "--trainer.devices",
        "2",
        "--trainer.strategy",
        "ddp_spawn",
    ]
    cli("fit", "-c", "mnist_classifier", *words).succeeded()
    assert [len(list(tmp_path.glob(f"runs/**/{name}"))) for name in ("*.wandb", "last.ckpt")] == [
        1,
        1,
    ]


def test_a_logger_that_is_sent_to_a_process_starts_its_run_there(tmp_path):
    logger = RunLogger(save_dir=str(tmp_path), id="abc")
    sent = pickle.dumps(logger)
    assert not list(tmp_path.rglob("*.wandb"))
    logger.log_metrics({"val/loss": 1.0}, 0)
    pickle.dumps(logger)  # while its run is open: it is closed, and resumed later
    there = pickle.loads(sent)
    there.log_metrics({"val/loss": 2.0}, 1)
    there.finalize("success")
    assert len(list(tmp_path.rglob("*.wandb"))) == 2
