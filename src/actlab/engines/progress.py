"""Display what a study is doing: its phase, ``16 of 75 runs, 1 min, about 4 min left``."""

from __future__ import annotations

import math
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
# Seconds over which the speed is measured, at most; rich stores the last 1000 updates
SPEED_OVER = 1800.0
# Below so many seconds, times left are rounded to these; longer ones to the last
_STEPS = ((10, 1), (60, 5), (600, 60), (3600, 300), (math.inf, 600))


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
    """The progress of runs in training, with the time left and the best value so far.

    On a terminal it is a bar; elsewhere a line every `LINE_EVERY` seconds, also without progress.
    The bar and the time left count epochs of runs; a run of unknown length counts as one epoch. The
    display reads the results of runs that have ended; it does not decide what happens to a run.

    Args:
        runs: the runs in training.
        root: folder of the study.
        select: the metric whose best value is shown if ``verbose``.
        verbose: whether to show the best value so far, and the latest run with its epoch, too.
    """

    def __init__(
        self, runs: Sequence[Run], root: Path, select: Selection, verbose: bool = False
    ) -> None:
        # The runs, and the rule for the best of them
        self.root = root
        self.select = select
        self.verbose = verbose
        self.runs = {run.id: run for run in runs}

        # How far the runs are
        self.fractions: dict[str, float] = {}  # by id
        self.done = 0.0  # epochs of all runs
        self.ended = 0  # runs
        self.failed = 0  # runs
        self.early: list[
            float
        ] = []  # epochs of runs that ended before their last epoch
        self.latest = ""  # run that has reported last, in words
        self.unread: list[Run] = []  # ended runs whose results are not read yet
        self.best: tuple[float, str] | None = None  # value and id

        # When something was shown
        self.start = time.monotonic()
        self.last_line = self.start
        self.counted = self.start

        # The bar
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[ended]},"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[suffix]}"),
            disable=not sys.stdout.isatty(),
            get_time=time.monotonic,
            speed_estimate_period=SPEED_OVER,
        )
        epochs = sum(run.epochs or 1 for run in runs)
        self.bar.add_task("training", total=epochs, ended=self._count(), suffix="")
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
        # Only a changed fraction needs an update
        is_new = run.id not in self.fractions
        before = self.fractions.get(run.id, 0.0)
        self.fractions[run.id] = fraction
        if fraction == before:
            return

        # Count epochs
        gained = (fraction - before) * (run.epochs or 1)
        self.done += gained
        has_ended = fraction >= 1
        # Trained by an earlier start, or ended early
        if is_new or (has_ended and round(gained, 6) > 1):
            # Unlike `update`, this leaves the speed as it is.
            self.task.completed += gained

        # Count runs, of which one that failed may be tried again
        if has_ended and before < 1:
            self.ended += 1
        elif before >= 1 and not has_ended:
            self.ended -= 1
        if has_ended:
            self.unread.append(run)

        self.latest = f"{run.id}, {_position(run, fraction)}"
        self._show(time.monotonic())

    def tick(self, parts: signals.Parts) -> None:
        """Update the completed fractions of runs, from 0 to 1, and show the elapsed time."""
        for name, fraction in parts:
            if name in self.runs:
                # A member of a stack may have finished in an earlier start.
                self.update(self.runs[name], fraction)
        if self.ended < len(self.runs):
            self._show(time.monotonic())

    def _show(self, now: float) -> None:
        """Move the bar; print a line if there is no terminal and the last line is old."""
        is_over = self.ended == len(self.runs)

        # The members of a stack report one after the other; wait for the last one
        if is_over or now - self.counted >= signals.EVERY:
            completed = self.task.total if is_over else self.done
            self.bar.update(self.task.id, completed=completed)
            self.counted = now

        # Describe what is being trained
        self._read_results()
        suffix = "" if is_over else self._time_left()
        count = self._count()
        description = "training"
        if self.verbose:
            suffix += self._best()
            description = self.latest or description
        self.bar.update(
            self.task.id, description=description, ended=count, suffix=suffix
        )

        # Without a terminal, print a line
        if self.bar.disable and (is_over or now - self.last_line > LINE_EVERY):
            self.last_line = now
            if self.verbose and self.latest:
                suffix += f"; now {self.latest}"
            print(f"{count}, {duration(now - self.start)}{suffix}", flush=True)

    def _count(self) -> str:
        """Return how many runs have ended as text: ``4 of 6 runs (1 failed)``."""
        count = f"{self.ended} of {len(self.runs)} runs"
        if self.failed:
            return f"{count} ({self.failed} failed)"
        return count

    def _time_left(self) -> str:
        """Return ``, about 5 min left`` as text; empty before a speed was measured."""
        seconds = self.task.time_remaining
        if not seconds:
            return ""

        step = next(step for limit, step in _STEPS if seconds < limit)
        rounded = max(1, round(seconds / step)) * step
        return f", about {duration(rounded)} left"

    def _read_results(self) -> None:
        """Read the results of ended runs, which are written shortly after the last epochs."""
        for run in list(self.unread):
            folder = RunFolder(self.root, run)
            if folder.finished:
                self.unread.remove(run)
                self._read_result(folder)
            elif folder.failure_file.exists():
                self.unread.remove(run)
                self.failed += 1
                self.latest = f"{run.id}, failed"

    def _best(self) -> str:
        """Return the best value of all finished runs as text; empty before a run has finished."""
        if self.best is None:
            return ""
        value, name = self.best
        return f"; best {self.select.metric} {value:.4g}: {name}"

    def _read_result(self, folder: RunFolder) -> None:
        """Note whether a run ended early, and whether its value is the best one so far."""
        try:
            result = folder.result()
        except DamagedError:
            return  # reported when the table is read
        if result["status"] != FINISHED:
            return

        # Note an early end, by early stopping for example
        epochs = folder.run.epochs or 0
        epoch = result.get("last_good_epoch", epochs)
        if epoch < epochs:
            self.early.append(epoch)
            self.latest = f"{folder.id}, ended after epoch {epoch:g} of {epochs}"

        # Compare the selected value
        summaries = series.from_entry(result["summary"])
        summary = summaries.get((self.select.metric, ""))
        if summary is None or not self.select.mode:
            return
        value = summary.read(self.select.at, self.select.mode)
        sign = -1 if self.select.mode == "max" else 1
        if self.best is None or sign * value < sign * self.best[0]:
            self.best = value, folder.id


def _position(run: Run, fraction: float) -> str:
    """Return ``epoch 2.5 of 10``, or ``25 %`` of a run of unknown length."""
    if not run.epochs:
        return f"{100 * fraction:.0f} %"
    epoch = f"{fraction * run.epochs:.2f}".rstrip("0").rstrip(".")
    return f"epoch {epoch} of {run.epochs}"
