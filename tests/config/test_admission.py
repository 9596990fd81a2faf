"""A foreign checkpoint runs nothing: every place of its record that could hold code or a folder."""

import copy
import inspect
import io
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torchmetrics
from torchmetrics.classification import MulticlassAUROC
from torchmetrics.image import PeakSignalNoiseRatio
from torchmetrics.regression import MeanSquaredError

from actlab import datamodules, networks, optim, tasks
from actlab.config.admission import TRAINER, WRITTEN, UntrustedError, admitted
from actlab.config.signatures import parameters
from actlab.errors import ActlabError
from actlab.experiments import build
from actlab.tasks import ClassificationTask

TASK = {
    "class_path": "actlab.tasks.ClassificationTask",
    "init_args": {
        "activation": "elu",
        "network": {"class_path": "actlab.networks.MLP", "init_args": {"hidden": [4]}},
        "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}},
        "schedules": {
            "lr": {"class_path": "actlab.optim.Steps", "init_args": {"factors": {1: 0.5}}}
        },
        "l2": {"strength": 0.001},
        "metrics": {
            "f1": {
                "class_path": "torchmetrics.F1Score",
                "init_args": {"task": "multiclass", "num_classes": 10},
            }
        },
        "num_classes": 10,
        "input_shape": [1, 28, 28],
    },
}
DATA = {"class_path": "actlab.datamodules.MNISTDataModule", "init_args": {"sample": True}}
RECORD = {"seed_everything": 3, "model": TASK, "data": DATA}
FILE = "./evil.py:Evil"
OPTIMIZERS = [optim.AdamEpsilonInRoot, torch.optim.SGD, torch.optim.Adam]
SCHEDULERS = [torch.optim.lr_scheduler.StepLR, torch.optim.lr_scheduler.LambdaLR]


def public(module, base):
    found = [getattr(module, name) for name in module.__all__]
    return [
        c for c in found if inspect.isclass(c) and issubclass(c, base) and not inspect.isabstract(c)
    ]


def path_of(kind):
    return f"{kind.__module__}.{kind.__qualname__}"


# Where a class stands in a record → the classes whose arguments are tried there.
CLASSES = {
    "model": public(tasks, pl.LightningModule),
    "data": public(datamodules, pl.LightningDataModule),
    "model.network": public(networks, torch.nn.Module),
    "model.optimizer": OPTIMIZERS,
    "model.scheduler": SCHEDULERS,
    "model.schedules.lr": public(optim, optim.Schedule),
    "model.l2": [optim.L2],
    "model.metrics.f1": [
        torchmetrics.F1Score,
        MulticlassAUROC,
        MeanSquaredError,
        PeakSignalNoiseRatio,
    ],
}
PLACES = [
    (place, kind, name)
    for place, kinds in CLASSES.items()
    for kind in kinds
    for name in parameters(kind)
]


