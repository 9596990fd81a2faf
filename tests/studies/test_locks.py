"""Locks of runs: one for a stack, kept by its halves; soft ones where ``flock`` does not work."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from actlab.errors import ActlabError
from actlab.storage.files import DamagedError
from actlab.studies import locks, stacks
from actlab.studies.locks import holding, is_held, local_options


def stack(name, *members, **more):
    return {"id": name, "members": [*members], "threads": 1, **more}


def kill_while_holding(root, run):
    program = (
        "import os, sys; from pathlib import Path; from actlab.studies.locks import holding\n"
        "with holding(Path(sys.argv[1]), sys.argv[2:]) as held: os.kill(os.getpid(), 9 * held)"
    )
    done = subprocess.run([sys.executable, "-c", program, root, run], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.fixture(params=["flock", "soft"])
def root(request, tmp_path, monkeypatch):
    """A study's folder, on a file system with working ``flock`` locks and on one without."""
    if request.param == "soft":
        monkeypatch.setattr(locks, "fault_of_flock", lambda path: "two processes held the same lock")
    said = locks.settle(tmp_path)
    assert ("actlab study unlock" in said) == (request.param == "soft")
    return tmp_path


def test_the_members_of_a_stack_and_of_its_halves_share_a_lock(root):
    stacks.write(root, [stack("ab", "one", "two", "three")])
    with holding(root, ["one"]) as held:
        assert held
        assert [is_held(root, name) for name in ("one", "two", "three", "four")] == [True, True, True, False]
        stacks.write(root, [stack("cd", "one", "two", lock="ab"), stack("ef", "three", lock="ab")], ["ab"])
        with holding(root, ["three"]) as other:
            assert not other
        with holding(root, ["four"]) as free:
            assert free
    assert not is_held(root, "three")
    with holding(root, ["three", "four"]) as held:
        assert held


def test_a_run_that_joined_a_stack_while_its_lock_was_taken_is_not_held(root, monkeypatch):
    names = iter([["one"], ["ab"]])
    monkeypatch.setattr(stacks, "locks", lambda root, runs: next(names))
    with holding(root, ["one"]) as held:
        assert not held


def test_a_lock_of_a_killed_process_is_free_or_freed_by_unlock(root):
    kill_while_holding(root, "one")
    left = locks.claims(root)
    assert len(left) == locks.is_soft(root)
    for claim in left:
        assert is_held(root, "one")
        assert (claim.lock, claim.ended) == ("one", True)
        locks.unlock(root, claim)
    with holding(root, ["one"]) as held:
        assert held
        assert [claim.ended for claim in locks.claims(root)] == [False] * locks.is_soft(root)


def test_locks_that_a_file_system_ignores_are_found(tmp_path, monkeypatch):
    assert locks.fault_of_flock(tmp_path / "probe") == ""
    monkeypatch.setattr(locks, "_TRY", "")  # the other process gets the lock
    assert locks.fault_of_flock(tmp_path / "probe") == "two processes held the same lock"


def test_mounts_whose_locks_hold_on_one_host_only_are_found(tmp_path, monkeypatch):
    mounts = "a:/ / ext4 rw 0 0\nsrv:/home /home lustre rw,localflock 0 0\nb:/ /home/b nfs4 rw,vers=4.2 0 0\n"
    assert local_options(Path("/home/me/runs"), mounts) == {"localflock"}
    assert local_options(Path("/home/b/runs"), mounts) == set()
    assert local_options(Path("/homes"), mounts) == set()
    monkeypatch.setattr(locks, "_mounts", lambda: f"srv:/ {tmp_path} nfs rw,nolock 0 0")
    assert locks.fault_of_flock(tmp_path / "probe") == "mounted with nolock"


def test_a_folder_whose_locks_others_use_is_rejected_where_they_do_not_work(tmp_path, monkeypatch):
    with holding(tmp_path, ["one"]):
        pass
    monkeypatch.setattr(locks, "fault_of_flock", lambda path: "mounted with nolock")
    with pytest.raises(ActlabError, match=r"mounted with nolock.*delete .*\.locks"):
        locks.settle(tmp_path)


def test_a_damaged_record_of_the_kind_is_an_error(tmp_path):
    (tmp_path / locks.FOLDER).mkdir()
    (tmp_path / locks.FOLDER / locks.KIND).write_text("{")
    with pytest.raises(DamagedError, match="it says soft"), holding(tmp_path, ["one"]):
        pass


def test_unlock_lists_what_it_frees(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = Path("runs/demo")
    assert "end with their processes" in cli("study", "unlock", "demo").out
    monkeypatch.setattr(locks, "fault_of_flock", lambda path: "no locks")
    locks.settle(root)
    assert cli("study", "unlock", "demo").out == "no locks\n"
    stacks.write(root, [stack("ab", "one", "two")])
    for run in ("one", "three"):
        kill_while_holding(root, run)
    listed = cli("study", "unlock", "demo").out
    assert "stack of 2 runs: process " in listed
    assert "three: process " in listed
    assert listed.count("has ended") == 2
    assert "`actlab study unlock demo --yes` frees 2 locks" in listed
    assert cli("study", "unlock", "demo", "--yes").out.endswith("freed 2 locks\n")
    assert not is_held(root, "one")
