"""Locks of runs: freed by the kernel; a folder without working locks is rejected with a remedy."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from actlab.errors import ActlabError
from actlab.studies import locks
from actlab.studies.locks import holding, is_held, local_options


def kill_while_holding(root, run):
    program = (
        "import os, sys; from pathlib import Path; from actlab.studies.locks import holding\n"
        "with holding(Path(sys.argv[1]), sys.argv[2:]) as held: os.kill(os.getpid(), 9 * held)"
    )
    done = subprocess.run([sys.executable, "-c", program, root, run], check=False)
    assert done.returncode == -signal.SIGKILL


def test_all_locks_are_held_or_none(tmp_path):
    with holding(tmp_path, ["one", "two"]) as held:
        assert held
        assert [is_held(tmp_path, name) for name in ("one", "two", "three")] == [True, True, False]
        with holding(tmp_path, ["three", "two"]) as other:
            assert not other
            assert not is_held(tmp_path, "three")
    assert not is_held(tmp_path, "one")


def test_a_lock_of_a_killed_process_is_free(tmp_path):
    kill_while_holding(tmp_path, "one")
    assert not is_held(tmp_path, "one")
    with holding(tmp_path, ["one"]) as held:
        assert held


def test_a_process_that_waits_says_for_what(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(locks, "PAUSE", 0.05)
    held, go = threading.Event(), threading.Event()

    def decide():
        with locks.alone(tmp_path, locks.DECIDING):
            held.set()
            go.wait(30)

    other = threading.Thread(target=decide)
    other.start()
    held.wait(30)
    threading.Timer(0.5, go.set).start()
    with locks.alone(tmp_path, locks.DECIDING):
        assert "waiting for another process, which is deciding" in capsys.readouterr().out
    other.join()


def test_mounts_whose_locks_hold_on_one_host_only_are_found(tmp_path, monkeypatch):
    mounts = (
        "a:/ / ext4 rw 0 0\nsrv:/home /home lustre rw,localflock 0 0\n"
        "b:/ /home/b nfs4 rw,vers=4.2 0 0\n"
    )
    assert local_options(Path("/home/me/runs"), mounts) == {"localflock"}
    assert local_options(Path("/home/b/runs"), mounts) == set()
    assert local_options(Path("/homes"), mounts) == set()
    locks.check(tmp_path)
    monkeypatch.setattr(locks, "_mounts", lambda: f"srv:/ {tmp_path} nfs rw,nolock 0 0")
    with pytest.raises(
        ActlabError, match=r"do not work in .* \(mounted with nolock\)\. .* --shard 0/4"
    ):
        locks.check(tmp_path)


def test_a_start_that_waits_needs_locks_that_work(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_mounts", lambda: f"srv:/ {tmp_path} nfs rw,nolock 0 0")
    said = cli("study", "run", "demo", "--smoke", "--wait", "--runs-dir", tmp_path).rejection
    assert "(mounted with nolock)" in said


@pytest.mark.parametrize("fault", ["none", "error"])
def test_locks_that_a_file_system_ignores_are_found(tmp_path, monkeypatch, fault):
    class Ignored:
        def __init__(self, path, **options):
            if fault == "error":
                raise OSError("no locks available")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(locks, "FileLock", Ignored)
    with pytest.raises(ActlabError, match=r"two processes would hold|no locks available"):
        locks.check(tmp_path)
