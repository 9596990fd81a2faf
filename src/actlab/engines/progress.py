"""What a person sees while a study runs: runs done, time left, the best value so far."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

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

LINE_EVERY = 15.0  # seconds between lines where there is no terminal


class Display:
    """A bar on a terminal, a line now and then elsewhere; call it with a run and the fraction done of it.

    Args:
        runs: those that are trained.
        root: the study's folder.
        select: the metric whose best value is shown.
    """

    def __init__(self, runs: Sequence[Run], root: Path, select: Selection) -> None:
        self.root, self.select = root, select
        self.fractions = {run.id: 0.0 for run in runs}
        self.unread = {run.id: run for run in runs}
        self.best: tuple[float, str] | None = None
        self.start = self.last_line = time.monotonic()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs,"),
            TimeElapsedColumn(),
            TextColumn("gone,"),
            TimeRemainingColumn(),
            TextColumn("left{task.fields[best]}"),
            disable=not sys.stdout.isatty(),
        )
        self.task = self.bar.add_task("", total=len(runs), best="")

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def __call__(self, run: Run, fraction: float) -> None:
        """Take note that a fraction of a run is done."""
        if self.fractions.get(run.id) == fraction:
            return
        self.fractions[run.id] = fraction
        done = sum(self.fractions.values())
        finished = sum(f >= 1 for f in self.fractions.values())
        best = self._best()
        self.bar.update(self.task, completed=done, description=run.id, best=best)
        now = time.monotonic()
        if self.bar.disable and (now - self.last_line > LINE_EVERY or finished == len(self.fractions)):
            self.last_line = now
            left = (now - self.start) * (len(self.fractions) - done) / max(done, 1e-9)
            print(
                f"{finished} of {len(self.fractions)} runs done, {now - self.start:.0f} s gone, "
                f"about {left:.0f} s left{best}",
                flush=True,
            )

    def _best(self) -> str:
        """The best value of a run that has ended, in words; empty as long as there is none."""
        ended = [run for run in self.unread.values() if self.fractions[run.id] >= 1]
        for run in ended:
            folder = RunFolder(self.root, run)
            if folder.finished:  # its result is written a moment after its last epoch
                del self.unread[run.id]
                self._enter(folder)
        if self.best is None:
            return ""
        return f"; best {self.select.metric} {self.best[0]:.4g}: {self.best[1]}"

    def _enter(self, folder: RunFolder) -> None:
        """Take note of a finished run's best value."""
        try:
            result = folder.result()
        except DamagedError:
            return  # the table will say so
        summed = series.from_entry(result.get("summary", {})).get((self.select.metric, ""))
        if result["status"] != FINISHED or summed is None:
            return
        value, sign = summed.read("best", self.select.mode), -1 if self.select.mode == "max" else 1
        if self.best is None or sign * value < sign * self.best[0]:
            self.best = value, folder.run.id
