"""Surroundings of a command: terminals of few characters, full disks, variables of libraries."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from actlab.__main__ import main
from actlab.storage.resources import config_file


def test_a_minus_is_one_where_the_output_has_few_characters(monkeypatch):
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="latin-1"))
    monkeypatch.setattr("actlab.__main__.run", lambda args: print("−2.40 ± 1 … β ∞") or 0)
    assert main(["--version"]) == 0
    assert printed.getvalue() == "-2.40 ± 1 ... ? inf\n".encode("latin-1")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("words", [["--version"], ["--help"], ["report", "--help"]])
def test_what_cannot_be_printed_is_one_line(monkeypatch, capsys, words):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(words) == 2
    assert capsys.readouterr().err.splitlines() == [
        "actlab: error: [Errno 28] No space left on device"
    ]


@pytest.mark.parametrize("word", ["--version", "activations"])  # rich makes an exit of it
def test_a_reader_that_has_gone_is_no_error_of_python(monkeypatch, word):
    """It is found before Python ends, where it would be "Exception ignored" and exit code 120."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert main([word]) == 141


def test_without_standard_output_a_command_runs(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["--version"]) == 0
    sys.stdout.close()


def test_a_trainer_that_is_null_is_one_line(cli, tmp_path):
    (tmp_path / "config.yaml").write_text("trainer: null\n")
    words = ("-c", "mnist_classifier", "-c", tmp_path / "config.yaml", "--data.sample", "true")
    assert (
        "trainer: expected a mapping of arguments of Lightning's Trainer, got null. Set them, or"
        in cli("validate", *words).rejection
    )


@pytest.mark.parametrize(
    "name", ["timit_frames", "twitter_pos", "mnist_classifier", "imagenet_elu15"]
)
def test_data_in_the_home_of_nobody_is_not_there(cli, name):
    assert "~nobodyx/a" in cli("fit", "-c", name, "--data.dataset", "~nobodyx/a").rejection


@pytest.fixture
def piped():
    """Feeds a text to a pipe and gives the pipe's path, as ``<(…)`` of a shell does."""
    opened = []

    def pipe(text):
        reader, writer = os.pipe()
        os.write(writer, text.encode())
        os.close(writer)
        opened.append(reader)
        return f"/dev/fd/{reader}"

    yield pipe
    for reader in opened:
        os.close(reader)


def test_configs_and_studies_may_be_pipes(cli, piped, tmp_path):
    study = (
        "base: mnist_classifier\nset: {data.sample: true}\ngrid: {model.activation: [relu]}\n"
        "seeds: 2\n"
    )
    code, out, err = cli("study", "plan", piped(study), "--smoke")
    assert code == 0, err
    assert "2 runs, 2 not finished" in out
    words = (
        "-c",
        "mnist_classifier",
        "-c",
        piped("data: {init_args: {batch_size: 77}}"),
        "--print_config",
    )
    code, out, err = cli("fit", *words)
    assert "batch_size: 77" in out, err
    config = config_file("mnist_classifier").read_text()
    small = ("--data.sample", "true", "--model.network.hidden", "[4]", "--trainer.max_epochs", "1")
    code, out, err = cli("fit", "-c", piped(config), *small, "--trainer.limit_train_batches", "2")
    assert code == 0, err
    # Not the pipe's number
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["ClassificationTask"]


OWN = """
from math import prod

from torch import nn

from actlab.datamodules import MNISTDataModule


class Act(nn.Softplus):
    pass


class Net(nn.Sequential):
    def __init__(self, act, num_classes, input_shape):
        first = nn.Linear(prod(input_shape), 4)
        super().__init__(nn.Flatten(), first, act(), nn.Linear(4, num_classes))


class Digits(MNISTDataModule):
    pass
"""


def test_the_current_folder_can_be_imported(tmp_path, monkeypatch):
    """The installed command's path has the folder of its script in place of the current one."""
    Path("folder_of_mine.py").write_text(OWN, encoding="utf-8")
    own = ["--model.activation=folder_of_mine:Act", "--model.network=folder_of_mine.Net"]
    own += [
        "--data.class_path=folder_of_mine.Digits",
        "--data.sample=true",
        "--trainer.max_epochs=1",
    ]
    limits = [f"--trainer.limit_{split}_batches=1" for split in ("train", "val", "test")]
    monkeypatch.setattr(sys, "argv", ["actlab", "fit", "-c", "mnist_classifier", *own, *limits])
    monkeypatch.setattr(
        sys, "path", [place for place in sys.path if place not in ("", str(tmp_path))]
    )
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # else the command would start this process again
    assert main() == 0
    assert sys.path[-1] == str(tmp_path), "it hides no installed module"


@pytest.mark.parametrize(("options", "importable"), [([], "True"), (["-P"], "False")])
def test_a_safe_path_stays_safe(tmp_path, options, importable):
    script = tmp_path / "bin" / "actlab"
    script.parent.mkdir()
    script.write_text(
        "import sys\nfrom actlab.__main__ import main\nmain()\nprint(sys.argv[2] in sys.path)\n",
        encoding="utf-8",
    )
    words = [sys.executable, *options, script, "--version", tmp_path]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == importable


@pytest.mark.parametrize(
    ("words", "seed"),
    [
        (["fit", "-c", "x"], 0),
        (["study", "run", "x", "--jobs", "0"], 0),
        (["predict"], 0),
        (["report"], 1),
    ],
)
def test_commands_that_run_users_code_have_one_hash_seed(tmp_path, words, seed):
    """Each process draws another one, and with it the order of a set; also if the path is safe."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom actlab import __main__ as command\n"
        "command.run = lambda args: print(sys.flags.hash_randomization, sys.path[-1])\n"
        "command.main()\n",
        encoding="utf-8",
    )
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    folder = tmp_path / "here"
    folder.mkdir()
    for options in ([], ["-P"]):
        done = subprocess.run(
            [sys.executable, *options, script, *words],
            cwd=folder,
            env=variables,
            capture_output=True,
            text=True,
            check=True,
        )
        randomized, last = done.stdout.split()
        assert int(randomized) == seed
        assert (last == str(folder)) == (options == [])
