"""Configs with every mistake, and studies that name them: an experiment, or one line, at once."""

import os
import random
import shutil
from functools import partial
from typing import Any

import pytest

from actlab.config.paths import set_dotted
from actlab.errors import ActlabError
from actlab.experiments import build
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file, names_in
from fuzzing import STRUCTURES, VALUES, as_yaml, changed, listed, mistake, paths, replaced, tried

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600, method="thread")]

CONFIGS = names_in("configs")


def config(name="mnist_classifier"):
    values = read_mapping(config_file(name))
    values["data"]["init_args"]["sample"] = True
    values["model"]["init_args"]["network"]["init_args"]["hidden"] = [8]
    values["model"]["init_args"]["scheduler"] = {
        "class_path": "torch.optim.lr_scheduler.StepLR",
        "init_args": {"step_size": 3},
    }
    values["trainer"]["logger"] = False
    return values


def place_of(values, path):
    """The innermost class around a place of a config, and the keys from there."""
    kind, keys = "", path
    for depth, key in enumerate(path):
        if isinstance(values, dict) and "class_path" in values:
            kind, keys = values["class_path"], path[depth:]
        values = values[key]
    return kind, keys


def own_places():
    """By config, the places that no config before it has, in the order of their names."""
    found, known = dict[str, list[Any]](), set[Any]()
    for name in CONFIGS:
        values = config(name)
        places = {path: place_of(values, path) for path in paths(values)}
        if own := [path for path, place in places.items() if place not in known]:
            found[name] = own
        known.update(places.values())
    return found


OWN = own_places()


@pytest.fixture
def built(tmp_path, monkeypatch):
    """What is wrong with reading a config and building its experiment."""
    monkeypatch.chdir(tmp_path)

    def read_and_build(text):
        (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
        try:
            build(read_mapping(tmp_path / "mine.yaml"))
        except ActlabError as error:
            return str(error)
        return ""

    def fault(text):
        told, raised = tried(lambda: read_and_build(text))
        return raised or ("more than a line" if len(told.splitlines()) > 1 else "")

    return fault


@pytest.mark.parametrize("name", OWN)
def test_mistakes_in_configs(built, name):
    """Every place that is new in a config: values of every kind, keys dropped, misspelt, added."""
    values, source = config(name), random.Random(name)
    assert not built(as_yaml(values))
    faults = {}
    for path in OWN[name]:
        for kind, change in STRUCTURES.items():
            faults[path, kind] = built(as_yaml(changed(values, path, change)))
        for text in source.sample(VALUES, 6):
            faults[path, text[:60]] = built(replaced(values, path, text))
    assert not (wrong := listed(faults)), wrong
    assert len(faults) >= 6 * len(OWN[name])


def test_mistakes_in_the_config_of_a_study(cli, tmp_path, monkeypatch):
    """The same through a study that has the config for its base: 300 or more."""
    monkeypatch.chdir(tmp_path)
    study = (
        "base: ./mine.yaml\n"
        "grid: {model.activation: [relu, soi], model.optimizer.lr: [0.1]}\nseeds: 2\n"
    )
    (tmp_path / "study.yaml").write_text(study)
    values, source, faults = config(), random.Random(1), {}
    for path in paths(values):
        for text in source.sample(VALUES, 6):
            (tmp_path / "mine.yaml").write_text(replaced(values, path, text), encoding="utf-8")
            outcome, fault = tried(lambda: cli("study", "plan", "study.yaml", "--smoke"))
            faults[path, text[:60]] = fault or mistake(outcome)
        for kind, change in STRUCTURES.items():
            (tmp_path / "mine.yaml").write_text(as_yaml(changed(values, path, change)))
            outcome, fault = tried(lambda: cli("study", "plan", "study.yaml", "--smoke"))
            faults[path, kind] = fault or mistake(outcome)
    assert not (wrong := listed(faults)), wrong
    assert len(faults) >= 300


CLASSES: dict[str, list[Any]] = {
    "model.init_args.activation": [
        "./raising_classes.py:Refusing",
        "./raising_classes.py:Nothing",
        "raising_classes:Refusing",
        "./broken.py:Unit",
    ],
    "model.init_args.network": [
        {"class_path": "raising_classes.Network"},
        {"class_path": "raising_classes.Data"},
        {"class_path": "broken.Unit"},
    ],
    "model.init_args.optimizer": [
        {"class_path": "raising_classes.optimizer"},
        {"class_path": "raising_classes.Keywords", "dict_kwargs": {"momentum": 1}},
        {"class_path": "raising_classes.Keywords", "dict_kwargs": 1},
        {"class_path": "torch.optim.SGD", "init_args": {"lr": -1.0}},
        {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}, "dict_kwargs": {"nothing": 1}},
        {"class_path": "torch.optim.LBFGS"},
        {"class_path": "torch.optim.Optimizer"},
    ],
    "model": [
        {"class_path": "raising_classes.Task"},
        {"class_path": "raising_classes.Refusing"},
        {"class_path": "pytorch_lightning.LightningModule"},
    ],
    "data": [
        {"class_path": "raising_classes.Module"},
        {"class_path": "raising_classes.Data"},
        {"class_path": "pytorch_lightning.LightningDataModule"},
    ],
    "trainer.callbacks": [
        [{"class_path": "raising_classes.Callback"}],
        [{"class_path": "raising_classes.Data"}],
    ],
    "trainer.logger": [
        {"class_path": "raising_classes.Logger"},
        {"class_path": "raising_classes.Data"},
    ],
}


