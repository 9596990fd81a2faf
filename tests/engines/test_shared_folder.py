"""Several starts of a study share its folder, as the tasks of a cluster's array job do."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from actlab.__main__ import main
from actlab.engines import pool
from actlab.storage.json_files import read_json
from actlab.studies import locks, reading
from actlab.studies.locks import holding
from tiny_study import untried

STUDY = """
base: mnist_classifier
set:
  data.sample: true
  trainer.max_epochs: 2
  trainer.limit_train_batches: 1
  model.network.hidden: [4]
grid:
  model.activation: [relu]
  data.batch_size: [100, 500]
seeds: 3
probes: [{name: noise, class_path: actlab.probes.InputNoise, init_args: {strengths: [0.5]}}]
"""
WITNESSED = (
    *(
        "--set",
        "trainer.max_epochs=40",
        "--set",
        "trainer.callbacks=[{class_path: witness.Witness}]",
    ),
    *("--max-stack", "3", "--jobs", "1"),
)


# Two of three seeds together, the third alone
RUN = (
    "study",
    "run",
    "mine.yaml",
    "--max-stack",
    "2",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(STUDY)
    return Path("runs/mine")


@pytest.fixture
def runs(folder):
    return [run.id for run in reading.load("mine.yaml").runs()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of the study, trained without a stop."""
    place = tmp_path_factory.mktemp("finished")
    (place / "mine.yaml").write_text(STUDY)
    words = ("study", "run", place / "mine.yaml", *RUN[3:], "--jobs", "0", "--runs-dir", place)
    with untried(), redirect_stdout(StringIO()):
        assert main([*map(str, words)]) == 0
    return place / "mine"


@pytest.fixture
def missing(finished, folder, runs):
    """Five runs that are left to train: two stacks and a single run."""
    shutil.copytree(finished, folder)
    for run in runs[:5]:
        shutil.rmtree(folder / run)
    return runs[:5]


@pytest.fixture
def while_waiting(monkeypatch):
    """Set what happens elsewhere while a start of the study waits."""

    def happens(action):
        monkeypatch.setattr(pool, "time", SimpleNamespace(sleep=lambda seconds: action()))

    return happens


def test_a_start_that_waits_trains_what_a_dead_process_leaves(cli, folder, missing, while_waiting):
    with ExitStack() as other:  # trains three runs one by one
        assert other.enter_context(holding(folder, missing[:3]))
        while_waiting(other.close)
        outcome = cli(*RUN, "--wait")
    assert outcome.code == 0, outcome.err
    assert "6 of 6 runs finished" in outcome.out


def test_a_start_that_waits_sleeps_while_any_run_of_a_stack_is_held(
    cli, folder, missing, while_waiting
):
    """The first run of the stack is free: it was tried again and again without a pause."""
    waits: list[int] = []
    with ExitStack() as other:
        assert other.enter_context(holding(folder, missing[1:2]))
        while_waiting(lambda: waits.append(len(waits)) or (len(waits) == 3 and other.close()))
        outcome = cli(*RUN, "--wait")
    assert outcome.code == 0, outcome.err
    assert len(waits) == 3
    assert "6 of 6 runs finished" in outcome.out


def test_a_start_that_waits_ends_when_another_has_trained_the_rest(
    cli, folder, missing, finished, while_waiting
):
    def finish():
        for run in missing[:2]:
            shutil.copytree(finished / run, folder / run)

    while_waiting(finish)
    with holding(folder, missing[:1]) as held:
        assert held
        outcome = cli(*RUN, "--wait")
    assert outcome.code == 0, outcome.err
    assert "training 5 runs" in outcome.out
    assert "6 of 6 runs finished" in outcome.out


def test_without_waiting_the_runs_of_others_are_left_to_them(cli, folder, missing):
    with holding(folder, missing[:1]):
        outcome = cli(*RUN)
    assert "2 runs are being trained by another process" in outcome.out  # the stack of the run
    assert "or wait for it with --wait" in outcome.out
    assert "4 of 6 runs finished" in outcome.out


def no_locks(monkeypatch):
    """As on a file system that ignores locks: whoever takes one fails."""

    def fail(*_, **__):
        raise NotImplementedError("no locks here")

    monkeypatch.setattr(locks, "_lock", fail)


