"""Training rounds denormal numbers to 0: on every thread, also at a resume, in every command."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tiny_study import study_text

pytestmark = pytest.mark.skipif(
    not torch.set_flush_denormal(False), reason="the processor keeps denormal numbers"
)

STUDY = study_text(
    "model.activation: [./counted_denormals.py:gelu], model.network.dropout: [0.0, 0.1]",
    "select: {tune: [model.network.dropout]}\n",
    trainer__val_check_interval=1.0,
    model__network__hidden=[4],
)
CALLBACK = "trainer.callbacks=[{class_path: counted_denormals.KillsOnce}]"
ONE = ("--set", "model.network.dropout=0.1")
FIT = [
    *("fit", "-c", "mnist_classifier", "--data.sample", "true", "--trainer.max_epochs", "1"),
    *(
        "--trainer.limit_train_batches",
        "3",
        "--model.network.hidden",
        "[4]",
        "--trainer.logger",
        "false",
    ),
]
TUNE = ("tune", "mine.yaml", "--activation", "./counted_denormals.py:gelu", "--search")


@pytest.fixture
def counts(program, tmp_path, monkeypatch):
    """Return the numbers of denormal elements that each process saw."""
    program("counted_denormals")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("mine.yaml").write_text(STUDY)

    def read() -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for line in Path("counts.txt").read_text().splitlines():
            process, number = line.split()
            found.setdefault(process, set()).add(int(number))
        return found

    return read


@pytest.mark.tries_stacks
def test_a_first_start_and_its_resume_train_without_denormal_numbers(succeed, counts):
    outcome = succeed("study", "run", "mine.yaml", "--jobs", "1", "--set", CALLBACK, *ONE)
    assert Path("killed").exists()
    assert "in 1 stack" in outcome.out or "in 2 stacks" in outcome.out
    # The processes that looked for opened files, that tried and built, the one that was killed, the
    # next ones, and the one that measured costs.
    seen = [*counts().values()]
    assert len(seen) >= 5
    assert set().union(*seen) == {0}


@pytest.mark.parametrize(
    "words",
    [
        ("study", "run", "mine.yaml", "--jobs", "0", *ONE),
        (*FIT, "--model.activation", "./counted_denormals.py:gelu"),
        # Several processes, and as long as them; they train as those of a study do.
        pytest.param(
            ("study", "run", "mine.yaml", "--jobs", "2", "--max-stack", "2"), marks=pytest.mark.slow
        ),
        pytest.param(
            (*TUNE, "model.network.dropout=[0.0, 0.1]", "--fresh", "2"), marks=pytest.mark.slow
        ),
    ],
    ids=["study", "fit", "two workers", "tune"],
)
def test_every_command_that_trains_does_so_without_denormal_numbers(succeed, counts, words):
    """Also on threads that were started before."""
    assert importlib.import_module("counted_denormals").denormal()
    succeed(*words)
    assert set().union(*counts().values()) == {0}


@pytest.mark.slow  # two processes
def test_threads_that_a_notebook_has_started_train_without_denormal_numbers(program, tmp_path):
    program("counted_denormals")
    for end in ("abort", "finish"):
        words = [sys.executable, program("flushed_notebook"), tmp_path / "runs", end]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.stdout.splitlines()[-1:] == ["seen 0 after 0"], done.stdout + done.stderr
