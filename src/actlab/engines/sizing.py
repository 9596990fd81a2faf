"""How many runs make one stack: what fits into memory, and in long studies what is fastest, both measured."""

from __future__ import annotations

import copy
import gc
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from actlab.engines.devices import SMALL, threads, threads_for, wait_for
from actlab.engines.memory import PeakMemory, free_memory, keep_freed
from actlab.engines.packing import BEST_SIZE
from actlab.engines.settings import Settings
from actlab.engines.stacked import assemble
from actlab.studies.keys import identity, set_dotted
from actlab.studies.plan import SEED, Run

SIZES = (5, 15, 45, 150, 450)  # of stacks, that `fastest` times
WARM_UP = 4  # updates that are not timed
PLENTY = 16  # times the memory that like networks take, which no unit needs


def size_of(
    runs: Sequence[Run],
    most: int | None = None,
    by_time: bool = False,
    settings: Settings | None = None,
    known: dict[str, int] | None = None,
) -> int:
    """How many of some runs that can be stacked make one stack.

    Args:
        runs: that differ only in what members of a stack may differ in.
        most: the user's limit.
        by_time: time some sizes, instead of taking `BEST_SIZE`; pays in long studies.
        settings: how many processes there will be, and threads in each; by default one.
        known: what members of other stacks have been measured to take; see `fitting`.
    """
    settings = settings or Settings()
    wanted = min(most or len(runs), len(runs))
    if not by_time:
        wanted = min(wanted, most or BEST_SIZE)
    room = fitting(runs, wanted * settings.jobs, {} if known is None else known)
    wanted = min(wanted, max(1, room // settings.jobs))
    return fastest(runs, wanted, settings.threads) if by_time and most is None else max(1, wanted)


def fitting(runs: Sequence[Run], wanted: int, known: dict[str, int]) -> int:
    """How many members fit into half of the free memory, by what one more adds at the peak of an update.

    ``benchmarks/stacks.py`` measures what members of the MNIST classifier add.

    Args:
        runs: the members.
        wanted: more need not be looked for.
        known: what one more adds, by all of a config but unit, dropout and optimiser. Where there is room for
            `PLENTY` times as much, another unit in a like network is not measured; what is measured is entered.
    """
    room, like = free_memory() / 2, _without_unit(runs[0])
    if PLENTY * known.get(like, math.inf) * wanted < room:
        return wanted
    known[like] = bytes_a_member(runs, enough=room / wanted)
    return max(1, int(room / max(1, known[like])))


def _without_unit(run: Run) -> str:
    """A run's config, but for its seed, unit, dropout and optimiser, as text."""
    config = copy.deepcopy(run.config)
    for key in (SEED, "model.activation", "model.network.dropout", "model.optimizer", "model.schedules"):
        set_dotted(config, key, None)
    return identity(config)


def bytes_a_member(runs: Sequence[Run], enough: float = 0) -> int:
    """What one more member adds to the peak of memory: measured as two updates of one and of two members.

    Args:
        runs: at least two that can be stacked.
        enough: bytes; where two members with all else take less, that is returned and one is not measured.
    """
    peaks: list[int] = []
    for size in (2, 1):
        with TemporaryDirectory() as folder, PeakMemory() as peak:
            trainer, task, data = assemble(_short(runs[:size], 2), _FromHere(peak), Path(folder))
            trainer.fit(task, datamodule=data)
        peaks.append(peak.peak)
        if peaks[0] < enough:
            return peaks[0]
    return peaks[0] - peaks[1]


class _FromHere(Checkpoint):
    """Begins to look for the peak when training starts: reading the data has one of its own.

    Networks that assembly made and Python has yet to collect would count in one measurement, not in the other.
    """

    def __init__(self, peak: PeakMemory) -> None:
        self.peak = peak

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Forget what was before."""
        gc.collect()
        self.peak.peak = self.peak.now


class Stopwatch(Checkpoint):
    """Times every update."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Note the time."""
        wait_for(trainer.strategy.root_device)
        self.times.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Of the fastest update: what else the computer does only adds time."""
        return min(after - before for before, after in pairwise(self.times[WARM_UP:]))


def fastest(runs: Sequence[Run], most: int, number: int = 0) -> int:
    """The size of stacks that takes the least time an update and run, by a few updates of each.

    Args:
        runs: that may be stacked.
        most: how many fit into memory.
        number: of threads; 0 leaves it to the number of samples.

    Returns:
        One of `SIZES`, or ``most``.
    """
    sizes = sorted({most, *(size for size in SIZES if size < most)})
    if len(sizes) == 1:
        return most
    keep_freed()
    taken: dict[int, float] = {}
    for size in sizes:
        watch = Stopwatch()
        with TemporaryDirectory() as folder:
            trainer, task, data = assemble(_short(runs[:size], WARM_UP + 16), watch, Path(folder))
            with threads(number or threads_for(size * getattr(data, "batch_size", SMALL))):
                trainer.fit(task, datamodule=data)
        taken[size] = watch.seconds / size
    return min(taken, key=taken.__getitem__)


def _short(runs: Sequence[Run], updates: int) -> list[Run]:
    """The runs, cut to some updates without evaluation."""
    changes = {"max_steps": updates, "max_epochs": 1000, "limit_val_batches": 0, "callbacks": None}
    short = []
    for run in runs:
        config = copy.deepcopy(run.config)
        for key, value in changes.items():
            set_dotted(config, f"trainer.{key}", value)
        short.append(replace(run, config=config))
    return short
