"""``actlab`` by its command line: fit, resume, test, predict, and one line for each mistake."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from importlib.metadata import version
from typing import Any

import pytest
import torch
import yaml
from filelock import FileLock
from pytorch_lightning.cli import ReduceLROnPlateau

from actlab import datamodules
from actlab.__main__ import main
from actlab.activations import names
from actlab.cli.commands import FITS
from actlab.config.paths import set_dotted
from actlab.datamodules import MNISTDataModule
from actlab.errors import ActlabError
from actlab.experiments import build
from actlab.runtime import devices
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file, names_in, resource
from actlab.tasks import ClassificationTask
from hub_folders import write_hub_folder
from toys import Frames, FrameTask, fitted

pytestmark = pytest.mark.filterwarnings("ignore:The dirpath has changed")  # of a copied folder
CONFIGS = names_in("configs")
assert "mnist_classifier" in CONFIGS
QUICK = [
    *("--data.sample", "true", "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "6"),
    *("--trainer.logger", "false", "--trainer.enable_progress_bar", "false"),
]

SMALL = {  # networks of a config that is not run as it is
    "mnist_classifier": ["--model.network.hidden", "[16, 16]"],
    "pinn_helmholtz": ["--model.network.hidden", "[16, 16]", "--data.side", "10"],
}
WITHOUT_DATA = {"pinn_helmholtz"}  # which therefore have no sample


@pytest.fixture
def fit(cli):

    def run(*words, command="fit", config="mnist_classifier"):
        quick = QUICK[2:] if config in WITHOUT_DATA else QUICK
        return cli(command, "-c", config, *quick, *SMALL.get(config, []), *words)

    return run


ELU = ["--model.activation", "elu", "--model.network.hidden", "[12]", "--seed_everything", "3"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of the runs of an ELU network of 12 units a layer."""
    root = tmp_path_factory.mktemp("trained")
    words = [*QUICK, *ELU, "--trainer.default_root_dir", str(root)]
    assert main(["fit", "-c", "mnist_classifier", *words]) == 0
    return root


@pytest.fixture
def elu(trained, tmp_path):
    """Its checkpoint in a copy of that folder, where a fit here would leave it."""
    shutil.copytree(trained, tmp_path / "runs/mnist_classifier")
    (path,) = tmp_path.glob("runs/**/last.ckpt")
    return path


def only_run(path, config="mnist_classifier"):
    """The folder of the only run of a config."""
    (folder,) = (path / "runs" / config).iterdir()
    return folder


# One of images, one without data, one of sequences: tests/test_smoke.py runs each.
@pytest.mark.parametrize("config", ["mnist_classifier", "pinn_helmholtz", "gpt_plain"])
def test_a_config_runs_on_its_sample(fit, config, tmp_path):
    assert fit(config=config).code == 0
    folder = only_run(tmp_path, config)
    assert (folder / "checkpoints" / "last.ckpt").exists()
    assert "activation:" in (folder / "config.yaml").read_text()


@pytest.mark.parametrize("config", CONFIGS)
def test_last_is_of_the_last_epoch_whatever_improves(config):
    """Lightning's ``save_last`` copies the last saved file: none without an improvement."""
    callbacks = read_mapping(config_file(config))["trainer"]["callbacks"]
    kept = [c["init_args"] for c in callbacks if c["class_path"].endswith(".ModelCheckpoint")]
    assert not any(arguments.get("save_last") for arguments in kept if arguments.get("monitor"))
    every = [arguments for arguments in kept if not arguments.get("monitor")]
    assert any(a["filename"] == "last" or a.get("save_last") for a in every)


def test_last_goes_on_after_epochs_that_did_not_improve(fit, tmp_path):
    config = read_mapping(config_file("mnist_classifier"))
    config["trainer"]["callbacks"][1]["init_args"]["mode"] = (
        "max"  # the loss falls, so that none is the best
    )
    (tmp_path / "worse.yaml").write_text(json.dumps(config))
    assert (
        fit("--trainer.max_epochs", "3", *SMALL["mnist_classifier"], config="worse.yaml").code == 0
    )
    last = torch.load(only_run(tmp_path, "worse") / "checkpoints/last.ckpt", weights_only=True)
    assert (last["epoch"], last["global_step"]) == (2, 18)
    (best,) = only_run(tmp_path, "worse").glob("checkpoints/best-*.ckpt")
    assert "epoch=0" in best.name