def test_classes_of_authors_that_raise(built, program, tmp_path, monkeypatch):
    """What another author's constructor raises is one line."""
    program("raising_classes")
    (tmp_path / "broken.py").write_text("def (")
    monkeypatch.syspath_prepend(tmp_path)
    faults = {}
    for key, specs in CLASSES.items():
        for spec in specs:
            values = config()
            set_dotted(values, key, spec)
            faults[key, str(spec)] = built(as_yaml(values))
    assert not (wrong := listed(faults)), wrong
    assert len(faults) >= 20


def test_paths_that_are_no_dataset_are_rejected(cli, built, tmp_path):
    """Paths that are no dataset, to a fit, to a build and to a plan."""
    os.mkfifo(tmp_path / "pipe")
    huge = tmp_path / "huge"
    huge.mkdir()
    for number in range(300):
        (huge / f"{number}.txt").touch()
    odd = tmp_path / "od[d"
    odd.mkdir()
    os.mkfifo(odd / "train-00000-of-00001.parquet")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "within").mkdir()
    (tmp_path / "within/again").symlink_to(tmp_path / "within")
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "train-00000-of-00001.parquet").write_bytes(b"PAR1 but not really")
    names = [
        *(
            "/",
            "pipe",
            "./pipe",
            "[",
            "]",
            "*",
            "/dev/zero",
            "/dev",
            "/proc",
            "/proc/self",
            "huge",
            "./huge",
        ),
        *(
            "od[d",
            "./od[d",
            "loop",
            "./loop",
            "within",
            "wrong",
            "~",
            "~nobody",
            "",
            " ",
            ".",
            "..",
            "a/b/c",
        ),
        *(
            "a/b",
            "x" * 5000,
            "hub://x",
            "http://localhost:1/x",
            "zip://x::y",
            "\0",
            "./\0",
            "é/ü",
            "mine.yaml",
        ),
        *("%s", "-1", "null", "{}"),
    ]
    faults = {}
    for name in names:
        values = config()
        values["data"]["init_args"].update(
            dataset=name, sample=False, cache_dir=str(tmp_path / "cache")
        )
        faults["build", name[:40]] = built(as_yaml(values))
        words = ["-c", "mine.yaml", "--trainer.fast_dev_run", "1"]
        outcome, fault = tried(partial(cli, "fit", *words))
        faults["fit", name[:40]] = (
            fault or mistake(outcome) or ("" if outcome.code == 2 else "trained on it")
        )
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    assert not (found := listed(faults)), found
    assert len(faults) >= 70
