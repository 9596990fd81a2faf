"""Resumed equals uninterrupted: every study, on samples, its state dropped after each epoch."""

from pathlib import Path

import pytest
import pytorch_lightning as pl

from tiny_study import KilledError, left_in

STUDIES = sorted((Path(__file__).parents[2] / "configs/studies").glob("*.yaml"))
BRIEF = (
    "seeds=2",
    "model.optimizer.lr=1e-3",
    "trainer.limit_train_batches=2",
    "trainer.max_epochs=3",
)
MOST = 200  # starts of a study


def starts_of(run):
    """How often a study had to be started until it ended well."""
    for number in range(1, MOST):
        try:
            assert run() == 0
        except KilledError:
            continue
        return number
    raise AssertionError(f"not finished after {MOST} starts")


@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=[path.stem for path in STUDIES])
def test_a_study_rebuilt_after_each_epoch_is_the_uninterrupted_one(
    path, cli, succeed, tmp_path, monkeypatch
):
    words = ["study", "run", path, "--smoke"]
    words += [word for change in BRIEF for word in ("--set", change)]
    succeed(*words, "--runs-dir", tmp_path / "straight")
    save = pl.Trainer.save_checkpoint

    def save_and_die(trainer, file, *args, **options):
        save(trainer, file, *args, **options)
        if Path(file).name in ("last.ckpt", "stack.ckpt"):
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(pl.Trainer, "save_checkpoint", save_and_die)
        starts = starts_of(lambda: cli(*words, "--runs-dir", tmp_path / "rebuilt").code)
    assert starts > 3
    straight, rebuilt = (
        left_in(tmp_path / kind, "metrics.parquet") for kind in ("straight", "rebuilt")
    )
    assert straight
    assert rebuilt == straight