def files_of(folder):
    """Every file of a folder but logs, with its contents."""
    files = (path for path in folder.rglob("*") if path.is_file() and "wandb" not in path.parts)
    return {path: path.read_bytes() for path in files}


def test_another_run_has_another_folder_and_does_not_go_on_from_the_first(fit, elu):
    """`tests/storage/test_fits.py` tries each kind of setting."""
    first, before = elu.parents[1], files_of(elu.parents[1])
    words = (*ELU, "--trainer.gradient_clip_val", "0.1", "--seed_everything", "4")
    assert "no checkpoint 'last' of this run" in fit(*words, "--ckpt_path", "last").rejection
    assert fit(*words).code == 0
    assert files_of(first) == before
    (second,) = (folder for folder in first.parent.iterdir() if folder != first)
    assert (second / "checkpoints/last.ckpt").exists()
    assert second.name.startswith("elu-seed4-")


def test_a_fit_that_goes_on_does_so_in_its_own_folder_and_history(
    fit, succeed, tmp_path, monkeypatch
):
    there, here = tmp_path / "there", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    words = [
        "--trainer.default_root_dir",
        there,
        "--trainer.logger",
        "actlab.reports.wandb.RunLogger",
    ]
    assert fit(*words).code == 0
    (first,) = there.iterdir()
    assert {path.name for path in first.glob("[!.]*")} == {
        "config.yaml",
        "checkpoints",
        "wandb",
        "logger.json",
    }
    before = files_of(first)
    succeed("fit", "-c", first / "config.yaml")  # the same again, beside it
    second = there / f"{first.name}-1"
    words += ["--trainer.max_epochs", "2", "--ckpt_path"]
    assert fit(*words, "last").code == 0  # with the newest
    assert files_of(first) == before
    assert fit(*words, first / "checkpoints/last.ckpt").code == 0
    assert {*there.iterdir()} == {first, second}
    assert list(here.iterdir()) == []
    ids: list[str] = []
    for folder in (first, second):
        lasts = folder.glob("checkpoints/last*.ckpt")
        assert max(torch.load(path, weights_only=True)["epoch"] for path in lasts) == 1
        logs = [*folder.glob("wandb/offline-run-*/*.wandb")]
        ids += {log.stem for log in logs}
        assert len(logs) == 2
    assert len({*ids}) == len(ids) == 2


def test_last_and_best_are_of_the_run_that_the_words_say(fit, elu):
    assert fit(*ELU, "--ckpt_path", "last", command="validate").out.count("val/error") == 1
    losses = [
        value_of(fit(*ELU, "--ckpt_path", path, command="test")) for path in ("last", "best", elu)
    ]
    assert len({*losses}) == 1
    assert (
        "no checkpoint 'best' of this run" in fit("--ckpt_path", "best", command="test").rejection
    )


def test_the_best_is_found_after_a_fit_that_resumed_without_a_config(fit, succeed, tmp_path):
    assert fit().code == 0
    (last,) = tmp_path.glob("runs/**/last.ckpt")
    before = value_of(fit("--ckpt_path", "best", command="validate"), "val/loss")
    succeed("fit", "--ckpt_path", last, "--trainer.max_epochs", "2", *QUICK[-2:])
    assert value_of(fit("--ckpt_path", "best", command="validate"), "val/loss") == before


def test_a_plateau_without_a_metric_of_validation_is_one_line(fit, tmp_path):
    assert (
        "val/los"
        in fit(
            "--model.scheduler", "ReduceLROnPlateau", "--model.scheduler.monitor", "val/los"
        ).rejection
    )
    plateau = partial(ReduceLROnPlateau, monitor="val/loss")
    wrong: dict[str, dict[str, Any]] = {
        "pytorch_lightning.cli.ReduceLROnPlateau": {
            "scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau
        },
        "'test/loss'": {"scheduler": partial(plateau, monitor="test/loss")},
        "model.scheduler_interval": {"scheduler": plateau, "scheduler_interval": "step"},
    }
    for part, options in wrong.items():
        with pytest.raises(ActlabError, match=re.escape(part)):
            fitted(FrameTask(**options), Frames(), tmp_path)


