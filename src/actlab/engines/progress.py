"""Display what a study is doing: its phase, runs done, time left, best value so far."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from actlab.storage import series
from actlab.storage.files import DamagedError
from actlab.studies.folders import FINISHED, RunFolder
from actlab.studies.plan import Run, Selection

LINE_EVERY = 15.0  # seconds between lines if there is no terminal


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
    """A progress bar on a terminal; without one, a line every `LINE_EVERY` seconds.

    The time left is extrapolated from the first reported epoch on, because starting processes and reading data
    take time that says nothing about epochs. The best value shown is that of the metric of ``select``.
    """

    def __init__(self, runs: Sequence[Run], root: Path, select: Selection) -> None:
        self.root, self.select = root, select
        self.fractions = {run.id: 0.0 for run in runs}
        self.unread: list[Run] = []  # runs that reached 1, until their results are read
        self.best: tuple[float, str] | None = None
        self.start = self.last_line = time.monotonic()
        self.first: tuple[float, float] | None = None  # time of the first report, and runs done then
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs,"),
            TimeElapsedColumn(),
            TextColumn("elapsed,"),
            TimeRemainingColumn(),
            TextColumn("left{task.fields[best]}"),
            disable=not sys.stdout.isatty(),
        )
        self.task = self.bar.add_task("training", total=len(runs), best="")

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def __call__(self, run: Run, fraction: float) -> None:
        """Update the completed fraction of a run, from 0 to 1."""
        if self.fractions.get(run.id, fraction) == fraction:  # or a finished member of a stack
            return
        self.fractions[run.id] = fraction
        self.unread += [run] if fraction >= 1 else []
        ended, done = sum(part >= 1 for part in self.fractions.values()), sum(self.fractions.values())
        best = self._best()
        epoch = f", epoch {fraction * run.epochs:.0f} of {run.epochs}" if run.epochs else ""
        self.bar.update(self.task, completed=done, description=f"{run.id}{epoch}", best=best)
        now = time.monotonic()
        self.first = self.first or (now, done)
        if self.bar.disable and (now - self.last_line > LINE_EVERY or ended == len(self.fractions)):
            self.last_line = now
            print(
                f"{ended} of {len(self.fractions)} runs done, {now - self.start:.0f} s elapsed"
                f"{self._left(now, done)}{best}; now {run.id}{epoch}",
                flush=True,
            )

    def _left(self, now: float, done: float) -> str:
        """Return the time left as text; empty before there is anything to extrapolate from."""
        begin, before = self.first or (now, done)
        if done <= before:
            return ""
        return f", about {(now - begin) * (len(self.fractions) - done) / (done - before):.0f} s left"

    def _best(self) -> str:
        """Return the best value of all finished runs as text; empty before a run has finished."""
        for run in [*self.unread]:
            folder = RunFolder(self.root, run)
            if folder.finished:  # the result is written shortly after the last epoch
                self.unread.remove(run)
                self._update_best(folder)
        if self.best is None:
            return ""
        return f"; best {self.select.metric} {self.best[0]:.4g}: {self.best[1]}"

    def _update_best(self, folder: RunFolder) -> None:
        try:
            result = folder.result()
        except DamagedError:
            return  # reported when the table is read
        summed = series.from_entry(result["summary"]).get((self.select.metric, ""))
        if result["status"] != FINISHED or summed is None:
            return
        value, sign = summed.read("best", self.select.mode), -1 if self.select.mode == "max" else 1
        if self.best is None or sign * value < sign * self.best[0]:
            self.best = value, folder.run.id
