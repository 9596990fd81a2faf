"""The W&B run of a single fit: its name, its history, and later commands that continue it."""

import pytest

import wandb_logs
from actlab.storage.mappings import parse

QUICK = [
    *("-c", "mnist_classifier", "--data.sample", "true", "--model.network.hidden", "[8]"),
    *(
        "--trainer.max_epochs",
        "1",
        "--trainer.limit_train_batches",
        "4",
        "--trainer.limit_val_batches",
        "1",
    ),
    *(
        "--trainer.limit_test_batches",
        "1",
        "--trainer.log_every_n_steps",
        "2",
        "--model.activation",
        "elu",
    ),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
]
MONITOR = [
    "--trainer.callbacks+",
    "LearningRateMonitor",
    "--trainer.callbacks.logging_interval",
    "step",
]


@pytest.fixture
def run(succeed, tmp_path):

    def one(command, *words):
        succeed(command, *QUICK, *words)
        return sorted(tmp_path.glob("runs/**/*.wandb"), key=lambda path: path.stat().st_mtime)

    return one


def test_it_has_name_group_tags_losses_of_steps_and_learning_rates(run):
    (log,) = run("fit", *MONITOR)
    folder, header = log.parents[2], wandb_logs.header(log)
    assert (header.display_name, header.run_group, [*header.tags]) == (
        folder.name,
        "mnist_classifier",
        ["elu"],
    )
    rows = wandb_logs.history(folder)
    assert sum("train/loss_step" in row for row in rows) == 2
    assert {row["lr-Adam"] for row in rows if "lr-Adam" in row} == {0.001}
    assert sum("val/loss" in row for row in rows) == 4


def test_what_is_given_stays(run):
    logger = {"name": "mine", "group": "ours", "tags": "[a, b]"}
    (log,) = run("fit", *(f"--trainer.logger.{key}={value}" for key, value in logger.items()))
    header = wandb_logs.header(log)
    assert (header.display_name, header.run_group, [*header.tags]) == ("mine", "ours", ["a", "b"])


def test_wandbs_variables_name_the_run(run, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "theirs")
    monkeypatch.setenv("WANDB_NAME", "mine")
    (log,) = run("fit")
    header = wandb_logs.header(log)
    assert (header.project, header.display_name) == ("theirs", "mine")


def test_every_logger_gets_the_config(run):
    (log,) = run("fit", "--trainer.logger=[CSVLogger, actlab.reports.wandb.RunLogger]")
    (kept,) = log.parents[2].glob("**/hparams.yaml")
    assert parse(kept.read_text())["model"]["init_args"]["activation"] == "elu"
    logged = [
        wandb_logs.items(r.config.update)
        for r in wandb_logs.log_records(log)
        if r.HasField("config")
    ]
    assert any("activation" in values for values in logged)


def test_evaluations_of_a_run_continue_its_history(run):
    (first,) = run("fit")
    for command, name in (("test", "test/error"), ("validate", "val/error")):
        *_, log = run(command, "--ckpt_path", "last")
        assert log.stem == first.stem  # the id
        assert wandb_logs.header(log).display_name == wandb_logs.header(first).display_name
        assert any(name in wandb_logs.items(r.history.item) for r in wandb_logs.log_records(log))
