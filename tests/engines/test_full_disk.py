"""A disk that is full while a checkpoint is written: one line, and the stack resumes as a stack."""

import resource
from contextlib import contextmanager

import pytest

from actlab.errors import ActlabError
from actlab.studies.folders import RunFolder
from actlab.studies.states import state_of
from tiny_study import TWO, assert_same, execute, load


@contextmanager
def files_end_at(size):
    """Fail to write any file beyond some bytes, as on a full disk; Python ignores the signal."""
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


@pytest.mark.parametrize("stacked", [True, False])
def test_a_full_disk_is_one_line_and_everything_resumes(tmp_path, stacked):
    runs = load(tmp_path, overrides=TWO).runs()
    execute(runs, tmp_path / "straight", stacked)
    root = tmp_path / "full"
    with files_end_at(30_000), pytest.raises(ActlabError, match=r"File too large.*the same command resumes"):
        execute(runs, root, stacked)
    assert not any(state_of(RunFolder(root, run)).reason for run in runs)
    execute(runs, root, stacked)
    assert_same(runs, root, tmp_path / "straight")
