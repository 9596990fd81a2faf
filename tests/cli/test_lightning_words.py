"""Habits from LightningCLI, besides the run folders and links of ``actlab fit``."""

import json
import os
import subprocess
import sys

import pytest
import torch
import yaml

from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file

QUICK = [
    *(
        "--trainer.max_epochs",
        "1",
        "--trainer.limit_train_batches",
        "2",
        "--trainer.limit_val_batches",
        "1",
    ),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
]
SAMPLE = ["--data.sample", "true", "--model.network.hidden", "[8]", *QUICK]
MNIST = ["--data", "MNISTDataModule", "--data.sample", "true", *QUICK]


@pytest.fixture(autouse=True)
def _code(program):
    program("own_modules")


@pytest.fixture
def shown(succeed):
    """The resolved config of words over a config, and what was printed beside it."""

    def run(*words, config="mnist_classifier"):
        outcome = succeed("fit", "-c", config, *words, "--print_config")
        return yaml.safe_load(outcome.out), outcome.err

    return run


@pytest.fixture
def fit(succeed):
    return lambda *words: succeed("fit", *words)


def test_another_model_class_keeps_what_it_accepts_and_the_rest_is_named(shown):
    config, printed = shown("--model", "own_modules.Sub")
    before, _ = shown()
    arguments = config["model"]["init_args"]
    assert (arguments["extra"], arguments["activation"]) == (3, "gelu_tanh")
    assert arguments["network"] == before["model"]["init_args"]["network"]
    assert "note: own_modules.Sub does not accept model.optimizer: left out" in printed
    assert "note" not in shown("--model", "actlab.tasks.ClassificationTask")[1]


def test_another_data_class_keeps_what_it_accepts(shown):
    config, printed = shown(
        "--data", "actlab.datamodules.CIFARDataModule", "--data.dataset", "./folder"
    )
    assert config["data"]["init_args"]["batch_size"] == 128
    assert "note" not in printed


@pytest.mark.parametrize(
    ("words", "mistake"),
    [
        ("model.network.class_path=own_modules.Counted", "model.network.hiden"),
        (
            "model.network=own_modules.Counted model.network.norm=torch.nn.BatchNorm1d "
            "model.network.norm.momentum=0.5 model.network.norm=torch.nn.LayerNorm",
            "model.network.norm.ep",
        ),
        ("model.optimizer.betas=[0.8,0.9] model.optimizer=SGD", "model.optimizer.momentm"),
        (
            (
                "model.activation=torch.nn:ELU model.activation.alpha=2 "
                "model.activation=torch.nn.Softplus"
            ),
            "model.activation.bta",
        ),
        ("model=own_modules.Bare", "model.wdth"),
        ("data.dataset=./folder data=SquareDataModule", "data.smaple"),
        (
            "trainer.logger=CSVLogger trainer.logger.flush_logs_every_n_steps=7 "
            "trainer.logger.class_path=TensorBoardLogger",
            "trainer.logger.log_grph",
        ),
    ],
)
def test_a_mistake_after_another_class_is_named_and_no_argument_of_the_old_class(
    cli, words, mistake
):
    line = cli(
        "fit", "-c", "mnist_classifier", *(f"--{word}" for word in words.split()), f"--{mistake}=3"
    )
    assert f"'{mistake}'" in line.rejection or f"'{mistake.rpartition('.')[2]}'" in line.rejection


