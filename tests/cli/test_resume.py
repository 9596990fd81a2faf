"""Training resumes at any batch of an epoch: weights and logged rows equal those of one start."""

import json
import re
import shlex
import signal
from functools import partial
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.cli import ReduceLROnPlateau
from torch.optim.lr_scheduler import StepLR

from actlab.callbacks import TestEveryEpoch
from actlab.optim import Cosine, Warmup
from programs.line_logger import LineLogger
from toys import FrameNetwork, Frames, FrameTask, fitted

# Each resume has a folder of its own
pytestmark = pytest.mark.filterwarnings("ignore:The dirpath has changed")

SMALL = [
    *("--data.sample", "true", "--data.batch_size", "128", "--model.network.hidden", "[16, 16]"),
    *("--model.network.dropout", "0.2", "--model.activation", "soi", "--trainer.max_epochs", "2"),
    *("--trainer.enable_model_summary", "false", "--trainer.log_every_n_steps", "2"),
    *("--trainer.limit_train_batches", "4", "--trainer.limit_val_batches", "2"),
    *("--trainer.limit_test_batches", "1"),
    *("--trainer.logger", "line_logger.LineLogger"),
]
# After each epoch
FALLING = partial(ReduceLROnPlateau, monitor="val/loss", patience=0, threshold=9)
HALVED = partial(StepLR, step_size=1, gamma=0.5)
CASES: dict[str, dict[str, Any]] = {
    "validations": {"val_check_interval": 0.334},
    "second": {"check_val_every_n_epoch": 2},
    "steps": {"max_steps": 6},
    "accumulated": {"accumulate_grad_batches": 2},
    "plateau": {"val_check_interval": 0.5, "task": {"scheduler": FALLING}},
    "rates": {"task": {"scheduler": HALVED, "scheduler_interval": "epoch"}},
    "shares": {"task": {"schedules": {"lr": Warmup(0.5, then=Cosine())}}},
    "of-steps": {"task": {"scheduler": HALVED, "scheduler_interval": "step"}},
}


def read(folder) -> list[Any]:
    """The rows and names of checkpoints that a fit logged."""
    return [json.loads(line) for line in (folder / "lines.jsonl").read_text().splitlines()]


def metrics(lines):
    return [line for line in lines if isinstance(line, list)]


def train(folder, case, resumed=None):
    """Train, with tests after each epoch; return the last weights."""
    options = {"max_epochs": 2, "limit_train_batches": 4, "limit_val_batches": 2, **CASES[case]}
    saves: dict[str, Any] = (
        {"monitor": "val/error"} if case == "validations" else {"every_n_train_steps": 1}
    )
    best = "train/loss" if case == "second" else "val/loss"
    task = FrameTask(
        activation="soi",
        network=partial(FrameNetwork, dropout=0.2),
        optimizer=partial(torch.optim.Adam, lr=0.01),
        **options.pop("task", {}),
    )
    callbacks = [
        TestEveryEpoch(),
        ModelCheckpoint(folder, "last", save_on_train_epoch_end=True),
        ModelCheckpoint(folder, "best", monitor=best, save_on_train_epoch_end=True),
        ModelCheckpoint(folder, "at-{step}", save_top_k=-1, save_on_train_epoch_end=False, **saves),
    ]
    options |= {"enable_checkpointing": True, "log_every_n_steps": 2, "limit_test_batches": 1}
    fitted(
        task, Frames(8), folder, *callbacks, logger=LineLogger(folder), resumed=resumed, **options
    )
    return task.state_dict()


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow if case in ("rates", "of-steps") else ())
        for case in CASES
    ],
)
def test_training_resumes_at_any_batch(tmp_path, case):
    """Each resume starts from a checkpoint of the resume before."""
    weights = train(tmp_path / "whole", case)
    lines = read(tmp_path / "whole")
    names = [line for line in lines if line not in metrics(lines) and line.startswith("at-")]
    if case == "steps":  # after the last update there is nothing to resume
        names.remove("at-step=6.ckpt")
    assert len(names) >= 4
    for before, name in zip(["whole", *names], names, strict=False):
        found = train(tmp_path / name, case, tmp_path / before / name)
        assert metrics(read(tmp_path / name)) == metrics(lines[lines.index(name) + 1 :]), name
        assert found.keys() == weights.keys()
        assert all(torch.equal(found[key], value) for key, value in weights.items()), name


def test_a_terminated_fit_resumes_at_its_last_checkpoint(cli, tmp_path, program):
    program("line_logger")
    made = [
        {"filename": "last", "save_on_train_epoch_end": True},
        {
            "filename": "at-{step}",
            "save_top_k": -1,
            "every_n_train_steps": 1,
            "save_on_train_epoch_end": False,
        },
    ]
    callbacks: list[Any] = [{"class_path": "actlab.callbacks.TestEveryEpoch"}]
    callbacks += [{"class_path": "ModelCheckpoint", "init_args": arguments} for arguments in made]
    kept = f"--trainer.callbacks={json.dumps(callbacks)}"

    def fit(root, *words):
        return cli(
            "fit",
            "-c",
            "mnist_classifier",
            *SMALL,
            kept,
            "--trainer.default_root_dir",
            root,
            *words,
        )

    def left(root):
        (last,) = tmp_path.glob(f"{root}/*/checkpoints/last.ckpt")
        return read(last.parents[1]), torch.load(last, weights_only=True)["state_dict"]

    assert fit("whole", "--trainer.enable_progress_bar=false").code == 0
    lines, weights = left("whole")
    assert fit("cut", "--trainer.logger.last", "at-step=5.ckpt").code == 128 + signal.SIGTERM
    (path,) = (tmp_path / "cut").glob("*/checkpoints/at-step=5.ckpt")
    (path.parents[1] / "lines.jsonl").unlink()
    outcome = fit("cut", "--ckpt_path", path)  # with a progress bar
    assert outcome.code == 0, outcome.err
    rows, found = left("cut")
    assert metrics(rows) == metrics(lines[lines.index(path.name) + 1 :])
    assert all(torch.equal(found[key], value) for key, value in weights.items())


