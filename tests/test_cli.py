"""``actlab`` through its public door: fit, resume, test, predict, and one clear line for each mistake."""

import os
import subprocess
import sys

import pytest
import torch

from actlab.activations import names
from actlab.experiments import without_denormals
from actlab.resources import resource

CONFIGS = sorted(path.stem for path in resource("configs").glob("*.yaml"))
QUICK = [
    "--data.sample",
    "true",
    "--trainer.max_epochs",
    "1",
    "--trainer.limit_train_batches",
    "6",
    "--model.network.hidden",
    "[16, 16]",
    "--trainer.logger",
    "false",
    "--trainer.enable_progress_bar",
    "false",
]


@pytest.fixture
def fit(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*words, command="fit", config="mnist_classifier"):
        return cli(command, "-c", config, *QUICK, *words)

    return run


def test_there_are_configs():
    assert "mnist_classifier" in CONFIGS


@pytest.mark.parametrize("config", CONFIGS)
def test_every_config_runs_on_its_sample(fit, config, tmp_path):
    assert fit(config=config).code == 0
    folder = tmp_path / "runs" / config
    assert (folder / "checkpoints" / "last.ckpt").exists()
    assert "activation:" in (folder / "config.yaml").read_text()


def test_resume_is_the_run_uninterrupted(fit, tmp_path):
    last = tmp_path / "runs/mnist_classifier/checkpoints/last.ckpt"
    settings = ["--model.activation", "soi", "--model.network.dropout", "0.2"]
    assert fit(*settings, "--trainer.max_epochs", "3").code == 0
    straight = torch.load(last, weights_only=True)["state_dict"]
    last.unlink()
    assert fit(*settings, "--trainer.max_epochs", "1").code == 0
    assert fit(*settings, "--trainer.max_epochs", "3", "--ckpt_path", "last").code == 0
    newest = max(last.parent.glob("last*.ckpt"), key=lambda path: path.stat().st_mtime)
    resumed = torch.load(newest, weights_only=True)
    assert resumed["epoch"] == 2
    assert all(torch.equal(resumed["state_dict"][name], value) for name, value in straight.items())


def test_another_config_in_the_same_folder_is_kept_beside(fit, tmp_path):
    fit()
    fit("--model.activation", "elu")
    texts = [
        (tmp_path / "runs/mnist_classifier" / name).read_text() for name in ("config.yaml", "config-1.yaml")
    ]
    assert ["activation: elu" in text for text in texts] == [False, True]


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_the_other_commands(fit, command):
    fit()
    outcome = fit("--ckpt_path", "runs/mnist_classifier/checkpoints/last.ckpt", command=command)
    assert outcome.code == 0
    if command != "predict":
        assert {"validate": "val/error", "test": "test/error"}[command] in outcome.out


def test_learning_on_the_sample(fit):
    outcome = fit(
        "--trainer.max_epochs", "3", "--trainer.limit_train_batches", "1.0", "--model.network.hidden", "[64]"
    )
    assert outcome.code == 0
    last = "runs/mnist_classifier/checkpoints/last.ckpt"
    outcome = fit("--ckpt_path", last, "--model.network.hidden", "[64]", command="test")
    error = float(outcome.out.split("test/error")[1].split()[1])
    assert error < 0.2


def test_bf16_mixed(fit):
    assert fit("--trainer.precision", "bf16-mixed").code == 0


def test_two_devices_train_what_one_trains(tmp_path):
    """DDP starts its ranks from the words of the process, so this needs one of its own."""

    def losses(*words):
        command = [
            sys.executable,
            "-m",
            "actlab",
            "fit",
            "-c",
            "mnist_classifier",
            *QUICK,
            "--model.activation",
            "soi",
            "--model.network.dropout",
            "0.5",
            "--trainer.accelerator",
            "cpu",
            *words,
        ]
        subprocess.run(
            list(map(str, command)),
            check=True,
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            timeout=250,
        )
        last = max(tmp_path.glob("runs/**/last*.ckpt"), key=lambda path: path.stat().st_mtime)
        return torch.load(last, weights_only=True)["state_dict"]

    one = losses()
    two = losses("--trainer.devices", "2", "--trainer.strategy", "ddp")
    for name, value in one.items():
        if name.startswith("network."):
            torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-5)


def test_units_of_the_users_own(fit, tmp_path):
    (tmp_path / "my_unit.py").write_text("import torch\n\nclass MyUnit(torch.nn.ReLU):\n    '''Mine.'''\n")
    assert fit("--model.activation", "./my_unit.py:MyUnit").code == 0
    assert fit("--model.activation", "torch.nn:Mish").code == 0
    assert fit("--model.activation", "{name: elu, alpha: 0.5}").code == 0


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--model.activation", "gleu"], ["'gleu'", "'gelu'"]),
        (["--model.activation", "{name: elu, alhpa: 1}"], ["alhpa", "alpha"]),
        (["--model.activation", "./nothing.py:Unit"], ["nothing.py"]),
        (["--model.activatoin", "gelu"], ["'activatoin'", "'activation'", "ClassificationTask"]),
        (["--model.network.droput", "0.5"], ["'droput'", "'dropout'", "MLP"]),
        (["--data.sampel", "true"], ["'sampel'", "'sample'", "MNISTDataModule"]),
        (["--model.network.init", "hee"], ["'hee'", "'he'"]),
        (["--data.sample", "false", "--data.dataset", "./no/such/folder"], ["./no/such/folder"]),
        (["--data.batch_size", "many"], ["batch_size"]),
        (["--data.batch_size", "5000"], ["5000", "4000"]),
        (["--trainer.max_epohcs", "3"], ["'max_epohcs'", "'max_epochs'"]),
        (["--modle.activation", "gelu"], ["'--modle'", "'--model'"]),
        (["--trainer.max_epochs", "many"], ["trainer.max_epochs", "many"]),
    ],
)
def test_a_mistake_is_one_clear_line(fit, words, parts):
    outcome = fit(*words)
    assert outcome.code == 2
    lines = outcome.err.strip().splitlines()
    assert lines[-1].startswith("actlab: error: ")
    assert len([line for line in lines if "error" in line.lower()]) == 1
    assert "Traceback" not in outcome.err
    assert all(part in lines[-1] for part in parts)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["fti"], "'fit'"),
        (["fit", "-c", "mnist_clasifier"], "'mnist_classifier'"),
        (["study", "run", "gelu_mnist_clasifier"], "'gelu_mnist_classifier'"),
        (["study", "run"], "FILE"),
        (["study", "walk", "demo"], "walk"),
        (["study", "run", "demo", "--set", "nonsense"], "key=value"),
        (["study", "run", "demo", "--max-stack", "0"], "--max-stack 0"),
        (["activations", "--plot", "units.docx"], "units.docx"),
    ],
)
def test_a_mistake_before_anything_runs(cli, words, part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = cli(*words)
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) == 1
    assert part in outcome.err


def test_help_shows_the_units(cli):
    outcome = cli("fit", "--help")
    assert outcome.code == 0
    text = " ".join(outcome.out.split())
    assert all(name in text for name in names())


def test_usage_and_version(cli):
    assert "actlab COMMAND" in cli().out
    assert cli("--version").out.strip() == "0.1.0"


def test_the_table_of_units(cli):
    outcome = cli("activations")
    assert outcome.code == 0
    assert all(name in outcome.out for name in names())


def test_training_computes_without_denormal_numbers():
    tiny = torch.tensor([1e-39])
    with without_denormals():
        assert (tiny * 1).item() == 0
    assert (tiny * 1).item() > 0
