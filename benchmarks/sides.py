"""Two trainings in turns: the engine as users get it, and JAX, each in a process of its own.

A turn is an epoch: updates, validations and test, checkpoints and records. The engine is ``actlab
study run`` itself, watched from outside: a run has finished an epoch when its ``metrics.csv``
grows. Between its turns its processes are stopped, by SIGSTOP, and the time that they stood still
is taken off, so start-up and compilation are paid once and sides that take turns meet the same load
of the machine.

All figures are milliseconds an update and run.
"""

from __future__ import annotations

import math
import re
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from actlab.datamodules import MNISTDataModule
from actlab.storage.resources import resource

TRAIN, VAL, TEST, BATCH = 13_750, 1_250, 2_500, 128  # a quarter of MNIST
UPDATES = TRAIN // BATCH
EPOCHS = 200  # of 107 updates: as many as the 50 epochs of the study. We stop it long before
POLL = 0.02  # seconds
PATIENCE = 900  # seconds that a turn may take
# What a study prints
_PLAN = re.compile(r"training (\d+) runs?(?: in (\d+) stacks?)?(?:, (\d+) processes)?")


class Side(ABC):
    """What trains, turn by turn."""

    @abstractmethod
    def turn(self) -> float:
        """Train an epoch; the first turn holds start-up and is not to be counted."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def closing_at_sigterm() -> Iterator[None]:
    """End this process in order on SIGTERM: a side that stands still would stay for ever."""

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def repeated(sample: str, folder: Path, times: int, **rows: int) -> Path:
    """Return the new folder with a bundled sample repeated, at most so many ``rows`` of a split."""
    folder.mkdir()
    for source in resource(f"data/samples/{sample}").rglob("*.parquet"):
        table = pa.concat_tables([pq.read_table(source)] * times)
        pq.write_table(
            table.slice(0, rows.get(source.name.partition("-")[0])), folder / source.name
        )
    return folder


def make_data(folder: Path) -> Path:
    """A quarter of MNIST in numbers, the bundled sample repeated: a hub folder and ``data.npz``."""
    hub = repeated("mnist", folder / "mnist", 3, train=TRAIN + VAL, test=TEST)
    data = MNISTDataModule(str(hub), validation=VAL, cache_dir=str(folder / "cache"))
    data.setup("fit")
    parts = {"train": data.train, "val": data.val, "test": data.test}
    arrays: dict[str, np.ndarray] = {}
    for name, part in parts.items():
        assert part is not None
        arrays |= {
            f"{name}_images": part.tensors[0].numpy(),
            f"{name}_labels": part.tensors[1].numpy(),
        }
    np.savez(folder / "data.npz", **arrays)
    return folder


class Jax(Side):
    """``jax_side.py`` in a process of its own."""

    def __init__(self, data: Path, members: int, dropout: float = 0.0) -> None:
        script = Path(__file__).with_name("jax_side.py")
        words = [sys.executable, str(script), str(data / "data.npz"), f"--members={members}"]
        self.members = members
        self.process = subprocess.Popen(
            [*words, f"--dropout={dropout}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def turn(self) -> float:
        """Ask for an epoch."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline()) / (UPDATES * self.members) * 1e3

    def close(self) -> None:
        """It ends with its input."""
        self.process.communicate()


def settings(
    data: Path, members: int, dropout: float = 0.0, epochs: int = EPOCHS
) -> dict[str, object]:
    """Return the changes to the study of Fig 2: so many seeds of one network in its first stage."""
    return {
        "data.dataset": str(data / "mnist"),
        "data.cache_dir": str(data / "cache"),
        "data.validation": VAL,
        "model.activation": "gelu",
        "model.network.dropout": dropout,
        "model.optimizer.lr": 1e-3,
        "trainer.max_epochs": epochs,
        "seeds": f"choose=100-{99 + members}",
    }


