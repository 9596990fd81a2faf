"""Standard output of commands."""

from __future__ import annotations

import codecs
import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

_PLAIN = {
    "−": "-",
    "–": "-",
    "─": "-",
    "×": "x",
    "…": "...",
    "±": "+-",
    "→": "->",
    "≥": ">=",
    "∞": "inf",
}


class ReaderGoneError(Exception):
    """Raised when the process that reads the output, such as ``head``, has exited."""


@contextmanager
def printing() -> Iterator[Callable[[], bool]]:
    """Prepare standard output for a command; yield a function that returns whether its reader has exited."""
    if sys.stdout is None:  # closed, as by `>&-`
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (open until the process ends)
    if isinstance(sys.stdout, io.TextIOWrapper):
        codecs.register_error("actlab", _replaced)
        sys.stdout.reconfigure(errors="actlab")
    try:
        # Which stays when rich replaces a broken pipe by a null device
        pipe = os.dup(sys.stdout.fileno())
    except (OSError, ValueError):  # not a file
        pipe = None
    nobody_reads = partial(_is_reader_gone, pipe)
    try:
        yield nobody_reads
    except BrokenPipeError as error:
        if nobody_reads():
            raise ReaderGoneError from error
        raise
    finally:
        try:
            # Python itself would only after the program, too late to report a full disk
            sys.stdout.flush()
        except OSError as error:
            # Or Python would write the buffer again at exit
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
            raise (ReaderGoneError() if nobody_reads() else error) from error
        finally:
            if pipe is not None:
                os.close(pipe)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for characters that an output cannot show: plain ones, else ``?``."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(
        _PLAIN.get(character, "?") for character in error.object[error.start : error.end]
    ), error.end


def _is_reader_gone(pipe: int | None) -> bool:
    if pipe is None or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(pipe, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
