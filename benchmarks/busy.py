"""What another process costs a study: one core kept busy beside it against the machine as it is.

    python benchmarks/busy.py

Thirty MNIST classifiers in stacks of 15, trained by ``actlab study run`` (`sides.Study`), epoch by
epoch, in turns with and without a process that computes without end, by processes of one thread.
With two cores and three that want them a fair share is 1.5 times the time; what is above that is
waiting.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import sides
from figures import show

SIZE = 15
ROUNDS = 2


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
    turns: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = sides.make_data(Path(folder))
        with (
            sides.closing_at_sigterm(),
            sides.Study(data, 2 * SIZE, stack=SIZE, jobs=cores()) as study,
        ):
            study.turn()
            for _ in range(ROUNDS):
                turns.setdefault("idle_ms", []).append(study.turn())
                with busy_core():
                    turns.setdefault("busy_ms", []).append(study.turn())
    figures = {name: min(times) for name, times in turns.items()}
    return figures | {"busy_vs_idle": figures["busy_ms"] / figures["idle_ms"]}


def cores() -> int:
    """How many processes the command would take by itself."""
    return len(psutil.Process().cpu_affinity() or [0])


def main() -> None:
    """Measure and print, one figure a line."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    show(measure())


if __name__ == "__main__":
    main()
