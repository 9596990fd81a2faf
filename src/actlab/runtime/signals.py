"""Ctrl-C and SIGTERM: an exception that ends the process, and a record in case code swallows the exception."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_requested: list[int] = []  # numbers of the signals received, in order


class Stopped(BaseException):
    """Raised by a signal to end the process; a BaseException, so no ``except Exception`` catches it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def stopping() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into `Stopped`, also during imports.

    The handler raises at once, so that imports and waits end. The interrupted code may swallow the exception,
    in an ``except``, a ``__del__`` or a callback of a C library. The handler therefore also records the signal,
    and `check` raises again.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        _requested.append(number)
        raise Stopped(number)

    alone = threading.current_thread() is threading.main_thread()  # handlers can only be set in the main thread
    former = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM) if alone}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        _requested.clear()


def check() -> None:
    """Raise if a signal has arrived.

    Raises:
        Stopped: a signal has arrived; holds the number of the first signal.
    """
    if _requested:
        raise Stopped(_requested[0])