def test_learning_on_the_sample(fit, tmp_path):
    words = ["--model.network.hidden", "[64]", "--model.optimizer.lr", "0.01"]
    assert fit(*words, "--trainer.limit_train_batches", "1.0").code == 0
    (last,) = tmp_path.glob("runs/**/last.ckpt")
    assert value_of(fit(*words, "--ckpt_path", last, command="test"), "test/error") < 0.2


def test_the_bar_shows_each_metric_on_a_line_and_no_adverts(fit, monkeypatch, caplog):
    """Into a pipe the bar is written once, at the end."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("rich._console", None)  # created with the width of this terminal
    words = ["--trainer.max_epochs", "4", "--trainer.limit_train_batches", "3"]
    words += ["--trainer.enable_progress_bar", "true", "--model.network.hidden", "[16]"]
    outcome = fit(*words, "--trainer.logger", "CSVLogger")
    assert outcome.code == 0, outcome.err
    for metric in ("val/loss", "val/error", "val/accuracy"):
        assert re.search(rf"{metric}: \d+\.\d{{3}}", outcome.out), metric
    printed = outcome.out + outcome.err + caplog.text
    assert "Tip:" not in printed
    assert "TPU" not in printed
    assert "v_num" not in printed, "the version of a logger's folder"


def test_two_fits_at_a_time_do_not_share_a_folder(fit, elu, tmp_path):
    folder = elu.parents[1]
    for file in (folder / "checkpoints").iterdir():  # as before its first epoch has ended
        file.unlink()
    with FileLock(folder / ".lock"):  # as a process that trains there holds it
        assert f"another process trains in '{folder.relative_to(tmp_path)}'" in fit(*ELU).rejection
    assert fit(*ELU).code == 0


@pytest.mark.slow  # tests/tasks and tests/studies/test_foreign.py train on two devices too
def test_two_devices_train_what_one_trains(tmp_path, fit):
    """DDP starts its ranks from the words of the process, so it needs one of its own."""

    words = [
        "--model.activation",
        "soi",
        "--model.network.dropout",
        "0.5",
        "--trainer.accelerator",
        "cpu",
    ]
    words += ["--trainer.precision", "64-true"]  # no rounding flips a mask
    assert fit(*words).code == 0
    one = torch.load(only_run(tmp_path) / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    words += [
        "--trainer.devices",
        "2",
        "--trainer.strategy",
        "ddp",
        "--trainer.default_root_dir",
        "two",
    ]
    command = [sys.executable, "-m", "actlab", "fit", "-c", "mnist_classifier"]
    done = subprocess.run(
        [*command, *QUICK, *SMALL["mnist_classifier"], *words],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        timeout=250,
    )
    assert b".py:" not in done.stderr  # no warnings
    (last,) = (tmp_path / "two").glob("*/checkpoints/last.ckpt")
    two = torch.load(last, weights_only=True)["state_dict"]
    for name, value in one.items():
        if name.startswith("network."):
            torch.testing.assert_close(two[name], value, rtol=1e-9, atol=1e-11)


def test_a_unit_edited_since_it_was_trained_is_said_and_not_trained_on(fit, cli, succeed, tmp_path):
    (tmp_path / "my_unit.py").write_text(
        "from my_slope import Slope\n\nclass MyUnit(Slope):\n    pass\n"
    )
    slope = "import torch\n\nclass Slope(torch.nn.{}):\n    pass\n"
    (tmp_path / "my_slope.py").write_text(slope.format("ReLU"))
    mine = ("--model.activation", "./my_unit.py:MyUnit")
    assert fit(*mine).code == 0
    last = str(only_run(tmp_path) / "checkpoints" / "last.ckpt")
    tested = cli("test", "--ckpt_path", last, "--trust")
    assert (tested.code, "changed" in tested.err) == (0, False)
    (tmp_path / "my_slope.py").write_text(slope.format("ELU"))
    tested = succeed("test", "--ckpt_path", last, "--trust")
    assert "note: ./my_unit.py:MyUnit has changed since" in tested.err
    with pytest.warns(UserWarning, match="my_unit.py:MyUnit has changed since"):
        ClassificationTask.load_from_checkpoint(last, trust=True)
    line = fit(*mine, "--ckpt_path", "last", "--trainer.max_epochs", "2").rejection
    assert "my_unit.py:MyUnit has changed since" in line
    assert "Restore it" in line


def test_data_changed_since_they_were_trained_on_are_said_and_not_trained_on(
    fit, succeed, tmp_path
):
    digits = write_hub_folder(tmp_path)
    small = ["--data.sample", "false", "--data.validation", "10", "--data.batch_size", "5"]
    small += ["--data.dataset", str(digits)]
    assert fit(*small).code == 0
    last = str(only_run(tmp_path) / "checkpoints" / "last.ckpt")
    longer = ("--ckpt_path", last, "--trainer.max_epochs")
    assert fit(*small, *longer, "2").code == 0
    write_hub_folder(tmp_path, change=lambda files, labels: labels.reverse())
    tested = succeed("test", "--ckpt_path", last)
    assert f"note: {digits} has changed since" in tested.err
    assert f"{digits} has changed since" in fit(*small, *longer, "3").rejection


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--model.activation", "gleu"], ["'gleu'", "'gelu'"]),
        (
            ["--model.activation=gleu", "--data.sample=false", "--data.dataset=./no/such/folder"],
            ["'gleu'", "'gelu'"],
        ),
        (["--model.activation", "./nothing.py:Unit"], ["nothing.py"]),
        (["--data.sampel", "true"], ["'data.sampel'", "'data.sample'", "MNISTDataModule"]),
        (["--print_config", "--model.network.droput", "1"], ["'model.network.droput'"]),
        (["--data.sample", "false", "--data.dataset", "./no/such/folder"], ["./no/such/folder"]),
        (["--data.batch_size", "5000"], ["5000", "4000"]),
        (["--modle.activation", "gelu"], ["unknown option '--modle'", "'--model'"]),
        (["--trainer.max_epochs", "many"], ["trainer.max_epochs", "'many'"]),
        (["--trainer.strategy", "nonsense"], ["strategy", "nonsense"]),
        (["--model.optimizer.lr", "lots"], ["model.optimizer.lr", "'lots'"]),
        (
            ["--model.optimizer", "SGD", "--model.optimizer.nestrov", "true"],
            ["'model.optimizer.nestrov'", "'model.optimizer.nesterov'"],
        ),
        (["--model.optimizer", "./my.py:SGD"], ["model.optimizer", "'my.SGD'", "no module 'my'"]),
        (
            ["--model.optimizer", "{class_path: torch.optim.SGD, lr: 1}"],
            ["model.optimizer.lr", "init_args"],
        ),
        (["--model.scheduler", "StepLR"], ["StepLR", "'step_size'", "model.scheduler.step_size"]),
        (["--model.scheduler=ReduceLROnPlateau"], ["'monitor'"]),
        (["--model.scheduler.step_size", "3"], ["model.scheduler", "class"]),
        (
            ["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.mnitor=x"],
            ["'trainer.callbacks.mnitor'", "'trainer.callbacks.monitor'"],
        ),
        (
            ["--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.every_n_epochs=-3"],
            ["every_n_epochs"],
        ),
        (["--trainer.callbacks+=EarlyStopping"], ["trainer.callbacks", "monitor"]),
        (["--model", "no.such.Model"], ["model", "no.such.Model", "PYTHONPATH"]),
        (["--model", "actlab.networks.MLP"], ["model", "actlab.networks.MLP", "LightningModule"]),
        (["--model.seed", "3"], ["model.seed", "seed_everything"]),
        (["--model.num_classes", "3"], ["model.num_classes", "3", "10"]),
        (["--seed_everything", "false"], ["seed_everything", "whole number"]),
        (["--seed_everything", "-1"], ["seed_everything", "-1"]),
        (["--optimizer", "torch.optim.SGD"], ["'optimizer'", "model.optimizer"]),
        (
            ["--lr_scheduler", "torch.optim.lr_scheduler.StepLR"],
            ["'lr_scheduler'", "model.scheduler"],
        ),
        (["--ckpt_path", "nothing.ckpt"], ["'nothing.ckpt'"]),
        (["--weights_only", "perhaps"], ["weights_only", "'perhaps'", "true, false"]),
        (["mnist_classifier"], ["'mnist_classifier'", "-c"]),
    ],
)
def test_a_mistake_is_one_clear_line(fit, words, parts):
    line = fit(*words).rejection
    assert all(part in line for part in parts)


HEAD = "model: {class_path: actlab.tasks.ClassificationTask"
DATA = "data: {class_path: actlab.datamodules.MNISTDataModule}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (f"{HEAD}}}\n{DATA}\nmodle: 1", ["'modle'", "'model'"]),
        (
            f"{HEAD}}}\n{DATA}\ntrainer.max_epohcs: 3",
            ["'trainer.max_epohcs'", "'trainer.max_epochs'"],
        ),
        (f"{HEAD}}}\n{DATA}\noptimizer: {{class_path: torch.optim.SGD}}", ["model.optimizer"]),
        (f"{HEAD}}}\n{DATA}\n{DATA}", ["config.yaml", "line 3", "'data'"]),
        (
            (
                f"{HEAD}, init_args: {{clean_training_loss: true,\n"
                f" clean_training_loss: false}}}}\n{DATA}"
            ),
            ["line 2"],
        ),
        (f"{HEAD}, init_args: [1]}}\n{DATA}", ["init_args of ", "[1]"]),
        (f"{HEAD}, activation: gelu}}\n{DATA}", ["model.activation", "init_args"]),
        (DATA, ["model", "--model CLASS"]),
        ("- a list", ["config.yaml"]),
        ("{", ["config.yaml"]),
    ],
)
def test_a_mistake_in_a_file_is_one_clear_line(cli, text, parts, tmp_path):
    (tmp_path / "config.yaml").write_text(text)
    line = cli("fit", "-c", tmp_path / "config.yaml").rejection
    assert all(part in line for part in parts)


CHECKPOINT = "pytorch_lightning.callbacks.ModelCheckpoint"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.network.droput", 0.5),
        ("trainer.max_epohcs", 3),
        ("trainer.callbacks", [{"class_path": CHECKPOINT, "init_args": {"mnitor": "val/loss"}}]),
    ],
)
def test_a_typo_gives_the_same_line_in_a_file_on_the_command_line_and_in_a_study(
    cli, key, value, tmp_path
):
    base = yaml.safe_load((resource("configs") / "mnist_classifier.yaml").read_text())
    set_dotted(base, key, value)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(base))
    in_file = cli("fit", "-c", path)
    on_command_line = cli(
        "fit", "-c", "mnist_classifier", f"--{key}", yaml.safe_dump(value, default_flow_style=True)
    )
    with pytest.raises(ActlabError) as in_study:
        build(base)
    assert in_file.code == on_command_line.code == 2
    assert in_file.err == on_command_line.err == f"actlab: error: {in_study.value}\n"
    assert "did you mean" in in_file.err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--help"], "--trainer.max_epochs"),
        (["--help"], "--trainer.overfit_batches"),
        (["-c", "mnist_classifier", "--model.help"], "--model.training_metrics"),
        (["--data", "actlab.datamodules.CIFARDataModule", "--data.help"], "--data.crop"),
        (["--model.help", "ClassificationTask"], "--model.activation"),
        (["--data.help=MNISTDataModule"], "--data.sample"),
        (["-c", "mnist_classifier", "--print_config"], "activation: gelu_tanh"),
    ],
)
def test_what_lightning_prints_is_printed(succeed, words, part):
    outcome = succeed("fit", *words)
    assert part in outcome.out


def test_help_says_of_each_datamodule_that_drops_an_incomplete_batch_that_it_does(cli):
    kinds = {name: getattr(datamodules, name) for name in datamodules.__all__}
    arguments = {name: inspect.signature(kind).parameters for name, kind in kinds.items()}
    dropping = [
        name
        for name, of in arguments.items()
        if "batch_size" in of and "updates_per_epoch" not in of
    ]
    assert len(dropping) == 7
    for name in dropping:
        printed = " ".join(cli("fit", "--data.help", name).out.split())
        assert "an incomplete last batch of an epoch is dropped" in printed, name


def test_the_help_of_a_class_without_descriptions_lists_its_arguments(cli, programs, monkeypatch):
    monkeypatch.syspath_prepend(programs)
    help_of_class = cli("fit", "--model.help", "lightning_classes.HasDefault").out
    assert help_of_class.startswith("usage: actlab fit [--model.num_classes")
    assert "--model.activation ACTIVATION" in help_of_class


def test_help_begins_with_the_usual_options_of_the_command_and_names_configs_and_activations(cli):
    for command in FITS:
        page, _, options = cli(command, "--help").out.partition("\noptions:\n")
        assert len(page.splitlines()) < 45
        assert f"usage: actlab {command} -c CONFIG" in page
        assert all(name in " ".join(page.split()) for name in ("mnist_classifier", *names()))
        assert "--trainer.max_epochs" in options
        assert "<function" not in options


def test_a_config_keeps_whole_numbers_of_batches_and_what_another_class_accepts(fit, tmp_path):
    words = ["--model.optimizer", "torch.optim.SGD", "--model.optimizer.momentum", "0.9"]
    assert (
        fit(*words, "--trainer.limit_train_batches", "1", "--trainer.limit_val_batches", "1.0").code
        == 0
    )
    config = yaml.safe_load((only_run(tmp_path) / "config.yaml").read_text())
    arguments = config["model"]["init_args"]["optimizer"]["init_args"]
    assert (arguments["momentum"], arguments["fused"], arguments["lr"]) == (0.9, True, 0.001)
    assert [repr(config["trainer"][f"limit_{part}_batches"]) for part in ("train", "val")] == [
        "1",
        "1.0",
    ]


@pytest.mark.parametrize("callback", ["ModelCheckpoint", "EarlyStopping"])
def test_a_metric_that_is_never_logged_is_one_line(fit, callback):
    line = fit(f"--trainer.callbacks={callback}", "--trainer.callbacks.monitor=val_loss").rejection
    assert "val_loss" in line
    assert "val/loss" in line


def test_a_section_of_a_config_may_stand_in_its_own_file(cli, succeed, tmp_path):
    for name, hidden in (("good", "hidden"), ("bad", "hiden")):
        network = f"{{class_path: actlab.networks.MLP, init_args: {{{hidden}: [8]}}}}"
        model = (
            f"{{class_path: actlab.tasks.ClassificationTask, init_args: {{network: {network}}}}}"
        )
        (tmp_path / f"{name}_model.yaml").write_text(model)
        (tmp_path / f"{name}.yaml").write_text(f"model: {name}_model.yaml\n{DATA}\n")
    succeed("fit", "-c", "good.yaml", *QUICK)
    assert "'model.network.hiden'" in cli("fit", "-c", "bad.yaml", *QUICK).err


def test_a_resolved_config_runs_again_also_as_lightning_writes_it(succeed, elu, tmp_path):
    text = (elu.parents[1] / "config.yaml").read_text()
    (tmp_path / "old.yaml").write_text(f"{text}optimizer: null\nlr_scheduler: null\n")
    succeed("test", "-c", "old.yaml", "--ckpt_path", elu)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["fti"], "'fit'"),
        (["fit"], "--model CLASS"),
        (["fit", "--help=model"], "argument -h/--help: ignored explicit argument 'model'"),
        (["fit", "--model.help", "actlab.tasks.Classify"], "Classify"),
        (["fit", "--data.sample", "true", "-c", "mnist_classifier"], "--data.sample"),
        (["fit", "-c", "mnist_clasifier"], "'mnist_classifier'"),
        (
            ["fit", "-c", "mnist_classifier", "--model.lr", "1"],
            "did you mean 'model.optimizer.lr'?",
        ),
        (
            ["fit", "-c", "mnist_classifier", "--model.dropout", "0"],
            "did you mean 'model.network.dropout'?",
        ),
        (["study", "run", "gelu_mnist_clasifier"], "'gelu_mnist_classifier'"),
        (["study", "run"], "FILE"),
        (["study", "walk", "demo"], "walk"),
        (
            ["study", "rn", "demo"],
            "command of actlab study 'rn'; did you mean 'run'? Allowed: clean, new",
        ),
        (["study", "run", "demo", "--set", "nonsense"], "expected KEY=VALUE"),
        (
            ["study", "run", "demo", "--max-stack", "0"],
            "--max-stack: expected a positive whole number, got 0.",
        ),
        (
            ["fit", "-c", "mnist_classifier", "--graphs", "yes"],
            "--graphs: expected true or false, got 'yes'.",
        ),
        (["activations", "--plot", "units.docx"], "units.docx"),
    ],
)
def test_a_mistake_before_anything_runs(cli, words, part):
    assert part in cli(*words).rejection


def test_usage_version_and_the_table_of_units(cli, succeed):
    assert "actlab COMMAND" in cli().out
    assert cli("--version").out.strip() == version("actlab")
    outcome = succeed("activations")
    assert all(name in outcome.out for name in names())


def value_of(outcome, name="test/loss"):
    return float(outcome.out.split(name)[1].split()[1])


def test_a_checkpoint_says_what_it_is(cli, succeed, elu):
    outcome = succeed("test", "--ckpt_path", elu, "--trainer.enable_progress_bar", "false")
    task = ClassificationTask.load_from_checkpoint(elu).eval()
    data = MNISTDataModule(sample=True)
    data.prepare_data()
    data.setup("test")
    losses = [(task.loss(batch), len(batch[1])) for batch in data.test_dataloader()]
    expected = sum(float(loss.detach()) * n for loss, n in losses) / sum(n for _, n in losses)
    assert value_of(outcome) == pytest.approx(expected, rel=1e-4)
    succeed("validate", "--ckpt_path", elu, "--trainer.enable_progress_bar", "false")
    data_of_words = cli("test", "--ckpt_path", elu, "--data.eval_batch_size", "17")
    assert value_of(data_of_words) == pytest.approx(expected, rel=1e-4)


def test_a_checkpoint_says_how_precise_it_is(fit, cli, succeed, tmp_path):
    assert fit("--trainer.precision", "64-true", "--model.activation", "torch.nn:Mish").code == 0
    (path,) = tmp_path.glob("runs/**/last.ckpt")
    alone = succeed("test", "--ckpt_path", path)
    asked = cli("test", "--ckpt_path", path, "--trainer.precision", "64-true")
    assert value_of(alone) == value_of(asked)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--model.activation", "gelu"], ["model.activation: expected 'elu'", "got 'gelu'"]),
        (["-c", "mnist_classifier"], ["model.activation: expected 'elu'", "got 'gelu_tanh'"]),
        (["--model.network.hidden", "[12, 12]"], ["model.network.hidden", "[12, 12]", "[12]"]),
        (["--model.network.init", "he"], ["model.network.init", "'he'", "'unit_norm_rows'"]),
        (["--data.dataset", "./nothing", "--data.sample", "false"], ["./nothing"]),
    ],
)
def test_words_that_contradict_the_checkpoint_are_refused(cli, elu, words, parts):
    line = cli("test", *words, "--ckpt_path", elu).rejection
    assert all(part in line for part in parts), line


def test_training_goes_on_with_what_was_trained(fit, elu):
    words = ["--model.network.hidden", "[12]", "--ckpt_path", elu, "--trainer.max_epochs", "2"]
    assert "model.activation: expected 'elu'" in fit(*words, "--seed_everything", "3").rejection
    assert "seed_everything: expected 3" in fit(*words, "--model.activation", "elu").rejection
    assert fit(*words, "--model.activation", "elu", "--seed_everything", "3").code == 0


def test_a_checkpoint_without_a_config_asks_for_one(cli, fit, elu):
    checkpoint = torch.load(elu, weights_only=True)
    del checkpoint["actlab"]
    torch.save(checkpoint, elu)
    line = cli("test", "--ckpt_path", elu).rejection
    assert "has no config" in line
    assert "-c CONFIG" in line
    words = ["--model.activation", "elu", "--model.network.hidden", "[12]"]
    assert fit(*words, "--ckpt_path", elu, command="test").code == 0


@pytest.mark.parametrize("path", ["http://localhost:1/a.ckpt", "s3://a/b.ckpt", "registry:a", "."])
@pytest.mark.parametrize("command", ["fit", "test"])
def test_a_checkpoint_elsewhere_is_refused(cli, command, path):
    words = ("-c", "mnist_classifier", "--data.sample", "true", "--ckpt_path", path)
    assert repr(path) in cli(command, *words).rejection


def test_a_fit_may_replay_updates_as_graphs(fit, monkeypatch):
    for word, expected in (("true", True), ("false", False)):
        monkeypatch.setattr(devices, "graphs", None)
        outcome = fit("--graphs", word, "--print_config")
        assert outcome.code == 0, outcome.err
        assert devices.graphs is expected


def test_a_fit_may_choose_the_route_of_products(fit):
    mkldnn: Any = torch.backends.mkldnn
    before = mkldnn.matmul.fp32_precision
    try:
        for route in ("auto", "default"):
            outcome = fit("--products", route, "--print_config")
            assert outcome.code == 0, outcome.err
            assert "float32 matmul backend on the CPU: " in outcome.out
        assert fit("--products", "mkl").err.startswith(
            "actlab: error: unknown matmul backend 'mkl'"
        )
    finally:
        mkldnn.matmul.fp32_precision = before
