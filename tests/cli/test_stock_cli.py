"""`actlab` beside a stock LightningCLI over the same classes: equal weights, equal rows.

Intended differences are listed in `docs/guide/lightning.md`.
"""

import shutil
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.cli import LightningCLI

BASE: dict[str, Any] = {
    "seed_everything": 0,
    "model": {
        "class_path": "actlab.tasks.ClassificationTask",
        "init_args": {
            "activation": "gelu",
            "network": {
                "class_path": "actlab.networks.MLP",
                "init_args": {"hidden": [8, 8], "dropout": 0.1},
            },
            "optimizer": {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.01}},
        },
    },
    "data": {"class_path": "actlab.datamodules.MNISTDataModule", "init_args": {"sample": True}},
    "trainer": {
        **{
            "max_epochs": 2,
            "limit_train_batches": 3,
            "limit_val_batches": 1,
            "limit_test_batches": 1,
        },
        **{"log_every_n_steps": 1, "num_sanity_val_steps": 0, "accelerator": "cpu"},
        **{"enable_progress_bar": False, "enable_model_summary": False},
        "logger": {
            "class_path": "pytorch_lightning.loggers.CSVLogger",
            "init_args": {"save_dir": "rows"},
        },
        "callbacks": [
            {"class_path": "actlab.callbacks.TestEveryEpoch"},
            {
                "class_path": "pytorch_lightning.callbacks.ModelCheckpoint",
                "init_args": {
                    "dirpath": "kept",
                    "filename": "last",
                    "save_on_train_epoch_end": True,
                },
            },
        ],
    },
}
METRICS = "{f1: {class_path: torchmetrics.F1Score, init_args: {task: multiclass, num_classes: 10}}}"
SCHEDULES = "{lr: {class_path: actlab.optim.Linear, init_args: {start: 0, end: 4}}}"
WORDS = {  # words that leave each other alone are tried in one fit; the first two by default
    "arguments": [
        *("--model.activation", "{name: elu, alpha: 0.5}", "--model.network.hidden=[16]"),
        *("--model.optimizer.lr=0.1", "--data.batch_size=64"),
        *("--model.scheduler=torch.optim.lr_scheduler.StepLR", "--model.scheduler.step_size=1"),
        *("--model.l2", "{class_path: actlab.optim.L2, init_args: {strength: 0.01}}"),
        *(
            "--model.metrics",
            METRICS,
            "--trainer.callbacks+=EarlyStopping",
            "--trainer.callbacks.monitor=val/loss",
        ),
    ],
    "classes": [
        *(
            "--model.optimizer=torch.optim.SGD",
            "--model.optimizer.lr=0.1",
            "--model.optimizer.momentum=0.5",
        ),
        *(
            "--model.scheduler=pytorch_lightning.cli.ReduceLROnPlateau",
            "--model.scheduler.monitor=val/loss",
        ),
        *(
            "--model.scheduler.patience=0",
            "--model.scheduler.threshold=9",
            "--model.activation=soi",
        ),
        *(
            "--model.init_args.network.init_args.dropout",
            "0.3",
            "--data.init_args.batch_size",
            "32",
        ),
        *("--trainer.accumulate_grad_batches=2", "--trainer.gradient_clip_val=0.1"),
        *("--trainer.callbacks+=LearningRateMonitor", "--ckpt_path=null"),
    ],
    "bare-names": [
        *(
            "--model.optimizer=AdamW",
            "--data=MNISTDataModule",
            "--data.sample=true",
            "--seed_everything=3",
        ),
        *("--model.schedules", SCHEDULES, "--trainer.callbacks+=EMAWeightAveraging"),
        "--trainer.gradient_clip_val=null",
    ],
    "files": [
        *("--trainer=trainer.yaml", "-c", "more.yaml", "--trainer.val_check_interval=0.34"),
        *("--trainer.max_steps=2", "--trainer.precision=bf16-mixed"),
    ],
    "subclass": ["--model=own_modules.Sub", "--model.extra=5"],
    "another-model": [
        *("--model=own_modules.Bare", "--optimizer=Adam", "--optimizer.lr=0.1"),
        *("--lr_scheduler=ExponentialLR", "--lr_scheduler.gamma=0.5"),
    ],
}
# Words that only the stock LightningCLI needs, because actlab links the seed.
ONLY_STOCK = {"bare-names": ["--model.seed=3", "--data.seed=3"]}


@pytest.fixture
def run(succeed, tmp_path, monkeypatch, capsys, program):
    """Run words with the stock LightningCLI or actlab, in a new folder; return the output."""
    monkeypatch.setattr(sys, "argv", ["stock"])
    program("own_modules")

    def run(name, command, *words, config=BASE):
        (folder := tmp_path / name).mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        (folder / "mine.yaml").write_text(yaml.safe_dump(config))
        (folder / "more.yaml").write_text("model: {init_args: {activation: tanh}}\n")
        (folder / "trainer.yaml").write_text(yaml.safe_dump({**BASE["trainer"], "max_epochs": 1}))
        given = [command, "-c", "mine.yaml", *words]
        if name == "ours":
            outcome = succeed(*given)
            return outcome.out
        classes: dict[str, Any] = {"subclass_mode_model": True, "subclass_mode_data": True}
        LightningCLI(pl.LightningModule, pl.LightningDataModule, **classes, args=given)
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(
    "case", [*[*WORDS][:2], *(pytest.param(case, marks=pytest.mark.slow) for case in [*WORDS][2:])]
)
def test_words_train_the_same_network_with_the_same_rows(run, tmp_path, case):
    run("stock", "fit", *WORDS[case], *ONLY_STOCK.get(case, ()))
    run("ours", "fit", *WORDS[case])
    folders = [tmp_path / "stock", tmp_path / "ours"]
    stock, ours = (
        torch.load(one / "kept/last.ckpt", weights_only=True)["state_dict"] for one in folders
    )
    assert stock.keys() == ours.keys()
    assert all(torch.equal(stock[name], value) for name, value in ours.items())
    stock, ours = (
        pd.read_csv(one / "rows/lightning_logs/version_0/metrics.csv") for one in folders
    )
    assert len(ours) > 3
    pd.testing.assert_frame_equal(stock, ours, check_exact=True)


def test_a_config_that_the_stock_cli_saved_trains(run, cli, tmp_path):
    run("stock", "fit")
    (saved,) = tmp_path.rglob("lightning_logs/**/config.yaml")
    config = yaml.safe_load(saved.read_text())
    assert {"ckpt_path", "optimizer"} <= config.keys()
    for section in ("model", "data"):  # the seed is given once, as seed_everything
        assert config[section]["init_args"].pop("seed") is None
    for version, (path, epochs) in enumerate(((None, {0, 1}), ("last-2.ckpt", {2}))):
        config |= {
            "ckpt_path": path,
            "trainer": {**config["trainer"], "max_epochs": max(epochs) + 1},
        }
        run("ours", "fit", config=config)
        rows = pd.read_csv(f"rows/lightning_logs/version_{version}/metrics.csv")
        assert {*rows["epoch"]} == epochs
        shutil.copy("kept/last.ckpt", "last-2.ckpt")
    Path("saved.yaml").write_text(yaml.safe_dump({**config, "ckpt_path": "no.ckpt"}))
    rejection = cli("fit", "-c", "saved.yaml").rejection
    assert "expected last, best or a file on this computer, got 'no.ckpt'" in rejection


def test_an_evaluation_prints_the_same_table(run):
    stock, ours = (run(name, "validate", "--trainer.logger=false") for name in ("stock", "ours"))
    assert "loss" in stock
    assert stock == ours
