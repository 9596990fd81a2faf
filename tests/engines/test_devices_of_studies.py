"""Which accelerators the processes of a study see, on machines whose GPUs are stand-ins."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import actlab
from child_processes import serve_with_gpus
from tiny_study import study_text


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """A function that trains three runs and returns what their processes see, and who counted."""

    def train(free: list[int], visible: str, **options: Any) -> tuple[list[str], set[str]]:
        log = Path(tmp_path, "log")
        log.mkdir()
        monkeypatch.setattr(
            "actlab.engines.workers._serve", partial(serve_with_gpus, free, visible, log)
        )
        (tmp_path / "study.yaml").write_text(study_text(seeds=3, epochs=1, batches=1))
        study = actlab.load_study(tmp_path / "study.yaml")
        assert not actlab.run_study(
            study, runs_dir=tmp_path / "runs", max_stack=1, **options
        ).failed
        counted = log / "counted"
        asked = set(counted.read_text().split("\n")[:-1]) if counted.exists() else set[str]()
        return sorted(path.read_text() for path in log.iterdir() if path != counted), asked

    return train


def test_each_process_sees_a_slice_of_a_gpu_of_its_own(seen):
    """CUDA counts the first slice only; asking it would start it before a process has its own."""
    devices, counted = seen([20], "MIG-a,MIG-b,MIG-c")
    assert devices == ["MIG-a", "MIG-b", "MIG-c"]
    assert not counted


@pytest.mark.parametrize(
    ("free", "jobs", "devices"),
    [
        ([20, 70], 1, ["1", "1", "1"]),  # another study trains on the first one
        ([20, 70, 70], 2, ["1", "1", "2"]),
        ([0, 70, 60], None, ["1", "1", "2"]),  # the first one has no room for a process
        ([0, 0], 1, ["0", "0", "0"]),
        ([70, 70, 70], None, ["0", "1", "2"]),
    ],
)
def test_processes_take_the_gpus_with_most_free_memory(free, jobs, devices, seen):
    found, _ = seen(free, "", jobs=jobs)
    assert set(found) == set(devices)