BRIEF = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]


def test_a_fit_says_where_it_is_and_what_is_next_and_last_is_its_newest_checkpoint(
    cli, succeed, program, tmp_path
):
    """With Lightning's own names of checkpoints."""
    program("plain_lightning")
    words = [
        "fit",
        "--model",
        "plain_lightning.MyModule",
        "--data",
        "plain_lightning.MyData",
        *BRIEF,
    ]
    words += ["--trainer.logger", "false", "--trainer.max_epochs"]
    first = cli(*words, "2")
    (folder,) = tmp_path.glob("runs/MyModule/*")
    said, following = first.out.splitlines()[-2:]
    assert said.startswith(f"{folder.relative_to(tmp_path)}: ")
    assert re.search(r"val/loss 0\.\d{2,4}.* at epoch 2, step 8$", said)
    assert following.startswith("next: actlab validate --model plain_lightning.MyModule")
    succeed(*shlex.split(following.removeprefix("next: actlab ")))
    outcome = cli(*words, "3", "--ckpt_path", "last")
    assert (outcome.code, [*tmp_path.glob("runs/MyModule/*")]) == (0, [folder]), outcome.err
    assert (folder / "checkpoints/epoch=2-step=12.ckpt").exists()


@pytest.mark.parametrize(
    ("place", "name"),
    [({"filename": "{epoch}-{val/loss:.2f}"}, "last"), ({"dirpath": "mine"}, "mine")],
    ids=["slash", "dirpath"],
)
def test_a_checkpoint_below_or_outside_its_folder_is_found(
    cli, succeed, program, tmp_path, place, name
):
    """Lightning makes a folder of a slash in the name of a metric."""
    program("plain_lightning")
    callback = {
        "class_path": "ModelCheckpoint",
        "init_args": {"monitor": "val/loss", "mode": "max", **place},
    }
    words = ["--model", "plain_lightning.MyModule", "--data", "plain_lightning.MyData", *BRIEF]
    words += ["--trainer.logger=false", f"--trainer.callbacks={json.dumps([callback])}"]
    first = cli("fit", *words, "--trainer.max_epochs=1")
    (stored,) = tmp_path.rglob("*.ckpt")
    following = first.out.splitlines()[-1]
    assert f"--ckpt_path {tmp_path / name if name == 'mine' else name}" in following, first.out
    for command in (
        following.removeprefix("next: actlab "),
        following.replace("next: actlab validate", "fit"),
    ):
        succeed(*shlex.split(command))
    assert len([*tmp_path.glob("runs/MyModule/*")]) == 1

    if name == "last":
        succeed("validate", *words, "--ckpt_path=best")
        succeed("validate", "--ckpt_path", stored, "--trust")
        succeed("fit", *words, "--trainer.max_epochs=1")
        assert len([*tmp_path.glob("runs/MyModule/*")]) == 2  # no checkpoint is overwritten


def test_a_fit_of_a_task_can_be_tested_by_the_command_that_it_prints(cli, succeed):
    made = cli("fit", "-c", "mnist_classifier", *SMALL[:-2], *BRIEF, "--trainer.max_epochs=1")
    following = made.out.splitlines()[-1].removeprefix("next: actlab ")
    assert following.startswith("test -c mnist_classifier --data.sample true"), made.out
    succeed(*shlex.split(following))


def test_a_default_seed_that_the_seed_of_the_run_replaces_is_named(cli, program, tmp_path):
    program("plain_lightning")
    text = "from plain_lightning import MyData\n\n\nclass Split(MyData):\n"
    text += "    def __init__(self, seed: int = 42):\n        super().__init__()\n"
    (tmp_path / "splits.py").write_text(text)
    words = [
        "fit",
        "--model",
        "plain_lightning.MyModule",
        "--data",
        "splits.Split",
        "--print_config",
    ]
    assert (
        "data.seed is the seed of the run, not splits.Split's default 42"
        in cli(*words, "--seed_everything=7").err
    )
    assert "default 42" not in cli(*words, "--seed_everything=42").err

    model = "model: {class_path: plain_lightning.MyModule}"
    (tmp_path / "splits.yaml").write_text(f"{model}\ndata: {{class_path: splits.Split}}\n")
    study = (
        "base: splits.yaml\ngrid: {model.init_args.width: [4, 8]}\n"
        "select: {metric: val/loss}\nseeds: 2\n"
    )
    (tmp_path / "own.yaml").write_text(study + "table: [{metric: val/loss}]\n")
    planned = cli("study", "plan", "own.yaml")
    assert (
        "data.seed is the seed of the run, not splits.Split's default 42"
        in planned.out + planned.err
    )
    assert (
        ".seed is"
        not in cli("fit", "-c", "mnist_classifier", "--print_config", "--seed_everything=7").err
    )


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_a_brief_run_leaves_no_folder(succeed, tmp_path, command):
    outcome = succeed(
        command, "-c", "mnist_classifier", *SMALL[:-2], *BRIEF, "--trainer.fast_dev_run", "true"
    )
    assert not [*tmp_path.iterdir()]
    assert "next: " not in outcome.out
