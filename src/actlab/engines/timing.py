"""Time a study's own updates before it trains: alone and in stacks.

The sides take turns, each under a Trainer with the study's batch size and callbacks. The fastest
update counts: other programs only add time. No digit depends on what is chosen.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from actlab.random.positions import BatchBlock
from actlab.runtime import signals
from actlab.runtime.accidents import check_device
from actlab.runtime.devices import keep_freed, peak_share, threads, wait_for
from actlab.runtime.quiet import quiet
from actlab.stacking.building import assemble
from actlab.studies.plan import Run

CHANCE = 0.05  # share of a stack's time that a smaller one must save
WORTH = 60.0  # seconds of training alone below which runs are stacked untimed
ROUNDS, UPDATES = 2, 10  # fits of each side, and timed updates of a fit
BRIEF = 0.3  # seconds after which a fit ends early
# Little evaluation, which no update contains.
_BARE = {
    "limit_val_batches": 1,
    "limit_test_batches": 1,
    "num_sanity_val_steps": 0,
    "logger": False,
}


class _EnoughError(Exception):
    """Ends a fit whose updates have been timed."""


class _Clock(Checkpoint):
    """Times the blocks of updates, from the second on; the first prepares memory and kernels.

    On a GPU it begins when updates are no longer compared with their CUDA graph.
    """

    blocks = UPDATES

    def __init__(self) -> None:
        self.fastest = math.inf  # seconds of an update of the fastest block
        self.start: float | None = None  # of the first timed block
        self._is_warm = False
        self._block_start = 0.0
        self._block_size = 0  # updates
        self._updates = 0  # timed so far

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, _: int
    ) -> None:
        # Let the first block pass, and blocks whose updates are compared with their
        # graph.
        if not self._is_warm:
            self._is_warm = True
            return
        if self.start is None and not getattr(module, "settled", True):
            return

        # Time the block that has ended.
        wait_for(module.device)
        now = time.perf_counter()
        if self.start is None:
            self.start = now
        else:
            self._updates += self._block_size
            self.fastest = min(
                self.fastest, (now - self._block_start) / self._block_size
            )
            if self._updates >= UPDATES or now - self.start > BRIEF:
                raise _EnoughError

        self._block_start = now
        self._block_size = len(batch) if isinstance(batch, BatchBlock) else 1


def best_size(
    runs: Sequence[Run], updates: int, largest: int, forms: bool, sharing: int = 1
) -> int:
    """Return the size of stacks in which runs train fastest: ``largest``, 5 or 1.

    ``updates`` are the updates of one epoch. ``sharing`` is the number of processes that share a
    GPU, whose memory must hold a stack of each. Runs that train for less than `WORTH` seconds are
    stacked untimed.
    """
    # Stack short runs untimed.
    epochs = sum(run.epochs or 1 for run in runs)
    if fastest(runs[:1], forms) * updates * epochs < WORTH:
        return largest

    # Time each size, in turns.
    sizes = sorted({largest, min(5, largest), 1}, reverse=True)
    seconds = dict.fromkeys(sizes, math.inf)
    for _ in range(ROUNDS):
        for size in sizes:
            signals.check()
            seconds[size] = min(seconds[size], fastest(runs[:size], forms, sharing))
    return chosen(seconds)


def chosen(seconds: Mapping[int, float]) -> int:
    """Return the best size of stacks, given the seconds of an update by the size of a stack.

    A smaller stack must save more than `CHANCE`, so that chance does not choose. Seconds are
    infinite for a size that could not be timed.

    >>> chosen({15: 15.0, 5: 4.9, 1: 1.0})
    15
    >>> chosen({15: 10.0, 5: 3.0, 1: 1.0})
    5
    >>> chosen({15: 15.9, 1: 1.0})
    1
    """
    best = max(seconds)
    for size in sorted(seconds, reverse=True):
        if seconds[size] / size < (1 - CHANCE) * seconds[best] / best:
            best = size
    return best


def fastest(runs: Sequence[Run], forms: bool, sharing: int = 1) -> float:
    """Return the seconds of the fastest update of runs.

    Infinite if the runs fail, or fill a GPU that is shared.
    """
    clock = _Clock()
    try:
        _fit(runs, clock, forms or len(runs) > 1)
    except _EnoughError:
        pass
    except Exception as error:
        # Also of third-party code, whose errors training reports.
        check_device(error)
        clock.fastest = math.inf
    finally:
        gc.collect()
    is_too_large = peak_share() * sharing > 1
    return math.inf if is_too_large else clock.fastest


def _fit(runs: Sequence[Run], clock: _Clock, stacked: bool) -> None:
    configs = []
    for run in runs:
        settings = run.config.get("trainer", {})
        configs.append({**run.config, "trainer": {**settings, **_BARE}})
    with TemporaryDirectory() as folder, quiet(), threads(1):
        keep_freed()
        trainer, task, data = assemble(configs, clock, Path(folder), stacked)
        trainer.fit(task, datamodule=data)
