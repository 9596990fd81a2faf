"""Display what a study is doing: its phase, runs done, time left, best value so far."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from actlab.engines.jobs import Job
from actlab.engines.time_left import TimeLeft
from actlab.reports.notes import duration
from actlab.runtime import signals
from actlab.storage import series
from actlab.storage.files import DamagedError
from actlab.studies.folders import FINISHED, RunFolder
from actlab.studies.plan import Run, Selection

LINE_EVERY = 10.0  # seconds between lines if there is no terminal


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

    The time left is that of the ``jobs``, of which ``processes`` are trained at a time. The best value shown is
    that of the metric of ``select``.
    """

    def __init__(
        self, runs: Sequence[Run], jobs: Sequence[Job], root: Path, select: Selection, processes: int = 1
    ) -> None:
        self.root, self.select = root, select
        self.runs = {run.id: run for run in runs}
        self.fractions = dict.fromkeys(self.runs, 0.0)
        self.ended, self.done, self.latest = 0, 0.0, ""
        self.unread: list[Run] = []  # runs that reached 1, until their results are read
        self.best: tuple[float, str] | None = None
        self.start = self.last_line = time.monotonic()
        self.time_left, self.left, self.estimated = TimeLeft(jobs, self.runs, processes), "", -math.inf
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[ended]} of {task.total} runs,"),
            TimeElapsedColumn(),
            TextColumn("elapsed{task.fields[rest]}"),
            disable=not sys.stdout.isatty(),
        )
        self.task = self.bar.add_task("training", total=len(runs), ended=0, rest="")

    def __enter__(self) -> Display:
        self.bar.start()
        signals.tell(self.tick)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signals.tell(None)
        self.bar.stop()

    def __call__(self, run: Run, fraction: float) -> None:
        """Update the completed fraction of a run, from 0 to 1."""
        now = time.monotonic()
        self.time_left.add(run, fraction, now)
        before = self.fractions.get(run.id, fraction)
        if before == fraction:  # or a finished member of a stack
            return
        self.fractions[run.id] = fraction
        self.done += fraction - before
        self.ended += (fraction >= 1) - (before >= 1)
        self.unread += [run] if fraction >= 1 else []
        epoch = f"{fraction * run.epochs:.2f}".rstrip("0").rstrip(".") if run.epochs else ""
        self.latest = f"{run.id}, " + (f"epoch {epoch} of {run.epochs}" if epoch else f"{100 * fraction:.0f} %")
        self._show(now)

    def tick(self, parts: signals.Parts) -> None:
        """Show the time that has passed; ``parts`` are of runs that this process trains itself."""
        for name, fraction in parts:
            self(self.runs[name], fraction)
        if self.ended < len(self.runs):
            self._show(time.monotonic())

    def _show(self, now: float) -> None:
        if now - self.estimated >= signals.EVERY:
            self.left, self.estimated = self.time_left.text(), now
        over = self.ended == len(self.runs)
        rest = f", {self.left}" * (bool(self.left) and not over) + self._best()
        description = self.latest or "training"
        done = round(self.done, 6)
        self.bar.update(self.task, completed=done, description=description, ended=self.ended, rest=rest)
        if self.bar.disable and (now - self.last_line > LINE_EVERY or over):
            self.last_line = now
            rest += f"; now {self.latest}" if self.latest else ""
            passed = f"{duration(now - self.start)} elapsed"
            print(f"{self.ended} of {len(self.runs)} runs done, {passed}{rest}", flush=True)

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
        value, sign = summed.read(self.select.at, self.select.mode), -1 if self.select.mode == "max" else 1
        if self.best is None or sign * value < sign * self.best[0]:
            self.best = value, folder.run.id