class Study(Side):
    """``actlab study run`` of seeds of one network, GELU and Adam.

    Args:
        data: what `make_data` made.
        members: number of runs.
        dropout: drop probability.
        stack: most runs in one stack.
        jobs: number of worker processes; None leaves the command's own default.
        epochs: of the runs; more than the turns take.
    """

    def __init__(
        self,
        data: Path,
        members: int,
        dropout: float = 0.0,
        stack: int | None = None,
        jobs: int | None = None,
        epochs: int = EPOCHS,
    ) -> None:
        stack = stack or members
        self.root = data / f"runs-{time.monotonic_ns()}"
        self.expected = 0  # runs that train at a time, once the study has said it
        # Of each run when its epochs ended, on a clock that stands still while the processes do.
        self.ticks: dict[Path, list[float]] = {}
        self.stood = self.since = 0.0
        words = [sys.executable, "-m", "actlab", "study", "run", "gelu_mnist_classifier"]
        words += [
            f"--set={key}={value}"
            for key, value in settings(data, members, dropout, epochs).items()
        ]
        words += [
            f"--runs-dir={self.root}",
            f"--max-stack={stack}",
            *([f"--jobs={jobs}"] if jobs else []),
        ]
        self.log = (data / f"{self.root.name}.log").open("w+")
        self.process = subprocess.Popen(words, stdout=self.log, stderr=self.log)

    def turn(self) -> float:
        """Go on until every run in progress has ended another epoch; nan if it was the first."""
        had, start = {path: len(ticks) for path, ticks in self.ticks.items()}, time.time()
        self._resume()
        while len(further := self._further(had)) < (self.expected or math.inf):
            if self.process.poll() is not None or time.time() - start > PATIENCE:
                raise RuntimeError(
                    "the study has ended, or hangs:\n"
                    f"{Path(self.log.name).read_text(encoding='utf-8')}"
                )
            time.sleep(POLL)
            self._look()
            self.expected = self.expected or self._at_a_time()
        self._pause()
        if any(had.get(path, 0) == 0 for path in further):
            return float("nan")
        return 1e3 / (UPDATES * sum(1 / self._epoch(path, had[path]) for path in further))

    def close(self) -> None:
        """Kill it; what it has written is of no further use."""
        for process in self._processes():
            process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def _at_a_time(self) -> int:
        """Return how many runs train at once, 0 before the first; timing may shrink stacks."""
        plan = _PLAN.search(Path(self.log.name).read_text(encoding="utf-8"))
        runs, stacks, processes = (
            (int(number or 1) for number in plan.groups()) if plan else (0, 1, 1)
        )
        return min(runs, processes * math.ceil(runs / stacks))

    def _further(self, had: Mapping[Path, int]) -> list[Path]:
        """Runs that have ended more epochs than they had."""
        return [path for path, ticks in self.ticks.items() if len(ticks) > had.get(path, 0)]

    def _epoch(self, path: Path, had: int) -> float:
        """Mean seconds of the epochs that a run has ended since it had so many."""
        ticks = self.ticks[path][had - 1 :]
        return (ticks[-1] - ticks[0]) / (len(ticks) - 1)

    def _look(self) -> None:
        """Note when rows were written last, where that has changed."""
        for path in self.root.glob("*/*/metrics.csv"):
            found, ticks = path.stat(), self.ticks.setdefault(path, [])
            at = found.st_mtime - self.stood
            recorded = path.read_text().count("\n") > 1  # more than the names of the columns
            if recorded and (not ticks or at > ticks[-1] + POLL):
                ticks.append(at)

    def _processes(self) -> list[psutil.Process]:
        if self.process.poll() is not None:
            return []
        first = psutil.Process(self.process.pid)
        return [first, *first.children(recursive=True)]

    def _pause(self) -> None:
        for process in self._processes():
            process.suspend()
        self.since = time.time()

    def _resume(self) -> None:
        if self.since:
            self.stood += time.time() - self.since
        for process in self._processes():
            process.resume()


def fastest(makers: Mapping[str, Callable[[], Side]], rounds: int) -> dict[str, float]:
    """The fastest turn of each side: what else the computer does only adds time.

    Args:
        makers: start the sides; one starts when the one before has warmed up.
        rounds: in which each side has a turn.
    """
    with ExitStack() as open_:
        open_.enter_context(closing_at_sigterm())
        sides = {}
        for name, make in makers.items():
            sides[name] = open_.enter_context(make())
            sides[name].turn()
        turns = [{name: side.turn() for name, side in sides.items()} for _ in range(rounds)]
    # A turn in which a further stack began is nan.
    return {name: float(np.nanmin([turn[name] for turn in turns])) for name in sides}
