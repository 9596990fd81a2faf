"""What a Ray cluster costs beside processes of one machine: start, time per job, memory.

    pip install -e '.[cluster]'
    python benchmarks/cluster.py [--rounds 3]

Starts a Ray cluster on loopback with two cores and trains the classifier of the demo by ``actlab study run`` in
turns: with ``--jobs 2`` and with ``--cluster``. A job is a stack of two runs of two epochs; a study has 2 or 18
jobs. What ``--cluster`` adds to a study of 2 jobs is its start; each further job adds the time of a job.
Resident memory is sampled four times a second; libraries that several processes share count in each.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from figures import show

STACK, FEW, MANY = 2, 2, 18
HOST = "127.0.0.1"
STUDY = [
    *("study", "run", "demo", "--jobs", "2", "--max-stack", str(STACK)),
    *("--set", "model.activation=gelu", "--set", "trainer.max_epochs=2"),
]


@contextmanager
def ray() -> Iterator[str]:
    """Start a cluster of this machine; yield its address."""
    with socket.socket() as free, tempfile.TemporaryDirectory(prefix="ray") as folder:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
        free.close()
        words = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2"),
            *(
                f"--port={port}",
                f"--node-ip-address={HOST}",
                "--include-dashboard=false",
                f"--temp-dir={folder}",
            ),
            "--object-store-memory=100000000",
        ]
        log = Path(folder, "start.log")
        with log.open("w", encoding="utf-8") as file:
            own = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
            head = subprocess.Popen(words, stdout=file, stderr=file, env=own)
        try:
            while "Ray runtime started" not in log.read_text(encoding="utf-8"):
                if head.poll() is not None:
                    raise SystemExit(log.read_text(encoding="utf-8"))
                time.sleep(0.2)
            yield f"{HOST}:{port}"
        finally:
            family = [*psutil.Process(head.pid).children(recursive=True), head]
            for process in family:
                process.kill()
            psutil.wait_procs(family[:-1])
            head.wait()


def role_of(process: psutil.Process, home: int) -> str | None:
    """Return what a process does for the study; None if it is not part of it."""
    with process.oneshot():
        words, parent = " ".join(process.cmdline()), process.ppid()
    if process.pid == home:
        return "home"
    if words.startswith("ray::Queue") or words.startswith("ray::_Queue"):
        return "mailbox"
    if words.startswith("ray::_train"):
        return "node"
    if parent == home and "multiprocessing" in words:
        return "worker"
    return None


def turn(jobs: int, *words: str) -> tuple[float, dict[str, float]]:
    """Run a study of so many jobs in a fresh folder.

    Returns:
        seconds, and the largest resident memory of one process by role, in MiB.
    """
    peaks: dict[str, float] = defaultdict(float)
    with tempfile.TemporaryDirectory() as folder:
        own = [*STUDY, "--seeds", str(STACK * jobs), "--runs-dir", folder, *words]
        start = time.perf_counter()
        study = subprocess.Popen([sys.executable, "-m", "actlab", *own], stdout=subprocess.DEVNULL)
        while study.poll() is None:
            for process in psutil.process_iter():
                try:
                    if role := role_of(process, study.pid):
                        peaks[role] = max(peaks[role], process.memory_info().rss / 2**20)
                except psutil.NoSuchProcess:
                    continue
            time.sleep(0.25)
        seconds = time.perf_counter() - start
    if study.returncode:
        raise SystemExit(f"actlab {' '.join(own)} exited with {study.returncode}")
    return seconds, peaks


def measure(rounds: int) -> dict[str, float]:
    """Return medians over rounds: seconds, the start, a job, ratios, and memory in MiB."""
    times: dict[str, list[float]] = defaultdict(list)
    memory: dict[str, float] = defaultdict(float)
    with ray() as address:
        for _ in range(rounds):
            for jobs in (FEW, MANY):
                for side, words in (("jobs", ()), ("cluster", ("--cluster", address))):
                    seconds, peaks = turn(jobs, *words)
                    times[f"{side}_{jobs}_s"].append(seconds)
                    for role, peak in peaks.items():
                        name = f"{role}_of_{side}_MiB"
                        memory[name] = max(memory[name], peak)
    pairs = {
        n: [c - j for c, j in zip(times[f"cluster_{n}_s"], times[f"jobs_{n}_s"], strict=True)]
        for n in (FEW, MANY)
    }
    middle = {name: statistics.median(values) for name, values in times.items()}
    return {
        **middle,
        "start_s": statistics.median(pairs[FEW]),
        "each_job_s": (statistics.median(pairs[MANY]) - statistics.median(pairs[FEW])) / (MANY - FEW),
        **{f"cluster_vs_jobs_{n}": middle[f"cluster_{n}_s"] / middle[f"jobs_{n}_s"] for n in (FEW, MANY)},
        **memory,
    }


def main() -> None:
    """Measure and print, one figure a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    show(measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