def test_arguments_of_the_old_class_that_another_accepts_are_kept(shown):
    config, printed = shown(
        "--model.network.dropout", "0.5", "--model.network", "own_modules.Counted"
    )
    assert config["model"]["init_args"]["network"]["init_args"] == {
        "hidden": 4,
        "dropout": 0.5,
        "norm": None,
    }
    assert (
        "note: own_modules.Counted does not accept model.network.hidden, "
        "model.network.init: left out"
    ) in printed


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["elu", "--model.activation.alpha", "0.5"], {"name": "elu", "alpha": 0.5}),
        (["{name: gelu, beta: 2}", "--model.activation", "{name: elu}"], "elu"),
        (["torch.nn.Mish"], "torch.nn:Mish"),
        (
            ["{class_path: torch.nn.ELU, init_args: {alpha: .5}}"],
            {"name": "torch.nn:ELU", "alpha": 0.5},
        ),
        (
            ["own_modules:Mish2", "--model.activation.beta", "2"],
            {"name": "own_modules:Mish2", "beta": 2},
        ),
        (
            ["torch.nn:ELU", "--model.init_args.activation.alpha=0.5"],
            {"name": "torch.nn:ELU", "alpha": 0.5},
        ),
    ],
)
def test_spellings_of_an_activation(shown, tmp_path, words, value):
    assert shown("--model.activation", *words)[0]["model"]["init_args"]["activation"] == value
    if len(words) == 1:
        base = read_mapping(config_file("mnist_classifier"))
        base["model"]["init_args"]["activation"] = yaml.safe_load(words[0])
        (tmp_path / "own.yaml").write_text(json.dumps(base))
        assert shown(config="own.yaml")[0]["model"]["init_args"]["activation"] == value


def test_callbacks_as_in_lightning(shown, tmp_path):
    words = ["--trainer.callbacks=EarlyStopping", "--trainer.callbacks.monitor=val/loss"]
    config, _ = shown(*words)
    callbacks = config["trainer"]["callbacks"]
    callbacks = callbacks if isinstance(callbacks, list) else [callbacks]
    assert callbacks[-1]["class_path"].endswith("EarlyStopping")
    assert callbacks[-1]["init_args"]["monitor"] == "val/loss"
    config["trainer"]["callbacks"] = {
        "class_path": "EarlyStopping",
        "init_args": {"monitor": "val/loss"},
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(config))
    assert shown(config="own.yaml")[0]["trainer"]["callbacks"]["init_args"]["monitor"] == "val/loss"


def test_one_callback_trains_and_loggers_write_to_the_folder_of_the_run_unless_told_otherwise(
    fit, tmp_path
):
    words = ["--trainer.callbacks=EarlyStopping", "--trainer.callbacks.monitor=val/loss"]
    fit("-c", "mnist_classifier", *SAMPLE, *words, "--trainer.logger=CSVLogger")
    (file,) = tmp_path.glob("runs/*/*/lightning_logs/version_0/metrics.csv")
    again = file.parents[2] / "config.yaml"
    fit("-c", again, "--trainer.logger.save_dir", "elsewhere")
    assert list(tmp_path.glob("elsewhere/lightning_logs/version_0/metrics.csv"))


def test_tensorboard_writes_to_the_folder_of_the_run(fit, tmp_path):
    pytest.importorskip("tensorboard")
    fit("-c", "mnist_classifier", *SAMPLE, "--trainer.logger=TensorBoardLogger")
    assert list(tmp_path.glob("runs/*/*/lightning_logs/version_0/events.out.tfevents.*"))


def test_tensorboard_that_is_not_installed_is_one_line(cli, monkeypatch):
    for name in ("_TENSORBOARD_AVAILABLE", "_TENSORBOARDX_AVAILABLE"):
        monkeypatch.setattr(f"lightning_fabric.loggers.tensorboard.{name}", False)
    monkeypatch.setattr("actlab.cli.loggers.find_spec", lambda name: None)
    line = cli(
        "fit", "-c", "mnist_classifier", *SAMPLE, "--trainer.logger=TensorBoardLogger"
    ).rejection
    assert "`tensorboard`" in line
    line = cli("study", "run", "demo", "--smoke", "--logger", "tensorboard").rejection
    assert "the package tensorboard, which is not installed. Install the extra" in line