def hostile(folder):
    """Values that run code or write files where they are imported, built or called."""
    command = f"touch {folder}/ran"
    texts = [
        "os.system",
        "os:system",
        "shutil:rmtree",
        "runpy:run_path",
        "evil.Evil",
        "evil:Evil",
        FILE,
    ]
    mappings = [
        {"class_path": "os.system", "init_args": {"command": command}},
        {"class_path": "subprocess.getoutput", "init_args": {"cmd": command}},
        {"class_path": "evil.Evil"},
        {"name": "os:system", "command": command},
        {"name": FILE},
        {
            "class_path": "torch.optim.lr_scheduler.LambdaLR",
            "init_args": {"lr_lambda": "os.system"},
        },
    ]
    yaml = [
        f"{{class_path: os.system, init_args: {{command: '{command}'}}}}",
        "{lr: {class_path: evil.Evil}}",
    ]
    inner = [texts[0], mappings[0], mappings[3], mappings[4], yaml[0]]
    return [
        *texts,
        *mappings,
        *yaml,
        *([value] for value in inner),
        *({"inner": value} for value in inner),
    ]


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A folder whose module, and functions of the standard library, record that they ran."""
    ran = []
    for module, name in ((os, "system"), (subprocess, "getoutput"), (shutil, "rmtree")):
        monkeypatch.setattr(module, name, lambda *args, name=name, **kwargs: ran.append(name))
    body = "import pathlib, torch\npathlib.Path(__file__).with_name('ran').touch()\n"
    (tmp_path / "evil.py").write_text(body + "class Evil(torch.nn.ReLU):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda: (
        *ran,
        *(["evil"] if "evil" in sys.modules or (tmp_path / "ran").exists() else []),
    )
    sys.modules.pop("evil", None)


def with_value(place, kind, name, value):
    """The record with one argument of a class, which stands at a place, replaced."""
    record = copy.deepcopy(RECORD)
    *above, last = place.split(".")
    holder: Any = record
    for part in above:
        holder = holder[part].get("init_args", holder[part])
    if last == "l2":
        holder[last][name] = value
    else:
        known = holder.get(last) or {}
        same = known.get("class_path", "").rpartition(".")[2] == kind.__name__ or place in (
            "model",
            "data",
        )
        arguments = {**(known["init_args"] if same else {}), name: value}
        holder[last] = {"class_path": path_of(kind), "init_args": arguments}
    return record


@pytest.mark.parametrize(
    "at_length",
    # Each value at each place, and 2,211 loads: 90 s
    [
        False,
        pytest.param(True, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ],
    ids=["some values", "every value"],
)
def test_no_place_of_a_record_runs_anything(at_length, trap, tmp_path, monkeypatch):
    """Every value once for each class and annotation, where one is loaded; elsewhere some."""
    # Only sections are built
    monkeypatch.setattr(pl.Trainer, "__init__", lambda self, **kwargs: None)
    met: set[object] = set()
    for place, kind, name in PLACES:
        annotation, records = parameters(kind)[name].annotation, []
        is_new = at_length or not {kind, str(annotation)} <= met
        for value in hostile(tmp_path)[:: 1 if is_new else 8]:
            at, record = (place, kind, name, value), with_value(place, kind, name, value)
            try:
                config = admitted(record, "trust it")
            except ActlabError:
                continue
            assert name not in WRITTEN or name not in config["data"]["init_args"], at
            records.append(record)
        if is_new and records:
            met |= {kind, str(annotation)}
            for record in records if at_length else records[-1:]:
                file = io.BytesIO()
                torch.save({"state_dict": {}, "actlab": record}, file)
                file.seek(0)
                with pytest.raises(ActlabError):  # weights are missing, at the latest
                    ClassificationTask.load_from_checkpoint(file)
                assert trap() == (), record
    assert trap() == ()


class Happens(torch.nn.Sequential):
    """Imported by the user's program, which says nothing about the checkpoint."""


@pytest.mark.parametrize("argument", ["network", "optimizer", "scheduler"])
def test_a_bare_name_is_no_class_that_happens_to_be_imported(argument):
    with pytest.raises(UntrustedError, match="Happens"):
        admitted(with_value("model", ClassificationTask, argument, "Happens"), "trust it")


def test_what_a_trainer_does_is_never_taken_from_a_record(tmp_path):
    for name in inspect.signature(pl.Trainer.__init__).parameters:
        for value in hostile(tmp_path):
            found = admitted({**RECORD, "trainer": {name: value}}, "trust it").get("trainer", {})
            assert name in TRAINER or not found
            # The Trainer rejects an unknown word
            assert all(isinstance(kept, str) for kept in found.values())


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("torchmetrics.text.bert.BERTScore", {"model_name_or_path": "stranger/model"}),
        ("torchmetrics.multimodal.clip_score.CLIPScore", {"model_name_or_path": "stranger/model"}),
        (
            "torchmetrics.image.fid.FrechetInceptionDistance",
            {"feature_extractor_weights_path": "evil.pt"},
        ),
        (
            "torchmetrics.wrappers.BootStrapper",
            {"base_metric": {"class_path": "torchmetrics.text.BERTScore"}},
        ),
    ],
)
def test_a_record_names_no_metric_that_fetches_a_model(path, arguments):
    record = copy.deepcopy(RECORD)
    record["model"]["init_args"]["metrics"] = {"f1": {"class_path": path, "init_args": arguments}}
    with pytest.raises(UntrustedError, match=path):
        admitted(record, "trust it")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    trainer, task, data = build(
        {**RECORD, "trainer": {"max_epochs": 1, "limit_train_batches": 1}},
        default_root_dir=str(folder),
    )
    trainer.fit(task, datamodule=data)
    trainer.save_checkpoint(folder / "a.ckpt")
    found = torch.load(folder / "a.ckpt", weights_only=True)
    return {key: value for key, value in found.items() if key != "callbacks"}


LAMBDA = "pytorch_lightning.callbacks.LambdaCallback"
CRAFTED = {
    "activation": ("model.init_args.activation", {"name": "os:system", "command": "true"}),
    "file": ("model.init_args.activation", FILE),
    "optimizer": (
        "model.init_args.optimizer",
        {"class_path": "os.system", "init_args": {"command": "true"}},
    ),
    "scheduler": (
        "model.init_args.scheduler",
        {"class_path": "os.system", "init_args": {"command": "true"}},
    ),
    "network": (
        "model.init_args.network",
        {"class_path": "os.system", "init_args": {"command": "true"}},
    ),
    "network as a word": ("model.init_args.network", "os.system"),
    "model": ("model.class_path", "evil.Evil"),
    "data": ("data.class_path", "evil.Evil"),
}


