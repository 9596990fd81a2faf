"""Checkpoints in the middle of an epoch: what a run that resumes from one goes on with."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from actlab.checkpoints import ResumableModelCheckpoint, read
from actlab.datamodules import ImageNetDataModule
from actlab.networks import MLP
from actlab.tasks import ClassificationTask

BATCHES = 5


class Saving(pl.Callback):
    """Saves after a batch of the second epoch, on every device."""

    def __init__(self, path: Path, after: int = 0) -> None:
        self.path, self.after = path, after

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if (trainer.current_epoch, batch_idx + 1) == (1, self.after):
            trainer.save_checkpoint(self.path)


def fitted(path: Path, after: int = 0, ckpt: Path | None = None, **options: Any) -> tuple[Any, float]:
    """The weights after two epochs, and the training loss of the second."""
    data = ImageNetDataModule(
        sample=True, size=20, crop=16, batch_size=6, workers=0, cache_dir=str(path.parent / "cache")
    )
    network = lambda act, k, shape: MLP(act, k, shape, hidden=(8,), dropout=0.5)  # noqa: E731
    task = ClassificationTask(
        data.num_classes, data.input_shape, "gelu", network, partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    )
    callbacks = [Saving(path, after), *options.pop("callbacks", ())]
    silent = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        callbacks=callbacks,
        default_root_dir=path.parent,
        **{**silent, "limit_train_batches": BATCHES, **options},
    )
    trainer.fit(task, datamodule=data, ckpt_path=ckpt, weights_only=None if ckpt is None else True)
    return task.state_dict(), float(trainer.callback_metrics["train/loss"])


@pytest.mark.parametrize("after", [1, 3, 4])
def test_accumulated_gradients_are_gone_on_with(tmp_path: Path, after: int) -> None:
    """Updates after 2 and 4 batches, and after the last one by itself."""
    path = tmp_path / "middle.ckpt"
    straight, loss = fitted(path, after, accumulate_grad_batches=2)
    assert bool(read(path)["gradients"]) == bool(after % 2)
    resumed, found = fitted(tmp_path / "none.ckpt", ckpt=path, accumulate_grad_batches=2)
    for name, value in straight.items():
        assert torch.equal(resumed[name], value)
    assert found == loss


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_an_epoch_of_two_devices_is_gone_on_with_by_any_number(tmp_path: Path, devices: int) -> None:
    path = tmp_path / "middle.ckpt"
    two = {"devices": 2, "strategy": "ddp_spawn"}
    straight, loss = fitted(tmp_path / "none.ckpt", accumulate_grad_batches=2)
    fitted(path, 3, accumulate_grad_batches=2, **two)
    assert read(path)["gradients"]
    options = two if devices == 2 else {}
    resumed, found = fitted(tmp_path / "none.ckpt", ckpt=path, accumulate_grad_batches=2, **options)
    for name, value in straight.items():
        torch.testing.assert_close(resumed[name], value, rtol=1e-4, atol=1e-6)
    assert found == pytest.approx(loss, rel=1e-5)


def test_checkpoints_every_so_many_updates_wait_until_nothing_would_be_skipped(tmp_path: Path) -> None:
    """Validation follows batches 3 and 6 of each epoch, of which the latter ends it."""

    def steps(ckpt: Path | None = None) -> list[int]:
        keep = ResumableModelCheckpoint(3, dirpath=tmp_path, filename="{step}", save_top_k=-1, save_last=True)
        options = {"val_check_interval": 3, "limit_train_batches": 6}
        fitted(tmp_path / "none.ckpt", ckpt=ckpt, callbacks=[keep], **options)
        return sorted(int(path.stem.partition("=")[2]) for path in tmp_path.glob("step=*.ckpt"))

    assert steps() == [4, 7, 10]
    (tmp_path / "step=10.ckpt").unlink()
    assert steps(tmp_path / "step=7.ckpt") == [4, 7, 10]
