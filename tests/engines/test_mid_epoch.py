"""Long epochs: a run alone saves in the middle of them, and goes on there."""

import pytest
import pytorch_lightning as pl
import torch
from tiny_study import KilledError, execute, metrics, result

from actlab.engines import sequential
from actlab.studies import reading

OPTIONS = (
    "seeds=1",
    "model.activation=elu",
    "trainer.max_epochs=2",
    "trainer.limit_train_batches=6",
    "trainer.val_check_interval=0.5",
    "data.batch_size=2",
)


class Killing(pl.Callback):
    """Ends the process, as far as training can tell, before one of the batches."""

    at: int | None = None
    begun: list[int] = []  # noqa: RUF012  # all batches of a run, over its starts

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        number = trainer.current_epoch * 6 + batch_idx
        if number == Killing.at:
            Killing.at = None
            raise KilledError
        Killing.begun.append(number)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_run_killed_in_an_epoch_repeats_little_of_it(tmp_path, monkeypatch, accumulate):
    monkeypatch.setattr(sequential, "SAVE_EVERY", 0.0)
    kill = f"{{class_path: {__name__}.Killing}}"
    options = (*OPTIONS, f"trainer.accumulate_grad_batches={accumulate}", f"trainer.callbacks=[{kill}]")
    (run,) = reading.load("elu_imagenet", smoke=True, overrides=options).runs()
    Killing.begun[:] = []
    execute([run], tmp_path / "straight", stacked=False)
    assert Killing.begun == list(range(12))
    for at in (3, 5, 8):  # after the third batch of an epoch it is validated
        Killing.at, Killing.begun[:] = at, []
        root = tmp_path / f"killed-{at}"
        with pytest.raises(KilledError):
            execute([run], root, stacked=False)
        execute([run], root, stacked=False)
        repeated = len(Killing.begun) - 12
        assert repeated <= 1 + (accumulate - 1), at
        assert metrics(root, run).equals(metrics(tmp_path / "straight", run)), at
        assert result(root, run) == result(tmp_path / "straight", run)
        weights = [
            torch.load(folder / run.id / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
            for folder in (root, tmp_path / "straight")
        ]
        assert all(torch.equal(weights[0][name], value) for name, value in weights[1].items())
