"""What a person sees while a study runs: runs done, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from actlab.studies.plan import Run

LINE_EVERY = 15.0  # seconds between lines where there is no terminal


class Display:
    """A bar on a terminal, a line now and then elsewhere; call it with a run and the fraction done of it."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.fractions = {run.id: 0.0 for run in runs}
        self.start = self.last_line = time.monotonic()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs,"),
            TimeElapsedColumn(),
            TextColumn("gone,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            disable=not sys.stdout.isatty(),
        )
        self.task = self.bar.add_task("", total=len(runs))

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
        self.bar.update(self.task, completed=done, description=run.id)
        now = time.monotonic()
        if self.bar.disable and (now - self.last_line > LINE_EVERY or finished == len(self.fractions)):
            self.last_line = now
            left = (now - self.start) * (len(self.fractions) - done) / max(done, 1e-9)
            print(
                f"{finished} of {len(self.fractions)} runs done, {now - self.start:.0f} s gone, "
                f"about {left:.0f} s left",
                flush=True,
            )
