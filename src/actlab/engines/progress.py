"""Display what a study is doing: its phase, runs done, time left, best value so far."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from actlab.analysis.wording import duration
from actlab.runtime import signals
from actlab.storage import series
from actlab.storage.files import DamagedError
from actlab.studies.plan import Run, Selection
from actlab.studies.run_folder import RunFolder
from actlab.studies.states import FINISHED

LINE_EVERY = 10.0  # seconds between lines if there is no terminal
SPEED_OVER = (
    1800.0  # seconds over which the speed is measured, at most; rich keeps the last 1000 updates
)
# Below so many seconds, times left are rounded to these
_STEPS = (
    (10, 1),
    (60, 5),
    (600, 60),
    (3600, 300),
)


@contextmanager
def phase(text: str) -> Iterator[None]:
    """Show what happens within the block: a spinner on a terminal, otherwise a line."""
    if sys.stdout.isatty():
        with Console().status(text):
            yield
    else:
        print(f"{text} …", flush=True)
        yield


class Display:
    """A progress bar on a terminal; without one, a line every `LINE_EVERY` seconds, also without progress.

    The unit of the bar, and of the time left, is one epoch of one run; a run of unknown length
    counts as one. The best value shown is that of the metric of ``select``.
    """

    def __init__(self, runs: Sequence[Run], root: Path, select: Selection) -> None:
        self.root, self.select = root, select
        self.runs = {run.id: run for run in runs}
        self.fractions: dict[str, float] = {}
        self.ended, self.failed, self.done, self.latest = 0, 0, 0.0, ""
        self.early: list[float] = []  # epochs of runs that were ended before their last one
        self.unread: list[Run] = []  # runs that reached 1, until their results are read
        self.best: tuple[float, str] | None = None
        self.start = self.last_line = self.counted = time.monotonic()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[ended]},"),
            TimeElapsedColumn(),
            TextColumn("elapsed{task.fields[rest]}"),
            disable=not sys.stdout.isatty(),
            get_time=time.monotonic,
            speed_estimate_period=SPEED_OVER,
        )
        self.bar.add_task(
            "training", total=sum(run.epochs or 1 for run in runs), ended=self._count(), rest=""
        )
        (self.task,) = self.bar.tasks

    def __enter__(self) -> Display:
        self.bar.start()
        signals.tell(self.tick)
        return self

    def __exit__(self, *_: object) -> None:
        signals.tell(None)
        self.bar.stop()

    def update(self, run: Run, fraction: float) -> None:
        """Update the completed fraction of a run, from 0 to 1."""
        first, before = run.id not in self.fractions, self.fractions.get(run.id, 0.0)
        self.fractions[run.id] = fraction
        if before == fraction:
            return
        gained = (fraction - before) * (run.epochs or 1)
        self.done += gained
        # Trained by an earlier start, or ended early
        if first or (fraction >= 1 and round(gained, 6) > 1):
            self.task.completed += gained  # unlike `update`, without effect on the speed
        self.ended += (fraction >= 1) - (before >= 1)
        self.unread += [run] if fraction >= 1 else []
        epoch = f"{fraction * run.epochs:.2f}".rstrip("0").rstrip(".") if run.epochs else ""
        self.latest = f"{run.id}, " + (
            f"epoch {epoch} of {run.epochs}" if epoch else f"{100 * fraction:.0f} %"
        )
        self._show(time.monotonic())

    def tick(self, parts: signals.Parts) -> None:
        """Update the completed fractions of runs, from 0 to 1, and show the time that has passed."""
        for name, fraction in parts:
            if name in self.runs:  # a member of a stack may have finished in an earlier start
                self.update(self.runs[name], fraction)
        if self.ended < len(self.runs):
            self._show(time.monotonic())

    def _show(self, now: float) -> None:
        over = self.ended == len(self.runs)
        # The members of a stack report one after the other
        if over or now - self.counted >= signals.EVERY:
            self.bar.update(self.task.id, completed=self.task.total if over else self.done)
            self.counted = now
        rest = ("" if over else self._left()) + self._best()
        self.bar.update(
            self.task.id, description=self.latest or "training", ended=self._count(), rest=rest
        )
        if self.bar.disable and (now - self.last_line > LINE_EVERY or over):
            self.last_line = now
            rest += f"; now {self.latest}" if self.latest else ""
            passed = f"{duration(now - self.start)} elapsed"
            print(f"{self._count()}, {passed}{rest}", flush=True)

    def _count(self) -> str:
        """Return how many runs have ended as text: ``4 of 6 runs ended (1 failed)``."""
        how = f"ended ({self.failed} failed)" if self.failed else "done"
        return f"{self.ended} of {len(self.runs)} runs {how}"

    def _left(self) -> str:
        """Return the time left as text, ``, about 5 min left``; empty before a speed was measured."""
        seconds = self.task.time_remaining
        if not seconds:
            return ""
        step = next((step for limit, step in _STEPS if seconds < limit), 600)
        return f", about {duration(max(1, round(seconds / step)) * step)} left"

    def _best(self) -> str:
        """Return the best value of all finished runs as text; empty before a run has finished."""
        for run in [*self.unread]:
            folder = RunFolder(self.root, run)
            if folder.finished:  # the result is written shortly after the last epoch
                self.unread.remove(run)
                self._update_best(folder)
            elif folder.failure_file.exists():
                self.unread.remove(run)
                self.failed, self.latest = self.failed + 1, f"{run.id}, failed"
        if self.best is None:
            return ""
        return f"; best {self.select.metric} {self.best[0]:.4g}: {self.best[1]}"

    def _update_best(self, folder: RunFolder) -> None:
        try:
            result = folder.result()
        except DamagedError:
            return  # reported when the table is read
        epochs = folder.run.epochs or 0
        epoch = result.get("last_good_epoch", epochs)
        if result["status"] == FINISHED and epoch < epochs:  # by early stopping, for example
            self.early.append(epoch)
            self.latest = f"{folder.id}, ended after epoch {epoch:g} of {epochs}"
        summed = series.from_entry(result["summary"]).get((self.select.metric, ""))
        if result["status"] != FINISHED or summed is None or not self.select.mode:
            return
        value, sign = (
            summed.read(self.select.at, self.select.mode),
            -1 if self.select.mode == "max" else 1,
        )
        if self.best is None or sign * value < sign * self.best[0]:
            self.best = value, folder.id
