"""The guards around the tests do guard."""

import itertools
import os
import random
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from suite_times import SuiteTimes

ADDRESS = "192.0.2.1"  # reserved for documentation (RFC 5737): nobody answers even where there is a network


def test_addresses_are_refused():
    with socket.socket() as sock, pytest.raises(RuntimeError, match=f"no network.*{ADDRESS}"):
        sock.connect((ADDRESS, 80))
    with socket.socket() as sock, pytest.raises(RuntimeError, match="no network"):
        sock.connect_ex((ADDRESS, 80))


def test_names_are_refused():
    with pytest.raises(RuntimeError, match=r"no network.*example\.org"):
        socket.getaddrinfo("example.org", 443)
    with pytest.raises(RuntimeError, match="no network"):
        urllib.request.urlopen("https://example.org")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost"])
def test_loopback_is_open(host):
    with socket.create_server((host, 0)) as server:
        socket.create_connection((host, server.getsockname()[1]), timeout=5).close()


def test_loopback_is_open_for_ipv6():
    with socket.socket(socket.AF_INET6) as sock:  # nobody listens, or no IPv6 here: either way it is asked
        assert sock.connect_ex(("::1", 1)) != 0


def test_unix_sockets_are_open(tmp_path):
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "s"))
        server.listen()
        client.connect(str(tmp_path / "s"))


def test_children_inherit_the_offline_environment():
    names = ["HF_HUB_OFFLINE", "WANDB_MODE", "MPLBACKEND", "ACTLAB_CACHE", "HF_HOME", "WANDB_DIR"]
    code = f"import os; print(*[os.environ[n] for n in {names}])"
    words = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert words[:3] == ["1", "offline", "Agg"]
    assert all("actlab-tests-" in word for word in words[3:])


@pytest.mark.parametrize("_again", [0, 1])
def test_every_test_draws_the_same(_again):
    assert "PL_GLOBAL_SEED" not in os.environ
    drawn = (random.random(), np.random.rand(), torch.rand(1).item())
    assert drawn == (0.8444218515250481, 0.5488135039273248, torch.rand(1, generator=fresh()).item())


def fresh() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.slow  # collects all tests again; workers of pytest-xdist, whose hashes differ, compare names, too
def test_names_of_tests_are_the_same_later_and_under_other_hashes(request, programs):
    """pytest-xdist runs nothing where two workers collect different names, or the same in another order."""
    here = [item.nodeid for item in request.session.items]
    words = ["-p", "later_clock", "-p", "no:cacheprovider", "--assert=plain", "--collect-only", "-q", "-m", ""]
    files = dict.fromkeys(name.partition("::")[0] for name in here)
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
    seed = int(os.environ.get("PYTHONHASHSEED", "0").replace("random", "0")) + 1
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *files],
        cwd=request.config.rootpath,
        env={**environment, "PYTHONPATH": str(programs), "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    there = list(filter(set(here).__contains__, done.stdout.splitlines()))
    in_order = list if request.config.getoption("random_order") is None else sorted
    assert in_order(there) == in_order(here)


def test_names_of_tests_hold_neither_bytes_nor_the_place_of_the_checkout(request):
    name = request.config.hook.pytest_make_parametrize_id
    ask = {"config": request.config, "argname": "content"}
    assert name(val=b"\x1f\x8b", **ask) == "content"
    assert name(val=f"{Path(__file__).parent}/mine.py:Unit", **ask) == "tests/mine.py:Unit"
    assert name(val="gelu", **ask) is None


def test_a_random_order_is_the_seeds_and_keeps_files_together(request):
    conftest = request.config.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))

    def order(seed):
        items = [SimpleNamespace(path=path, number=n) for path in "abcd" for n in range(9)]
        conftest.pytest_collection_modifyitems(SimpleNamespace(getoption=lambda _: seed), items)
        return [(item.path, item.number) for item in items]

    assert order(None) == sorted(order(1))
    assert order(1) == order(1)
    assert order(2) not in (order(None), order(1))
    assert len(list(itertools.groupby(order(2), key=lambda item: item[0]))) == 4


def test_the_suite_says_its_processor_seconds_by_folder_and_its_slowest_tests(capsys):
    times = SuiteTimes(iter([0.0, 1.0, 3.5, 3.5, 4.0, 10.0]).__next__)
    for name in ("tests/storage/test_files.py::test_a[x::y]", "tests/test_api.py::test_b"):
        times.pytest_runtest_logstart()
        phase = times.pytest_runtest_makereport()
        next(phase)
        with pytest.raises(StopIteration) as made:
            phase.send(SimpleNamespace(nodeid=name))
        times.pytest_runtest_logreport(made.value.value)
    terminal = SimpleNamespace(section=print, write_line=print)
    times.pytest_terminal_summary(terminal)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[1:4] == ["7.0 imports and collection", "2.5 tests/storage", "0.5 tests"]
    assert lines[4:7] == [
        "the 10 slowest of 2 tests:",
        "2.5 tests/storage/test_files.py::test_a[x::y]",
        "0.5 tests/test_api.py::test_b",
    ]
    assert lines[7].startswith("10 processor seconds in 0 s; budget of the default suite: 300 s")


def test_the_command_returns_code_and_texts(cli):
    assert cli("--version").code == 0
    code, out, err = cli("ftt")
    assert (code, out) == (2, "")
    assert "ftt" in err
    assert "Traceback" not in err


def test_the_cpu_beside_a_gpu_is_no_warning(monkeypatch):
    """Tests ask for the CPU wherever they run."""
    import pytorch_lightning as pl

    monkeypatch.setattr("pytorch_lightning.accelerators.cuda.CUDAAccelerator.is_available", lambda: True)
    pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