def crafted(checkpoint, folder, key, value):
    found = copy.deepcopy(checkpoint)
    *above, last = key.split(".")
    holder = found["actlab"]
    for part in above:
        holder = holder.setdefault(part, {})
    holder[last] = value
    torch.save(found, folder / "a.ckpt")
    return folder / "a.ckpt"


@pytest.mark.parametrize("case", CRAFTED)
def test_the_command_names_what_would_be_imported_and_how_to_allow_it(
    cli, checkpoint, trap, tmp_path, case
):
    key, value = CRAFTED[case]
    path = crafted(checkpoint, tmp_path, key, value)
    command = {"model": "validate", "data": "predict"}.get(case, "test")
    outcome = cli(command, "--ckpt_path", path, "--trainer.logger", "false")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome
    assert f"If you trust the file, use actlab {command} --ckpt_path {path}" in outcome.err
    assert outcome.err.endswith("--trust\n")
    assert ("evil" if "evil" in str(value) else "system") in outcome.err
    assert trap() == ()
    if key.startswith("model"):
        with pytest.raises(UntrustedError, match=r"load_from_checkpoint\(…, trust=True\)"):
            ClassificationTask.load_from_checkpoint(path)
    assert trap() == ()


@pytest.mark.parametrize(("trust", "with_config"), [(False, True), (True, False)])
def test_callbacks_loggers_and_folders_of_a_record_are_ignored(
    cli, checkpoint, trap, tmp_path, trust, with_config
):
    found = copy.deepcopy(checkpoint)
    found["actlab"]["trainer"] |= {
        "callbacks": [{"class_path": LAMBDA, "init_args": {"on_test_start": "os.system"}}],
        "profiler": {
            "class_path": "SimpleProfiler",
            "init_args": {"dirpath": "w", "filename": "f"},
        },
        "logger": {"class_path": "CSVLogger", "init_args": {"save_dir": "w"}},
        "default_root_dir": "w",
        "plugins": ["evil.Evil"],
    }
    found["actlab"]["data"]["init_args"]["cache_dir"] = "w"
    torch.save(found, tmp_path / "a.ckpt")
    words = ["--trust"] * trust
    if with_config:
        (tmp_path / "c.yaml").write_text(str({**RECORD, "trainer": {}}))
        words += ["-c", "c.yaml"]
    cli("test", "--ckpt_path", "a.ckpt", *words).succeeded()
    assert trap() == ()
    assert not (tmp_path / "w").exists()


def test_a_user_who_trusts_or_names_the_code_gets_it(cli, checkpoint, trap, tmp_path):
    path = crafted(checkpoint, tmp_path, "model.init_args.activation", FILE)
    cli("test", "--ckpt_path", path, "--model.activation", FILE).succeeded()
    assert trap() == ("evil",)
    assert cli("test", "--ckpt_path", path, "--trust").code == 0
    task = ClassificationTask.load_from_checkpoint(path, trust=True)
    assert type(task.activations[0]).__name__ == "Evil"


def test_with_a_config_another_record_is_a_difference_and_runs_nothing(
    cli, checkpoint, trap, tmp_path
):
    (tmp_path / "c.yaml").write_text(str({**RECORD, "trainer": {"logger": False}}))
    for key, value in (CRAFTED["file"], CRAFTED["optimizer"], CRAFTED["network as a word"]):
        path = crafted(checkpoint, tmp_path, key, value)
        for command in ("test", "fit"):
            outcome = cli(command, "-c", "c.yaml", "--ckpt_path", path)
            assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome
            assert f"{key.replace('.init_args', '')}: expected " in outcome.err
            assert "was trained with" in outcome.err
    assert trap() == ()


@pytest.mark.parametrize(
    "record",
    [1, [], {}, {"model": 3}, {"model": {}, "data": DATA}, {**RECORD, "trainer": 3}]
    + [{**RECORD, "model": {**TASK, "init_args": init}} for init in (3, [1], {"activation": b"x"})],
)
def test_a_malformed_record_is_one_line(cli, checkpoint, tmp_path, record):
    torch.save({**checkpoint, "actlab": record}, tmp_path / "a.ckpt")
    outcome = cli("test", "--ckpt_path", tmp_path / "a.ckpt")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome
    with pytest.raises(ActlabError):
        ClassificationTask.load_from_checkpoint(tmp_path / "a.ckpt")


def test_numbers_of_the_trainer_are_recorded_and_used(checkpoint):
    kept = checkpoint["actlab"]["trainer"]
    assert (kept["max_epochs"], kept["limit_train_batches"]) == (1, 1)
    assert kept.keys() <= set(TRAINER)
    assert admitted(checkpoint["actlab"], "trust it")["trainer"] == kept
