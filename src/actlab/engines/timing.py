"""Time a study's own updates before it trains: alone and in stacks, and by each matmul backend.

The sides take turns, each under a Trainer with the study's batch size, callbacks and threads. The fastest
update counts: other programs only add time. Called in a process of its own, which switches the backend.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from actlab import experiments
from actlab.analysis.wording import plural
from actlab.engines.settings import UNTIMED, Decision, Settings
from actlab.errors import described
from actlab.random.positions import BatchBlock
from actlab.runtime import matmul, signals
from actlab.runtime.accidents import check_device, is_accident
from actlab.runtime.devices import SMALL, keep_freed, threads, threads_for, wait_for
from actlab.runtime.quiet import quiet
from actlab.stacking.building import assemble
from actlab.studies.plan import MAX_STACK, Run

Side = TypeVar("Side")
SIZES = (MAX_STACK, 5, 1)
FASTER = 0.9  # largest time of a run in a stack, as a share of the time alone
WORTH = 60.0  # seconds of training alone below which a group is stacked untimed
ROUNDS, UPDATES = 2, 10  # fits of each side, and timed updates of a fit
BRIEF = 0.3  # seconds after which a fit ends early
# Little evaluation, which no update contains.
_BARE = {"limit_val_batches": 1, "limit_test_batches": 1, "num_sanity_val_steps": 0, "logger": False}


class _EnoughError(Exception):
    """Ends a fit whose updates have been timed."""


class _Clock(Checkpoint):
    """Times the blocks of updates, from the second on; the first prepares memory and kernels.

    On a GPU it begins when updates are no longer compared with their CUDA graph.
    """

    blocks = UPDATES

    def __init__(self) -> None:
        self.seconds: list[float] = []  # of an update of each block
        self.starts: list[float] = []
        self.sizes: list[int] = []

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, _: int) -> None:
        if len(self.starts) == 1 and not getattr(module, "settled", True):
            return
        wait_for(module.device)
        now = time.perf_counter()
        if len(self.starts) > 1:
            self.seconds.append((now - self.starts[-1]) / self.sizes[-1])
            if sum(self.sizes[1:]) >= UPDATES or now - self.starts[1] > BRIEF:
                raise _EnoughError
        self.starts.append(now)
        self.sizes.append(len(batch) if isinstance(batch, BatchBlock) else 1)

    @property
    def fastest(self) -> float:
        """Seconds of an update of the fastest block; infinite if none was timed."""
        return min(self.seconds, default=math.inf)


def chosen(seconds: Mapping[int, float]) -> Decision:
    """Return the size of stacks, given the seconds of an update by the size of a stack, 1 for a run alone.

    Seconds are infinite for a size that could not be timed.

    >>> chosen({15: 9.0, 5: 4.0, 1: 1.0}), chosen({15: 15.75, 5: 5.5, 1: 1.0})["reason"]
    ({'size': 0, 'reason': ''}, 'a stack of 15 takes 1.05 of the time alone')
    """
    stacks = {size: taken for size, taken in seconds.items() if size > 1 and taken < math.inf}
    shares = {size: taken / size / seconds[1] for size, taken in stacks.items()}
    best = min(shares, key=lambda size: shares[size], default=max(seconds))
    if shares.get(best, 0.0) <= FASTER:
        return Decision(size=0 if best == max(seconds) else best, reason="")
    return Decision(size=1, reason=f"a stack of {best} takes {shares[best]:.2f} of the time alone")


def measure(groups: Mapping[str, Sequence[Run]], settings: Settings) -> Settings:
    """Return the settings with a decision for each group of runs, and with a matmul backend if it is untimed.

    ``groups`` are runs that can be stacked, by key; under the key "" a run that cannot. The backend is chosen
    by the updates of the group with most runs.
    """
    keep_freed()
    gc.freeze()  # only the objects of each fit are collected after it
    tried = {key: _decision(runs, settings) for key, runs in groups.items() if key}
    decisions = {key: decision for key, decision in tried.items() if decision is not None}
    products = settings.products
    if products == UNTIMED:
        key, runs = max(groups.items(), key=lambda item: len(item[1]))
        size = decisions[key]["size"] if key in decisions else 0
        products = _backend(runs[: size or MAX_STACK if key else 1], settings)
    return replace(settings, stacks={**settings.stacks, **decisions}, products=products)


def _decision(runs: Sequence[Run], settings: Settings) -> Decision | None:
    experiment = experiments.build(runs[0].config)
    updates = sum((run.epochs or 1) * (experiment.updates_per_epoch() or 1) for run in runs)
    if fastest(runs[:1], settings) * updates < WORTH:
        return Decision(size=0, reason="")
    sizes = sorted({min(size, len(runs)) for size in SIZES}, reverse=True)
    seconds = _in_turns(sizes, lambda size: fastest(runs[:size], settings))
    return None if any(map(math.isnan, seconds.values())) else chosen(seconds)


def _backend(runs: Sequence[Run], settings: Settings) -> str:
    """Return the fastest matmul backend among those that are as exact as the default one."""

    def seconds_by(route: str) -> float:
        matmul.use(route)
        return fastest(runs, settings)

    seconds = _in_turns(matmul.exact(), seconds_by)
    best = min(seconds, key=lambda route: seconds[route])
    return best if seconds[best] <= matmul.FASTER * seconds[matmul.DEFAULT] else matmul.DEFAULT


def _in_turns(sides: Sequence[Side], seconds: Callable[[Side], float]) -> dict[Side, float]:
    """Return the least seconds of each side over `ROUNDS`; a side that fails takes no further part."""
    fewest = {side: seconds(side) for side in sides}
    for _ in range(ROUNDS - 1):
        for side in [side for side, least in fewest.items() if least < math.inf]:
            signals.check()
            fewest[side] = min(fewest[side], seconds(side))
    return fewest


def fastest(runs: Sequence[Run], settings: Settings) -> float:
    """Return the seconds of the fastest update of runs; infinite if they fail, nan after an accident."""
    clock = _Clock()
    try:
        _fit(runs, clock, settings)
    except _EnoughError:
        pass
    except Exception as error:  # also of third-party code, whose errors training reports
        check_device(error)
        if is_accident(error):
            print(f"an update of {plural(len(runs), 'run')} could not be timed: {described(error, 100)}")
            return math.nan
        return math.inf
    finally:
        gc.collect()
    return clock.fastest


def _fit(runs: Sequence[Run], clock: _Clock, settings: Settings) -> None:
    configs = [{**run.config, "trainer": {**run.config.get("trainer", {}), **_BARE}} for run in runs]
    with TemporaryDirectory() as folder, quiet():
        trainer, task, data = assemble(configs, clock, Path(folder))
        samples = 0 if len(runs) > 1 else getattr(data, "batch_size", None) or SMALL
        with threads(settings.threads or threads_for(samples)):
            trainer.fit(task, datamodule=data)
