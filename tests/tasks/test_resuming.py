"""Resumes of tasks in plain Trainers; checkpoints within an epoch that are rejected, and why.

`tests/cli/test_resume.py` resumes at each batch.
"""

import json
from functools import partial
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EMAWeightAveraging, ModelCheckpoint
from pytorch_lightning.cli import ReduceLROnPlateau

from actlab.errors import ActlabError
from actlab.storage.files import DamagedError
from programs.line_logger import LineLogger
from toys import FrameNetwork, Frames, FrameTask, fitted
from updates_in_blocks import check_equal


class Save(Callback):
    """Save a checkpoint in a hook, the second time that it is called."""

    def __init__(self, path: Any, hook: str) -> None:
        self.path, self.calls = path, 0
        setattr(self, hook, self.save)

    def save(self, trainer: pl.Trainer, *_: Any) -> None:
        self.calls += 1
        if self.calls == 2:
            trainer.save_checkpoint(self.path)


class Losses(Callback):
    """The training losses of the epochs."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if "train/loss" in trainer.callback_metrics:
            self.seen.append(float(trainer.callback_metrics["train/loss"]))

    on_train_end = on_train_epoch_start


class Fail(Callback):
    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == 2:
            raise RuntimeError("a fault")


class StockLoader(Frames):
    """Batches of its own loader, which has no state."""

    def train_dataloader(self) -> Any:
        return super().train_dataloader().loader


def trained(tmp_path, *callbacks, data=Frames, task=None, **options):
    settings: dict[str, Any] = {"max_epochs": 2, "enable_checkpointing": True, **options}
    fitted(task := task or FrameTask(), data(), tmp_path, *callbacks, **settings)
    return task.state_dict()


@pytest.mark.parametrize(
    ("hook", "options", "reason"),
    [
        ("on_train_batch_start", {}, "in the middle of a batch"),
        (
            "on_validation_batch_end",
            {"val_check_interval": 0.5},
            "in the middle of a batch or validation",
        ),
        ("on_train_batch_end", {"accumulate_grad_batches": 3}, "between two optimizer steps"),
        ("on_train_batch_end", {"max_steps": 2}, "at the last of max_steps updates"),
        ("on_train_batch_end", {"data": StockLoader}, "without the position of the data loader"),
    ],
)
def test_a_checkpoint_between_two_states(tmp_path, hook, options, reason):
    path = tmp_path / "within.ckpt"
    trained(tmp_path, Save(path, hook), **options)
    with pytest.raises(
        ActlabError, match=rf"within an epoch, after \d batches, .*{reason}.*\. Use a"
    ):
        trained(tmp_path, **options, resumed=path)


def test_a_checkpoint_of_an_exception(tmp_path):
    with pytest.raises(RuntimeError, match="a fault"):
        trained(
            tmp_path, ModelCheckpoint(tmp_path, save_on_exception=True, every_n_epochs=9), Fail()
        )
    (path,) = tmp_path.glob("*.ckpt")
    with pytest.raises(ActlabError, match="after 2 batches, by an exception"):
        trained(tmp_path, resumed=path)


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_max_steps_resume_after_a_whole_epoch(tmp_path):
    """Lightning 2.6 would end the epoch again, and train the next one on its batches."""
    straight, resumed = Losses(), Losses()
    steps = {"max_steps": 12, "max_epochs": -1}
    whole = trained(tmp_path, straight, ModelCheckpoint(tmp_path, "{step}", save_top_k=-1), **steps)
    found = trained(tmp_path, resumed, **steps, resumed=tmp_path / "step=4.ckpt")
    assert resumed.seen == straight.seen[1:]
    check_equal(found, whole)


def test_averaged_weights_resume_within_an_epoch(tmp_path):
    save = Save(path := tmp_path / "within.ckpt", "on_train_batch_end")
    straight = trained(tmp_path, EMAWeightAveraging(decay=0.9), save)
    resumed = trained(tmp_path, EMAWeightAveraging(decay=0.9), resumed=path)
    check_equal(resumed, straight)


@pytest.mark.usefixtures("spawning")
@pytest.mark.slow  # eight fits of two processes each
@pytest.mark.filterwarnings("ignore:Be aware that when using .ckpt_path")
@pytest.mark.parametrize("interval", [0.334, 1.0])
def test_two_devices_resume_at_any_batch(tmp_path, interval):
    """Each device has its own partial means and its own part of the next batch."""
    two = {
        "devices": 2,
        "strategy": "ddp_spawn",
        "val_check_interval": interval,
        "log_every_n_steps": 1,
    }
    two["limit_train_batches"] = 3
    save = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, every_n_train_steps=1)
    straight = trained(tmp_path, save, **two, logger=LineLogger(str(tmp_path)))
    lines = lines_in(tmp_path)
    assert len([line for line in lines if isinstance(line, str)]) == 6
    for step in range(1, 6):
        folder, path = tmp_path / str(step), tmp_path / f"step={step}.ckpt"
        resumed = trained(
            tmp_path,
            enable_checkpointing=False,
            resumed=path,
            logger=LineLogger(str(folder)),
            **two,
        )
        check_equal(resumed, straight)
        rest = lines[lines.index(path.name) + 1 :]
        assert lines_in(folder) == [line for line in rest if not isinstance(line, str)]
    with pytest.raises(ActlabError, match=r"after 2 batches, on 2 devices, not 1\. Use"):
        trained(tmp_path, enable_checkpointing=False, resumed=path, limit_train_batches=3)


def lines_in(folder):
    return [json.loads(line) for line in (folder / "lines.jsonl").read_text().splitlines()]


# abstract; takes sparse gradients; takes matrices alone
NOT_HERE = (
    "Optimizer",
    "SparseAdam",
    "Muon",
)
OPTIMIZERS = [
    kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and name not in NOT_HERE
]
USUAL = ("Adam", "LBFGS", "SGD")  # with tensors, with a list and without a state
CASES = [
    *(
        pytest.param(
            kind,
            {"max_iter": 2} if kind is torch.optim.LBFGS else {},
            id=kind.__name__,
            marks=() if kind.__name__ in USUAL else pytest.mark.slow,
        )
        for kind in OPTIMIZERS
    ),
    pytest.param(torch.optim.SGD, {"momentum": 0.5}, id="SGD with momentum"),
]


# No ModelCheckpoint in the second
@pytest.mark.filterwarnings("ignore:Be aware that when using .ckpt_path")
@pytest.mark.parametrize(("kind", "options"), CASES)
def test_every_optimiser_resumes_but_not_from_an_empty_state(tmp_path, kind, options):
    # torch restores a float32 number of NAdam as float64 beside weights in float64
    single = {"precision": "32-true", "data": partial(Frames, dtype=torch.float32)}
    make = partial(FrameTask, optimizer=partial(kind, lr=1e-3, **options))
    straight = trained(
        tmp_path, ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1), task=make(), **single
    )
    path = tmp_path / "epoch=0.ckpt"
    resumed = trained(tmp_path, resumed=path, enable_checkpointing=False, task=make(), **single)
    check_equal(resumed, straight)
    checkpoint = torch.load(path, weights_only=True)
    has_state = bool(checkpoint["optimizer_states"][0]["state"])
    assert has_state or (kind, options) == (torch.optim.SGD, {})
    checkpoint["optimizer_states"][0]["state"] = {}
    torch.save(checkpoint, path)
    if has_state:
        with pytest.raises(
            DamagedError, match=r"has no optimizer_states\.0\.state\.0\. Use another"
        ):
            trained(tmp_path, resumed=path, enable_checkpointing=False, task=make(), **single)


class Spare(FrameNetwork):
    """Has a layer that it never uses."""

    def __init__(self, act, num_classes, input_shape):
        super().__init__(act, num_classes, input_shape)
        self.spare = torch.nn.Linear(2, 2)

    def forward(self, x):
        for layer in list(self)[:3]:
            x = layer(x)
        return x


@pytest.mark.filterwarnings("ignore:Be aware that when using .ckpt_path")
def test_parameters_that_get_no_gradient_have_no_state(tmp_path):
    make = partial(FrameTask, network=Spare, optimizer=partial(torch.optim.Adam, lr=0.1))
    straight = trained(tmp_path, ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1), task=make())
    path = tmp_path / "epoch=0.ckpt"
    resumed = trained(tmp_path, resumed=path, enable_checkpointing=False, task=make())
    check_equal(resumed, straight)


@pytest.mark.filterwarnings("ignore:Be aware that when using .ckpt_path")
def test_double_weights_resume_in_the_precision_of_the_trainer(tmp_path):
    trained(tmp_path, ModelCheckpoint(tmp_path, "{epoch}"), max_epochs=1)
    found = trained(
        tmp_path,
        resumed=tmp_path / "epoch=0.ckpt",
        precision="32-true",
        enable_checkpointing=False,
        data=partial(Frames, dtype=torch.float32),
    )
    assert {value.dtype for value in found.values()} == {torch.float32}


@pytest.mark.filterwarnings("ignore:Be aware that when using .ckpt_path")
def test_a_scheduler_that_follows_a_metric_resumes_after_a_whole_epoch(tmp_path):
    """Lightning 2.6 steps it after the checkpoint of the epoch is saved."""
    plateau = partial(ReduceLROnPlateau, monitor="val/loss", patience=0, threshold=9)
    make = partial(FrameTask, scheduler=plateau)
    straight = trained(
        tmp_path, ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1), task=make(), max_epochs=3
    )
    constant = trained(tmp_path, enable_checkpointing=False, max_epochs=3)
    assert not all(torch.equal(constant[key], value) for key, value in straight.items())
    for path in (tmp_path / "epoch=0.ckpt", tmp_path / "epoch=1.ckpt"):
        resumed = trained(
            tmp_path, resumed=path, enable_checkpointing=False, task=make(), max_epochs=3
        )
        check_equal(resumed, straight)
