"""Ctrl-C and SIGTERM: an exception that ends the process, and a record of it.

Code may swallow the exception; `check` raises it again by the record.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

EVERY = 1.0  # seconds between two reports of progress, at least
SILENT = 2.0  # seconds that a wait lasts before it is printed
PROGRESS = "progress was made"  # kind of the message that passes a report on
Report = Callable[..., None]  # in a worker: sends the kind of a message and its content
# Runs in training by id, and their completed fractions.
Parts = Sequence[tuple[str, float]]
_requested: list[int] = []  # numbers of the signals received, in order
_listener: Callable[[Parts], None] | None = None
_measure: Callable[[], Parts] | None = None
_told = 0.0  # time of the last report


class Stopped(BaseException):
    """Raised by a signal to end the process; no ``except Exception`` catches it."""

    explanation = ""  # what was stopped, for people; empty where the command says how it is resumed

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def stopping() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into `Stopped`, at once, so that imports and waits end too."""

    def stop(number: int, frame: FrameType | None) -> None:
        # For `check`: an ``except`` or a C library may swallow the exception
        _requested.append(number)
        raise Stopped(number)

    # Handlers can only be set in the main thread.
    handlers_before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            handlers_before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in handlers_before.items():
            signal.signal(number, handler)
        _requested.clear()


@contextmanager
def explained(explanation: Callable[[], str]) -> Iterator[None]:
    """Let a stop in the block say how it is resumed, even if code replaced the exception."""
    try:
        yield
    except BaseException as error:
        if not _requested:
            raise
        stop = Stopped(_requested[0])
        stop.explanation = explanation()
        raise stop from error


def tell(listener: Callable[[Parts], None] | None) -> None:
    """Make `check` report progress to ``listener`` once in `EVERY` seconds; None ends it."""
    global _listener, _told
    _listener = listener
    _told = 0.0


@contextmanager
def measured(measure: Callable[[], Parts]) -> Iterator[None]:
    """Report within the block what ``measure`` returns; it is called for reports, first at once."""
    global _measure, _told
    _measure = measure
    _told = 0.0
    try:
        yield
    finally:
        _measure = None


@contextmanager
def preparing() -> Iterator[None]:
    """Report progress while a block prepares data, which may wait; print how long it waits."""
    over = threading.Event()
    start = time.monotonic()

    # Report often, but print when the wait has doubled
    def watch() -> None:
        due = SILENT
        while not over.wait(EVERY):
            report(())
            passed = time.monotonic() - start
            if passed >= due:
                print(
                    f"preparing the data: {passed:.0f} s so far\n", end="", flush=True
                )
                due = 2 * passed

    # Watch until the block ends, even by an error
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def report(parts: Parts) -> None:
    """Pass runs in training, with their completed fractions, to the listener of this process."""
    if _listener is not None:
        _listener(parts)


def check() -> None:
    """Raise `Stopped` if a signal has arrived; report progress: loops call this at each step."""
    global _told
    if _requested:
        raise Stopped(_requested[0])
    if _listener is None:
        return
    now = time.monotonic()
    if now - _told >= EVERY:
        _told = now
        parts = _measure() if _measure is not None else ()
        report(parts)