def test_print_config_without_null(cli, shown):
    outcome = cli(
        "fit", "-c", "mnist_classifier", "--data=MNISTDataModule", "--print_config=skip_null"
    )
    assert "null" not in outcome.out
    assert yaml.safe_load(outcome.out)["data"]["class_path"].endswith("MNISTDataModule")
    assert "skip_null" in cli("fit", "-c", "mnist_classifier", "--print_config=nothing").rejection


def test_true_is_a_seed_that_is_recorded(shown, monkeypatch):
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    assert shown("--seed_everything", "true")[0]["seed_everything"] == 0
    monkeypatch.setenv("PL_GLOBAL_SEED", "17")
    assert shown("--seed_everything", "true")[0]["seed_everything"] == 17


def test_an_optimiser_for_a_module_without_one(fit, cli):
    words = [
        "--optimizer=SGD",
        "--optimizer.lr=0.1",
        "--lr_scheduler=StepLR",
        "--lr_scheduler.step_size=1",
    ]
    fit("--model", "own_modules.Bare", *MNIST, "--trainer.logger", "false", *words)
    assert "Set model.optimizer" in cli("fit", "-c", "mnist_classifier", *words).rejection


def test_a_class_of_the_other_package_is_named_as_such(cli, tmp_path):
    package = tmp_path / "lightning" / "pytorch"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("class LightningModule:\n    pass\n")
    (tmp_path / "theirs.py").write_text(
        "from lightning.pytorch import LightningModule\n\nclass Net(LightningModule):\n    pass\n"
    )
    outcome = cli("fit", "--model", "theirs.Net", *MNIST)
    for name in [
        name for name in sys.modules if name in ("theirs",) or name.split(".")[0] == "lightning"
    ]:
        del sys.modules[name]
    assert "Replace lightning.pytorch with pytorch_lightning" in outcome.rejection


def test_a_fit_continues_from_its_checkpoint_alone(fit, cli, tmp_path):
    words = ["--model.activation", "soi", "--trainer.callbacks+=EarlyStopping"]
    words += ["--trainer.callbacks.monitor=val/loss", "--trainer.logger", "false"]
    config = ["-c", "mnist_classifier", *SAMPLE, *words]
    fit(*config, "--trainer.max_epochs", "2")
    (straight,) = tmp_path.glob("runs/**/last.ckpt")
    expected = torch.load(straight, weights_only=True)["state_dict"]
    straight.parents[2].rename(tmp_path / "first")
    fit(*config)
    (path,) = tmp_path.glob("runs/**/last.ckpt")
    quiet = ["--trainer.enable_progress_bar", "false", "--trainer.max_epochs", "2"]
    outcome = fit("--ckpt_path", path, *quiet)
    assert "trained with EarlyStopping, which this fit omits" in outcome.err
    assert "fit -c CONFIG --ckpt_path" in outcome.err
    found = [torch.load(file, weights_only=True) for file in path.parent.glob("last*.ckpt")]
    (last,) = (one for one in found if one["epoch"] == 1)
    assert all(torch.equal(last["state_dict"][name], value) for name, value in expected.items())
    assert (
        "was trained with, got 'elu'"
        in cli("fit", "--ckpt_path", path, "--model.activation", "elu").rejection
    )


@pytest.mark.slow  # a process is spawned
def test_a_process_that_is_spawned_trains(tmp_path):
    words = [
        "-c",
        "mnist_classifier",
        *SAMPLE,
        "--trainer.logger",
        "false",
        "--trainer.accelerator",
        "cpu",
    ]
    words += ["--trainer.strategy", "ddp_spawn", "--trainer.devices", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    script = (
        "import sys\nfrom actlab.__main__ import main\n\nif __name__ == '__main__':\n"
        "    sys.exit(main())\n"
    )
    # As the installed command, which spawned processes import
    (tmp_path / "command.py").write_text(script)
    command = [sys.executable, "command.py", "fit", *words]
    subprocess.run(
        command, check=True, cwd=tmp_path, env=environment, capture_output=True, timeout=250
    )
    assert list(tmp_path.glob("runs/**/last.ckpt"))
