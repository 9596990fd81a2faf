"""The folder of a fit: named by what is trained, and never one that holds another run."""

import os

import pytest
import torch

from actlab.cli.fit_folders import checkpoint_in, folder_for, name_of
from actlab.errors import ActlabError


def config_of(activation="elu", seed=3, data=None, **trainer):
    arguments = {} if activation is None else {"activation": activation}
    return {
        "seed_everything": seed,
        "model": {"class_path": "actlab.tasks.ClassificationTask", "init_args": arguments},
        "data": {"class_path": "actlab.datamodules.MNISTDataModule", "init_args": data or {}},
        "trainer": trainer,
    }


@pytest.mark.parametrize(
    ("config", "start"),
    [
        (config_of(), "elu-seed3-"),
        (config_of({"name": "elu", "alpha": 0.5}), "elu-alpha0.5-seed3-"),
        (config_of("./units/my_unit.py:MyUnit"), "MyUnit-seed3-"),
        (config_of("torch.nn:Mish", 0), "Mish-seed0-"),
        (config_of(None), "ClassificationTask-seed3-"),
    ],
)
def test_the_name_is_readable(config, start):
    assert name_of(config).startswith(start)
    assert len(name_of(config)) == len(start) + 16


def test_lengths_paths_and_what_only_shows_name_no_other_run():
    for other in (
        config_of(max_epochs=9, max_steps=3),
        config_of(logger=True, default_root_dir="x", devices=2),
        config_of(data={"cache_dir": "x"}),
        config_of(callbacks=[{"class_path": "pytorch_lightning.callbacks.ModelCheckpoint"}]),
    ):
        assert name_of(other) == name_of(config_of())


def test_what_trains_another_network_names_another_run():
    averaging = [{"class_path": "pytorch_lightning.callbacks.StochasticWeightAveraging"}]
    others = [config_of("relu"), config_of(seed=4), config_of({"name": "elu", "alpha": 0.5})]
    others += [config_of(data={"batch_size": 64}), config_of(precision="bf16-mixed")]
    others += [
        config_of(gradient_clip_val=1.0),
        config_of(fast_dev_run=2),
        config_of(callbacks=averaging),
    ]
    assert name_of(config_of()) not in map(name_of, others)


def write(folder, name, best="", age=0):
    path = folder / "checkpoints" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        "ModelCheckpoint{…}": {"monitor": "val/loss", "best_model_path": best},
        "ModelCheckpoint{last}": {"monitor": None, "best_model_path": f"/elsewhere/{name}"},
        "Other": 3,
    }
    torch.save({"state_dict": {}, "callbacks": state}, path)
    os.utime(path, (1000 - age, 1000 - age))
    return path


def test_a_fresh_fit_gets_a_fresh_folder_and_last_the_newest(tmp_path):
    assert folder_for(tmp_path, "a").name == "a"
    assert folder_for(tmp_path, "a", "last").name == "a"
    (tmp_path / "a").mkdir()  # stopped before its first checkpoint
    assert folder_for(tmp_path, "a").name == "a"
    first = write(tmp_path / "a", "last.ckpt")
    write(tmp_path / "b", "last.ckpt")
    assert folder_for(tmp_path, "a").name == "a-1"
    assert folder_for(tmp_path, "a", "last").name == "a"
    write(tmp_path / "a-1", "last.ckpt")
    assert folder_for(tmp_path, "a").name == "a-2"
    assert folder_for(tmp_path, "a", "last").name == "a-1"
    assert folder_for(tmp_path, "a", str(first)).name == "a"
    assert folder_for(tmp_path, "a", str(tmp_path / "b/checkpoints/last.ckpt")).name == "a-2"


def test_last_and_best_of_a_run(tmp_path):
    for which in ("last", "best"):
        with pytest.raises(ActlabError, match=f"'{which}'"):
            checkpoint_in(tmp_path, which, resumes=False)
    write(tmp_path, "last.ckpt", age=9)
    newest = write(tmp_path, "last-v1.ckpt", best="/elsewhere/checkpoints/best-epoch=3.ckpt", age=5)
    assert checkpoint_in(tmp_path, "last", resumes=False) == newest
    with pytest.raises(ActlabError, match="no best"):
        checkpoint_in(tmp_path, "best", resumes=False)
    write(tmp_path, "best-epoch=2.ckpt", age=4)
    best = write(tmp_path, "best-epoch=3.ckpt", age=3)
    assert checkpoint_in(tmp_path, "best", resumes=False) == best
    assert checkpoint_in(tmp_path, "last", resumes=False) == best


def test_a_resume_passes_over_newer_weights_alone(tmp_path):
    whole = write(tmp_path, "last.ckpt", age=9)
    parts = torch.load(whole, weights_only=True) | {
        "epoch": 1,
        "global_step": 4,
        "callbacks": {},
        "loops": {},
    }
    parts |= {"optimizer_states": [], "lr_schedulers": [], "pytorch-lightning_version": "2.6"}
    torch.save(parts, whole)
    os.utime(whole, (1, 1))
    weights = write(tmp_path, "best.ckpt")
    assert checkpoint_in(tmp_path, "last", resumes=True) == whole
    assert checkpoint_in(tmp_path, "last", resumes=False) == weights
