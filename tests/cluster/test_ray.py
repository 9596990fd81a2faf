"""A study on a real Ray cluster on loopback: equal to local processes, whatever dies meanwhile."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch

from tiny_study import STUDY

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

HEAD, NODE = "127.0.0.2", "127.0.0.3"
SOURCES = str(Path(__file__).parents[2] / "src")
TWO_STACKS = [
    f"--set={s}"
    for s in ("model.activation=soi", "model.network.dropout=0.3", "trainer.max_epochs=40")
]


def environment(scratch, **more):
    paths = os.pathsep.join(
        filter(None, [more.pop("first", ""), SOURCES, os.environ.get("PYTHONPATH", "")])
    )
    own = {
        "PYTHONPATH": paths,
        "RAY_USAGE_STATS_ENABLED": "0",
        "ACTLAB_CACHE": str(scratch / "node-cache"),
    }
    return {**os.environ, **own, **more}


def end(process):
    """Kill a process with all processes that it started, by their ids."""
    try:
        family = [
            *psutil.Process(process.pid).children(recursive=True),
            psutil.Process(process.pid),
        ]
    except psutil.NoSuchProcess:
        family = []
    for one in family:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()


# A dead node is noticed after seconds, not half a minute.
HEALTH = {"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3"}


class Ray:
    """A head without cores, so that jobs run on the nodes that a test starts."""

    def __init__(self, scratch):
        self.scratch = scratch
        with socket.socket() as free:
            free.bind((HEAD, 0))
            self.address = f"{HEAD}:{free.getsockname()[1]}"
        self.processes = []
        self.head = self._start(
            *("--head", f"--port={self.address.rpartition(':')[2]}", f"--node-ip-address={HEAD}"),
            *("--num-cpus=0", "--include-dashboard=false", f"--temp-dir={scratch / 'ray'}"),
            **HEALTH,
        )
        self.nodes = []

    def _start(self, *words, before=(), **variables):
        log = self.scratch / f"{len(self.processes)}.log"
        ray = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--block",
            "--object-store-memory=100000000",
        ]
        own = environment(self.scratch, **variables)
        with log.open("w") as file:
            process = subprocess.Popen([*before, *ray, *words], stdout=file, stderr=file, env=own)
        self.processes.append(process)
        deadline = time.monotonic() + 90
        while "Ray runtime started" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "Ray does not start"
            time.sleep(0.2)
        return process

    def start_node(self, **options):
        node = self._start(
            f"--address={self.address}",
            f"--node-ip-address={NODE}",
            "--num-cpus=2",
            "--num-gpus=0",
            **options,
        )
        self.nodes.append(node)
        return node

    def end_nodes(self):
        while self.nodes:
            end(self.nodes.pop())


@pytest.fixture(scope="module")
def scratch():
    folder = Path("/tmp/actlab-ray") / str(os.getpid())
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def ray(scratch):
    pytest.importorskip("ray")
    found = Ray(scratch)
    yield found
    found.end_nodes()
    for process in reversed(found.processes):
        end(process)


@pytest.fixture
def other_node(ray):
    """Starts a node with options; it ends with the test."""
    ray.end_nodes()
    yield ray.start_node
    ray.end_nodes()


def command(folder, runs, *words):
    (folder / "tiny.yaml").write_text(STUDY)
    words = ("study", "run", "tiny.yaml", "--jobs", "2", "--runs-dir", folder / runs, *words)
    return [sys.executable, "-m", "actlab", *map(str, words)]


def run(folder, runs, *words, code=0):
    variables = environment(folder, ACTLAB_CACHE=os.environ["ACTLAB_CACHE"])
    done = subprocess.run(
        command(folder, runs, *words),
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, "the study has ended"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def assert_equal(folder, one, other):
    """All runs have the same files: metrics and configs by their bytes, weights by their values."""
    files = [
        sorted(p.relative_to(folder / n) for p in (folder / n).glob("tiny/[!.]*/**/*"))
        for n in (one, other)
    ]
    assert files[0] == files[1]
    assert any(file.name == "result.json" for file in files[0])
    for file in files[0]:
        paths = [folder / name / file for name in (one, other)]
        if file.name in ("metrics.parquet", "config.yaml"):
            assert paths[0].read_bytes() == paths[1].read_bytes(), file
        elif file.suffix == ".ckpt":
            first, second = (torch.load(path, weights_only=True) for path in paths)
            assert first["actlab"] == second["actlab"]
            assert all(
                value.equal(second["state_dict"][name])
                for name, value in first["state_dict"].items()
            )
        elif file.name == "result.json":
            first, second = ({**json.loads(p.read_text())} for p in paths)
            ignored = {"seconds": 0, "stack": None}  # how runs were packed changes nothing else
            assert {**first, **ignored} == {**second, **ignored}


def test_equal_to_two_processes_after_home_and_a_node_were_killed(ray, tmp_path):
    run(tmp_path, "local", *TWO_STACKS)
    node, log = ray.start_node(), tmp_path / "home.log"
    words = command(tmp_path, "remote", *TWO_STACKS, "--cluster", ray.address)
    own = environment(tmp_path, ACTLAB_CACHE=os.environ["ACTLAB_CACHE"])
    for dies in ("home", "node"):
        before = {path: path.stat().st_mtime_ns for path in checkpoints(tmp_path)}
        with log.open("w") as file:
            home = subprocess.Popen(words, cwd=tmp_path, env=own, stdout=file, stderr=file)
        try:
            wait_for(partial(written_since, before, tmp_path), home)
            assert not list((tmp_path / "remote").glob("tiny/*/result.json")), "killed too late"
            if dies == "node":
                kill_raylet(node)
                ray.start_node()
                assert home.wait(200) == 0, log.read_text()
        finally:
            end(home)
    assert_equal(tmp_path, "local", "remote")


def checkpoints(folder):
    return list((folder / "remote").glob("tiny/stacks/*/stack.ckpt"))


def written_since(before, folder):
    return any(before.get(path) != path.stat().st_mtime_ns for path in checkpoints(folder))


def kill_raylet(node):
    node.send_signal(signal.SIGSTOP)  # or it would end what is left of the node in an orderly way
    (raylet,) = [p for p in psutil.Process(node.pid).children() if "raylet" in p.name()]
    raylet.kill()
    end(node)


@pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0,
    reason="needs a mount namespace",
)
def test_a_node_that_does_not_share_the_folder_is_named(ray, other_node, tmp_path):
    (tmp_path / "runs").mkdir()
    mount = f'mount -t tmpfs none {tmp_path / "runs"}; exec "$@"'
    other_node(before=["unshare", "-m", "sh", "-c", mount, "sh"])
    out = run(tmp_path, "runs", "--cluster", ray.address, code=2)
    remedy = "Set --runs-dir to a folder that all nodes mount"
    assert f"does not share {tmp_path / 'runs/tiny'}. {remedy}" in out
    assert not list((tmp_path / "runs").glob("tiny/*/result.json"))


def test_a_node_with_another_version_is_named(ray, other_node, tmp_path):
    metadata = tmp_path / "first" / "torchmetrics-9.9.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.4\nName: torchmetrics\nVersion: 9.9\n")
    other_node(first=str(tmp_path / "first"))
    out = run(tmp_path, "runs", "--cluster", ray.address, code=2)
    assert "has torchmetrics 9.9, not " in out
    assert not list((tmp_path / "runs").glob("tiny/*/result.json"))
