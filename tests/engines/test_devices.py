"""Stacks that do not fit into memory, and what is kept between updates."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from actlab.engines import packing
from actlab.studies import stacks
from tiny_study import TWO, execute, load, metrics, result

SEVEN = [*TWO, "seeds=7"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A folder in which the seven runs were trained in stacks of at most three."""
    folder = tmp_path_factory.mktemp("straight")
    execute(load(folder, overrides=SEVEN).runs(), folder / "runs", most=3)
    return folder / "runs"


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), None])
def test_a_stack_that_does_not_fit_is_halved(straight, tmp_path, monkeypatch, capsys, error):
    """As often as it takes: 7 become 4 and 3, then 2, 2 and 3; a restart finds them."""
    runs = load(tmp_path, overrides=SEVEN).runs()
    baddbmm, kill = torch.baddbmm, []

    def scarce(bias, x, y):
        if len(x) > 3:
            kill.append(len(x))
            if error is not None:
                raise error
            torch.empty(2**50)
        return baddbmm(bias, x, y)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "baddbmm", scarce)
        execute(runs, tmp_path / "halved")
    assert set(kill) == {7, 4}
    assert "7 runs in one stack do not fit into memory" in capsys.readouterr().out
    split = {tuple(one.members): one.parts for one in stacks.begun(tmp_path / "halved")}
    assert sorted(len(part) for parts in split.values() for part in parts) == [2, 2, 3, 4]
    for run in runs:
        assert result(tmp_path / "halved", run)["status"] == "finished"
        assert metrics(tmp_path / "halved", run).shape == metrics(straight, run).shape


def test_stacks_are_as_large_as_the_user_says(tmp_path):
    runs = load(tmp_path, overrides=["seeds=8"]).runs()
    sizes = {len(job.runs) for job in packing.pack(runs, tmp_path, max_stack=3).jobs}
    assert 1 < max(sizes) <= 3


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc keeps or trims")
@pytest.mark.slow  # two processes that train, for what only speed depends on
def test_freed_memory_is_kept_for_the_next_update(programs):
    """Faults of pages, counted: the second tensor of a size finds the memory of the first."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}

    def run(**settings):
        words = [sys.executable, programs / "page_faults.py"]
        done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment | settings)
        kept, number = done.stdout.split()
        return kept == "True", int(number)

    kept, few = run()
    trimmed, many = run(MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072")
    assert (kept, trimmed) == (True, False)
    assert few < 100 < many
