"""Ctrl-C and SIGTERM: an exception that ends the process, and a flag, for an exception can be swallowed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_requested: list[int] = []  # numbers of the signals that have arrived, the first one first


class Stopped(BaseException):
    """A signal asked the process to end; no library takes it for an error of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def stopping() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into `Stopped`, also while libraries are imported.

    The handler raises at once, so that imports and waits end. What it interrupts may swallow the exception: any
    ``except``, a ``__del__``, a callback of a C library. So the handler also records the signal, and `check`
    raises again.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        _requested.append(number)
        raise Stopped(number)

    alone = threading.current_thread() is threading.main_thread()  # only there a handler can be set
    former = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM) if alone}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        _requested.clear()


def check() -> None:
    """Raise for a signal that has arrived.

    Raises:
        Stopped: with the number of the first one.
    """
    if _requested:
        raise Stopped(_requested[0])
