"""Time of short studies by one process and by one per core: from how many updates on do several save time?

    python benchmarks/processes.py [--rounds 5] [--updates 1000 2000 5000 10000 20000]

Twenty MNIST classifiers in two stacks of ten (two activations, batches of 128), trained by ``actlab study run``
for so many updates together. The sides take turns, because others may load the machine. Printed are the medians
of their seconds from the first job to the end of the last one, with the start of the processes, and median and
range of the ratio of neighbouring turns. `actlab.engines.settings.SEVERAL` follows from it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

RUNS, PER_EPOCH = 20, 25
UPDATES = (1_000, 2_000, 5_000, 10_000, 20_000)
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


def seconds(jobs: int, updates: int) -> float:
    """Return the seconds that training takes in a study of its own."""
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "study.yaml").write_text(STUDY)
        words = [sys.executable, "-m", "actlab", "study", "run", str(file), f"--runs-dir={folder}/runs"]
        words += [f"--set=trainer.max_epochs={updates // (RUNS * PER_EPOCH)}", f"--jobs={jobs}"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        begun = {line.split(" ", 1)[0]: time.perf_counter() for line in process.stdout}
        if process.wait() or not {"training", "measuring"} <= begun.keys():
            raise SystemExit(f"{' '.join(words)} failed")
    return begun["measuring"] - begun["training"]


def main() -> None:
    """Measure in turns and print a line for each number of updates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, nargs="+", default=UPDATES)
    args = parser.parse_args()
    cores = len(psutil.Process().cpu_affinity() or [0])
    print(f"load {psutil.getloadavg()[0]:.1f} on {cores} cores, {args.rounds} rounds", flush=True)
    for updates in args.updates:
        turns = [(seconds(1, updates), seconds(cores, updates)) for _ in range(args.rounds)]
        one, several = map(statistics.median, zip(*turns, strict=True))
        ratios = sorted(b / a for a, b in turns)
        print(
            f"{updates:,} updates: one process {one:.1f} s, {cores} processes {several:.1f} s; ratio "
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
