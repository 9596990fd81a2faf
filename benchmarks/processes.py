"""Time of short studies by one process and one per core: from how many updates do more save time?

    python benchmarks/processes.py [--rounds 5] [--updates 1000 2000 5000 10000 20000]

Twenty MNIST classifiers in two stacks of ten (two activations, batches of 128), trained by ``actlab
study run`` for so many updates together, from the start of the processes to the end of the last.
The sides take turns, because others may load the machine. Printed are medians of the seconds that
passed and of the processor time of the busiest process, which is what would pass on idle cores, and
median and range of the ratios of neighbouring turns. `actlab.engines.settings.SEVERAL` follows from
the second ratio.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

RUNS, PER_EPOCH = 20, 25
UPDATES = (1_000, 2_000, 5_000, 10_000, 20_000)
POLL = 0.05  # seconds
STUDY = f"""\
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 128
  trainer.limit_train_batches: {PER_EPOCH}
  model.network.dropout: 0.0
grid: {{model.activation: [gelu, relu]}}
seeds: {RUNS // 2}
"""


class Turn(NamedTuple):
    """Seconds that training took by the clock, and of the processor time of the busiest process."""

    passed: float
    busiest: float


def turn(jobs: int, updates: int) -> Turn:
    """Train in a study of its own."""
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "study.yaml").write_text(STUDY)
        words = [
            sys.executable,
            "-m",
            "actlab",
            "study",
            "run",
            str(file),
            f"--runs-dir={folder}/runs",
        ]
        words += [f"--set=trainer.max_epochs={updates // (RUNS * PER_EPOCH)}", f"--jobs={jobs}"]
        process = psutil.Popen(words, stdout=subprocess.PIPE, text=True)
        begun: dict[str, float] = {}  # when phases began, by the first word of their lines
        reader = threading.Thread(target=note, args=(process.stdout, begun))
        reader.start()
        before: dict[int, float] = {}  # processor time by process, before training and …
        used: dict[int, float] = {}  # … in it
        while reader.is_alive():
            for one in process.children(recursive=True) if process.is_running() else ():
                with suppress(psutil.Error):
                    spent = sum(one.cpu_times()[:2])
                    if "training" not in begun:
                        before[one.pid] = spent
                    elif "measuring" not in begun:
                        used[one.pid] = spent - before.get(one.pid, 0.0)
            reader.join(POLL)
        if process.wait() or not {"training", "measuring"} <= begun.keys():
            raise SystemExit(f"{' '.join(words)} failed")
    return Turn(begun["measuring"] - begun["training"], max(used.values()))


def note(lines: Iterable[str], begun: dict[str, float]) -> None:
    """Note when the first line with each first word comes."""
    for line in lines:
        begun.setdefault(line.split(" ", 1)[0], time.perf_counter())


def main() -> None:
    """Measure in turns and print a line for each number of updates."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, nargs="+", default=UPDATES)
    args = parser.parse_args()
    cores = len(psutil.Process().cpu_affinity() or [0])
    print(f"{args.rounds} rounds, {cores} cores; seconds by one process, by {cores}, and the ratio")
    for updates in args.updates:
        turns = [(turn(1, updates), turn(cores, updates)) for _ in range(args.rounds)]
        print(f"{updates:,} updates, load {psutil.getloadavg()[0]:.1f}", end="")
        for what in Turn._fields:
            one, several = (
                statistics.median(getattr(t[side], what) for t in turns) for side in (0, 1)
            )
            ratios = sorted(getattr(b, what) / getattr(a, what) for a, b in turns)
            spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            print(f"; {what} {one:.1f}, {several:.1f}, {spread}", end="")
        print(flush=True)


if __name__ == "__main__":
    main()
