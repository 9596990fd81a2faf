"""Stopping by Ctrl-C, SIGTERM or a reader that leaves: one line at most, and an exit code each."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

STUDY = """\
base: mnist_classifier
# Too few updates to compile masks
set: {data.sample: true, model.network.hidden: [8], trainer.max_epochs: 300}
grid: {model.activation: [relu]}
seeds: 2
"""
ACCENTS = STUDY.replace("{data.sample", '{data.cache_dir: "./caché", data.sample')
ACCENTS = ACCENTS.replace("[relu]", '[relu, "./unité.py:mine"]').replace("seeds: 2", "seeds: 1")


def started(folder, *words, stdout=subprocess.PIPE):
    """Start a command in the locale C, whose encoding is ASCII."""
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "actlab", *words],
        cwd=folder,
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1", "LC_ALL": "C", "PYTHONUTF8": "0"},
    )


@pytest.mark.parametrize(
    ("number", "code", "moment"),
    [  # below, SIGTERM arrives in this process
        (signal.SIGINT, 130, "in training"),
        pytest.param(signal.SIGTERM, 143, "in training", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, "at start", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, "at start", marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_study_with_one_line(tmp_path, cli, monkeypatch, number, code, moment):
    """After one in training, ``plan`` shows how far the runs are. No path needs to be in ASCII."""
    folder = tmp_path / "étude"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "unité.py").write_text("def mine(x):\n    return x.relu()\n", encoding="utf-8")
    (folder / "long.yaml").write_text(ACCENTS, encoding="utf-8")
    words = ("long.yaml", "--reference", f"{folder / 'unité.py'}:mine", "--runs-dir", "été")
    process = started(folder, "study", "run", *words)
    if moment == "in training":
        deadline = time.monotonic() + 200
        while not _rows(folder) and time.monotonic() < deadline:
            time.sleep(0.2)
    else:
        time.sleep(1.0)  # libraries are being imported
    process.send_signal(number)
    out, err = process.communicate(timeout=100)
    assert process.returncode == code, err
    # Without Lightning's own note, and without the phases that a busy machine names.
    lines = [
        line for line in err.splitlines() if line.strip() and not re.search("SIGTERM|…$", line)
    ]
    assert lines == ["actlab: stopped; the same command resumes"]
    if moment == "in training":
        assert "long: 2 runs, 0 finished, 2 to run, in été/long\n" in out
        assert "started  " in cli("study", "plan", *words).out


def _rows(folder):
    """The files in which runs have recorded an epoch."""
    return [
        path for path in folder.glob("été/long/*/metrics.csv") if path.read_text().count("\n") > 1
    ]


# The second loads torch; tests/cli/test_environment.py runs it in this process.
@pytest.mark.parametrize("word", ["--version", pytest.param("activations", marks=pytest.mark.slow)])
def test_a_reader_that_goes_away_is_no_error(tmp_path, word):
    reader, writer = os.pipe()
    os.close(reader)
    process = started(tmp_path, word, stdout=writer)
    os.close(writer)
    assert process.communicate(timeout=100) == (None, "")
    assert process.returncode == 141


WORDS = [
    *("fit", "-c", "mnist_classifier", "--data.sample", "true", "--model.network.hidden", "[8]"),
    *("--model.clean_training_loss", "false"),
    *(
        "--trainer.limit_train_batches",
        "4",
        "--trainer.logger",
        "false",
        "--trainer.max_epochs",
        "50",
    ),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
]


def test_a_signal_whose_exception_is_swallowed_ends_training_within_a_batch(
    tmp_path, cli, succeed, program
):
    program("late_activations")
    words = (*WORDS, "--model.activation", "./late_activations.py:Swallows")
    outcome = cli(*words)
    assert outcome.code == 143
    assert resumption(outcome, tmp_path)
    assert (tmp_path / "mark").read_text() == "x"  # no further batch
    succeed(*words, "--trainer.max_epochs", "3", "--ckpt_path", "last")


def resumption(outcome, folder):
    """The checkpoint in which the last line says that a stopped fit resumes; it must be there."""
    said = "actlab: stopped; --ckpt_path last resumes from "
    (last,) = folder.glob("runs/mnist_classifier/*/checkpoints/last.ckpt")
    return outcome.err.strip().splitlines()[-1] == said + str(last.relative_to(folder))


def test_a_signal_whose_exception_is_replaced_ends_the_command(cli, program, tmp_path):
    """As by a C extension that is stopped while it is imported."""
    program("late_activations")
    outcome = cli(*WORDS, "--model.activation", "./late_activations.py:Replaces")
    assert outcome.code == 143
    assert resumption(outcome, tmp_path)


def test_a_fit_that_is_stopped_before_its_first_checkpoint_promises_none(cli, program, tmp_path):
    program("late_activations")
    words = (*WORDS, "--model.activation", "./late_activations.py:Replaces")
    outcome = cli(*words, "--trainer.limit_train_batches", "20")
    (folder,) = tmp_path.glob("runs/mnist_classifier/*/")
    here = folder.relative_to(tmp_path)
    line = f"actlab: stopped; {here} has no checkpoint yet: the same command starts again"
    assert (outcome.code, outcome.err.strip().splitlines()[-1]) == (143, line)


def test_a_study_that_trains_in_another_process_is_stopped_and_resumes(tmp_path, cli, program):
    program("late_activations")
    (tmp_path / "short.yaml").write_text(
        STUDY.replace("300", "3, trainer.limit_train_batches: 4").replace("seeds: 2", "seeds: 1")
    )
    words = (
        "study",
        "run",
        "short.yaml",
        "--jobs",
        "1",
        "--activation",
        "./late_activations.py:Interrupts",
    )
    outcome = cli(*words)
    assert outcome.code == 143
    assert outcome.err == "actlab: stopped; the same command resumes\n"
    assert "2 of 2 runs finished" in cli(*words).out
