"""Atomic writes: what killed writers left is found, the partial files of live ones stay."""

import os
import subprocess
import sys
import time

import pytest
import torch

from actlab.datamodules.cache import write_cache
from actlab.storage.files import leftovers, replacing, temporary, write_atomically


@pytest.fixture
def writer(programs, tmp_path):
    """A process that is writing a file of the cache, and its partial file."""
    words = [sys.executable, programs / "partial_writer.py", tmp_path / "a.safetensors"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    yield process, tmp_path / process.stdout.readline().strip()
    process.kill()
    process.communicate()


def test_the_file_of_a_live_writer_stays(writer, tmp_path):
    process, partial = writer
    assert not [*leftovers(tmp_path)]
    write_atomically(tmp_path / "a.safetensors", "of another")
    write_cache(tmp_path / "b.safetensors", {"x": torch.zeros(1)})
    assert partial.read_text() == "half"
    process.communicate()
    assert (process.returncode, (tmp_path / "a.safetensors").read_text()) == (0, "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"a.safetensors", "b.safetensors"}


def test_the_file_of_a_killed_writer_is_a_leftover_after_an_hour(writer, tmp_path):
    process, partial = writer
    process.kill()
    process.wait()
    write_atomically(tmp_path / "a.safetensors", "whole")
    assert partial.exists()
    assert not [*leftovers(tmp_path)]
    hours_ago = time.time() - 2 * 3600
    os.utime(partial, (hours_ago, hours_ago))
    assert [*leftovers(tmp_path)] == [partial]


def test_a_writer_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "table.json"
    write_atomically(path, "old")
    with pytest.raises(TypeError), replacing(path) as partial:
        partial.write_text(0)  # type: ignore[arg-type]
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old", [path])


def test_a_folder_takes_its_place_in_one_step(tmp_path):
    with temporary(tmp_path, "run", folder=True) as copy:
        write_atomically(copy / "inside", "text")
        assert not (tmp_path / "run").exists()
        copy.replace(tmp_path / "run")
    assert (tmp_path / "run" / "inside").read_text() == "text"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
