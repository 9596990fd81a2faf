"""What another process costs a study: one core kept busy beside it against the machine as it is.

    python benchmarks/busy.py

Two stacks of 15 MNIST classifiers, trained by ``actlab study run`` (`sides.Study`), epoch by epoch, in turns
with and without a process that computes without end. With two cores, one of them taken, a program that uses
both can lose half; what is above 2 is waiting.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sides
from figures import show

SIZE = 15
ROUNDS = 3


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def measure(dataset: str | None = None) -> dict[str, float]:
    """All figures; the data set is not used.

    Returns:
        milliseconds an update and run, and ``busy_vs_idle``.
    """
    del dataset
    idle, busy = [], []
    with tempfile.TemporaryDirectory() as folder:
        data = sides.make_data(Path(folder))
        with sides.closing_at_sigterm(), sides.Study(data, 2 * SIZE, stack=SIZE) as study:
            study.turn()
            for _ in range(ROUNDS):
                idle.append(study.turn())
                with busy_core():
                    busy.append(study.turn())
    figures = {"idle_ms": min(idle), "busy_ms": min(busy)}
    return figures | {"busy_vs_idle": figures["busy_ms"] / figures["idle_ms"]}


def main() -> None:
    """Measure and print, one figure a line."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    show(measure())


if __name__ == "__main__":
    main()
