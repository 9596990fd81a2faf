"""Studies killed at random moments: what they leave is that of a straight run, bit for bit."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tiny_study import left_in

KILLS = 10  # in each of the five tests
STUDY = """\
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 100
  trainer.max_epochs: 6
  model.network.hidden: [8, 8]
  trainer.callbacks:
    - {class_path: actlab.callbacks.TestEveryEpoch}
    - {class_path: actlab.callbacks.UnitStatistics, init_args: {samples: 100}}
grid: {model.activation: [relu, soi], model.optimizer.lr: [1.0e-2, 1.0e-3]}
seeds: 3
select: {tune: [model.optimizer.lr]}
"""
PROBES = """\
probes:
  - {name: noise, class_path: actlab.probes.InputNoise, init_args: {strengths: [0.5]},
     at: [last, 2]}
"""
STAGES = "stages: [{name: choose, seeds: 2}, {name: compare, seeds: 2-3}]\n"
SEARCH = """\
stages:
  - {name: search, seeds: 1, search: {model.optimizer.lr: 1e-4..1e-2}, trials: 7}
  - {name: compare, seeds: 5-6}
"""
CASES = {
    "one worker": (STUDY, 1),
    "two workers": (STUDY, 2),
    "probes": (STUDY + PROBES, 2),
    "stages": (STUDY + STAGES, 2),
    "search": (
        STUDY.replace(", model.optimizer.lr: [1.0e-2, 1.0e-3]", "").partition("select")[0] + SEARCH,
        2,
    ),
}


def start(folder, runs, jobs):
    words = [
        sys.executable,
        "-m",
        "actlab",
        "study",
        "run",
        "mine.yaml",
        "--jobs",
        jobs,
        "--runs-dir",
        runs,
    ]
    return subprocess.Popen(
        [*map(str, words)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def trained(folder, runs, jobs):
    """Seconds until a start has ended."""
    since, process = time.monotonic(), start(folder, runs, jobs)
    _, err = process.communicate(timeout=250)
    assert process.returncode == 0, err
    return time.monotonic() - since


def kill(process, whole):
    """Kill the main process, whose workers then end, or all at once."""
    if whole:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()


@pytest.mark.slow  # ten starts that are killed
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("text", "jobs"), CASES.values(), ids=CASES)
def test_a_study_killed_at_random_moments_leaves_what_a_straight_run_does(tmp_path, text, jobs):
    (tmp_path / "mine.yaml").write_text(text)
    seconds = trained(tmp_path, "straight", jobs)
    drawn = random.Random(text)
    for _ in range(KILLS):
        process = start(tmp_path, "runs", jobs)
        time.sleep(drawn.uniform(0, seconds))
        kill(process, whole=drawn.random() < 0.5)
    trained(tmp_path, "runs", jobs)
    straight, runs = tmp_path / "straight/mine", tmp_path / "runs/mine"
    found, expected = (left_in(root, "*.parquet", "*.ckpt") for root in (runs, straight))
    assert len(expected) >= 24
    assert found == expected
    assert not (runs / "stacks").exists() or not any((runs / "stacks").iterdir())