# In the other order
@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_shards_train_all_runs_once_without_locks(
    cli, succeed, folder, runs, finished, monkeypatch, first
):
    with monkeypatch.context() as patch:
        no_locks(patch)
        done = []
        for shard in (first, 1 - first):
            before = {path.parent.name for path in folder.glob("*/result.json")}
            outcome = succeed(*RUN, "--shard", f"{shard}/2", "--jobs", "0")
            assert "when all shards have ended, start the study without --shard" in outcome.out
            done.append({path.parent.name for path in folder.glob("*/result.json")} - before)
    assert sorted(name for names in done for name in names) == sorted(runs)
    assert all(done)
    assert "6 of 6 runs finished" in cli(*RUN).out
    for run in runs:
        ours, theirs = (
            pd.read_parquet(place / run / "metrics.parquet") for place in (folder, finished)
        )
        pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
        assert len(list((folder / run / "probes").glob("*.parquet"))) == 1


def test_a_malformed_shard_is_named(cli, folder):
    for text in ("2/2", "1", "a/b"):
        outcome = cli("study", "run", "mine.yaml", "--shard", text)
        assert (outcome.code, f"such as 0/4, got '{text}'" in outcome.err) == (2, True)


def start(folder, host):
    """Start the study on a host of its own, where root may have namespaces."""
    words = [sys.executable, "-m", "actlab", "study", "run", "mine.yaml", "--wait", *WITNESSED]
    if os.geteuid() == 0 and shutil.which("unshare"):
        unshare = [
            "unshare",
            "--pid",
            "--uts",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
        ]
        words = [*unshare, f'hostname {host}; exec "$@"', "sh", *words]
    return subprocess.Popen(
        words,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def witnessed(folder):
    path = folder / "witness.txt"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow  # three processes that train for half a minute
def test_several_hosts_train_each_run_once_and_finish_the_work_of_a_killed_one(
    folder, program, tmp_path, succeed, monkeypatch
):
    program("witness")
    monkeypatch.syspath_prepend(tmp_path)
    succeed("study", "run", "mine.yaml", *WITNESSED, "--runs-dir", "straight")
    (tmp_path / "witness.txt").unlink()
    starts = [start(tmp_path, host) for host in ("one", "two", "three")]
    while len(witnessed(tmp_path)) < 10:
        time.sleep(0.05)
        assert starts[0].poll() is None
    os.killpg(starts[0].pid, signal.SIGKILL)
    outputs = [process.communicate(timeout=300)[0] for process in starts]
    assert [process.returncode for process in starts[1:]] == [0, 0], outputs
    assert all("6 of 6 runs finished" in output for output in outputs[1:])
    # The trials of stacks train in temporary folders.
    seen = [(what, int(epoch)) for _, _, what, epoch in witnessed(tmp_path) if "tmp" not in what]
    assert len(seen) - len(set(seen)) <= 1  # the epoch in which the first was killed
    assert len(set(seen)) == 40 * len({what for what, _ in seen})
    for file in sorted((tmp_path / "straight").rglob("*.parquet")):
        other = tmp_path / "runs" / file.relative_to(tmp_path / "straight")
        pd.testing.assert_frame_equal(
            pd.read_parquet(other), pd.read_parquet(file), check_exact=True
        )
    if (costs := tmp_path / "runs/mine/cost.json").exists():  # not on a busy machine
        measured = read_json(costs, list[dict], "")
        assert len(measured) == len(read_json(tmp_path / "straight/mine/cost.json", list[dict], ""))


PAGE = Path(__file__).parents[2] / "docs/guide/cluster.md"


@pytest.mark.slow  # three processes
@pytest.mark.parametrize("recipe", ["--wait", "--shard"])
def test_the_recipes_for_slurm_train_each_run_once(folder, runs, tmp_path, cli, recipe):
    """As the page says them, on a machine where `srun` only runs its words."""
    blocks = PAGE.read_text().split("```sh\n")[1:]
    text = next(block for block in blocks if "srun" in block and recipe in block).partition("```")[
        0
    ]
    text = text.replace("gelu_mnist_classifier --set data.dataset=/shared/mnist", "mine.yaml")
    text = text.replace("/16", "/3").replace("source", "#").replace("/shared", str(tmp_path))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, does in (("srun", 'exec "$@"'), ("actlab", f'exec {sys.executable} -m actlab "$@"')):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    tasks = [
        subprocess.Popen(
            ["bash", "-c", text],
            env={
                **os.environ,
                "PATH": path,
                "SLURM_ARRAY_TASK_ID": str(task),
                "SLURM_CPUS_PER_TASK": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for task in range(3)
    ]
    outputs = [task.communicate(timeout=280)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0] * 3, outputs
    assert "6 of 6 runs finished" in cli("study", "run", "mine.yaml").out
    assert {path.parent.name for path in folder.glob("*/result.json")} == set(runs)
