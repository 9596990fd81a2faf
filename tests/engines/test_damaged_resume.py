"""What a killed study has left may be damaged: one line names the run, the others are trained."""

import contextlib
import random
import shutil
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch

from actlab.errors import ActlabError
from actlab.storage import checkpoints
from actlab.studies.run_folder import RunFolder
from damaging import WAYS, damaged
from tiny_study import TWO, KilledError, assert_same, execute, kill_after, load, untried

BRIEF = [
    *TWO,
    "trainer.max_epochs=2",
    "trainer.limit_train_batches=2",
    "trainer.val_check_interval=1.0",
]


@pytest.fixture(params=["sequential", "stacked"], scope="module")
def killed_once(request, tmp_path_factory):
    """What ``killed`` copies."""
    stacked, tmp_path = request.param == "stacked", tmp_path_factory.mktemp(request.param)
    runs = load(tmp_path, overrides=BRIEF).runs()
    with untried():
        execute(runs, tmp_path / "straight", stacked)
        with pytest.raises(KilledError):
            execute(runs, tmp_path / "killed", stacked, kill_after(2 if stacked else 1))
    return runs, tmp_path, stacked


@pytest.fixture
def killed(killed_once, tmp_path):
    """Two runs, killed in their second epoch; the folder of straight ones; if they are a stack."""
    runs, folder, stacked = killed_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return runs, tmp_path, stacked


@pytest.mark.parametrize("options", ["{filename: last}", "{save_last: true, filename: other}"])
def test_no_callback_of_a_study_writes_the_checkpoint_from_which_a_run_resumes(
    tmp_path, monkeypatch, options
):
    """It would lack the rows of its epoch: killed after each checkpoint, a run keeps its rows."""
    callback = f"{{class_path: pytorch_lightning.callbacks.ModelCheckpoint, init_args: {options}}}"
    runs = load(tmp_path, overrides=[*BRIEF, f"trainer.callbacks=[{callback}]"]).runs()[:1]
    execute(runs, tmp_path / "straight", stacked=False)
    save = pl.Trainer.save_checkpoint

    def save_and_die(trainer, file, *args, **kwargs):
        save(trainer, file, *args, **kwargs)
        if Path(file).name == "last.ckpt":
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(pl.Trainer, "save_checkpoint", save_and_die)
        for _ in range(2):  # epochs
            with pytest.raises(KilledError):
                execute(runs, tmp_path / "killed", stacked=False)
    execute(runs, tmp_path / "killed", stacked=False)
    assert_same(runs, tmp_path / "straight", tmp_path / "killed")


@pytest.mark.parametrize(
    "way", ["cut", *(pytest.param(way, marks=pytest.mark.slow) for way in WAYS if way != "cut")]
)
def test_a_damaged_checkpoint_is_named_and_its_remedy_helps(killed, way):
    runs, folder, stacked = killed
    root = folder / "killed"
    place, name = (root / "stacks", "stack.ckpt") if stacked else (root / runs[0].id, "last.ckpt")
    (file,) = place.rglob(name)
    file.write_bytes(damaged(file.read_bytes(), way, random.Random(0)))
    execute(runs, root, stacked)
    reasons = [RunFolder(root, run).state.reason for run in runs]
    lost = [run for run, reason in zip(runs, reasons, strict=True) if reason]
    assert all(
        "checkpoint" in reason and f"Delete {root}" in reason for reason in reasons if reason
    )
    assert lost == (runs if stacked else runs[:1]) or way != "cut"  # a bit may say nothing
    shutil.rmtree(root / "stacks", ignore_errors=True)
    for run in lost:
        shutil.rmtree(root / run.id)
    execute(runs, root, stacked)
    assert_same(runs, root, folder / "straight")


def test_nothing_but_the_checkpoint_is_needed(killed):
    """The folder of a stack's member may be lost; a run alone then starts again."""
    runs, folder, stacked = killed
    shutil.rmtree(folder / "killed" / runs[0].id)
    execute(runs, folder / "killed", stacked)
    assert_same(runs, folder / "killed", folder / "straight")


@pytest.mark.parametrize(("stacked", "what"), [(True, "root"), (True, "folder"), (False, "folder")])
def test_a_folder_that_vanishes_in_training_is_one_line_and_the_next_start_works(
    tmp_path, stacked, what
):
    runs = load(tmp_path, overrides=BRIEF).runs()
    root = tmp_path / "runs"

    def take_away(run, fraction):
        place = root if what == "root" else root / runs[0].id
        if fraction < 0.6 and place.exists():
            place.rename(tmp_path / "elsewhere")

    with pytest.raises(
        ActlabError, match=r"(was deleted or moved|No such file) .*The same command resumes\."
    ):
        execute(runs, root, stacked, take_away)
    execute(runs, root, stacked)
    assert all(RunFolder(root, run).finished for run in runs)


def test_the_checkpoint_of_another_run_is_not_taken_up(tmp_path):
    one, other = load(
        tmp_path, overrides=[*BRIEF, "model.optimizer.lr=[1e-2, 1e-3]", "seeds=1"]
    ).runs()
    for run in (one, other):
        with pytest.raises(KilledError):
            execute([run], tmp_path, stacked=False, progress=kill_after(1))
    shutil.copy(RunFolder(tmp_path, one).checkpoint, RunFolder(tmp_path, other).checkpoint)
    execute([other], tmp_path, stacked=False)
    assert f"it belongs to {one.id}" in RunFolder(tmp_path, other).state.reason


def test_every_flipped_bit_of_a_checkpoint_shows(tmp_path):
    path = tmp_path / "x.ckpt"
    torch.save({"state_dict": {"w": torch.arange(50.0)}}, path)
    whole, content = checkpoints.read(path), path.read_bytes()
    source = random.Random(0)
    for at in source.sample(range(len(content)), 400):
        path.write_bytes(
            content[:at] + bytes([content[at] ^ 1 << source.randrange(8)]) + content[at + 1 :]
        )
        with contextlib.suppress(ActlabError):
            found = checkpoints.read(path)  # a bit that says nothing, such as the time of a part
            assert found.keys() == whole.keys()
            assert torch.equal(found["state_dict"]["w"], whole["state_dict"]["w"])
