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
    """Prepare standard output for a command, and flush it afterwards.

    Yields:
        A function that returns whether the reader of the output has exited.

    Raises:
        ReaderGoneError: the reader has exited.
        OSError: the output cannot be written, such as to a full disk.
    """
    if sys.stdout is None:  # closed, as by `>&-`
        # Open until the process ends
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Write plain characters where the encoding lacks one
        codecs.register_error("actlab", _replaced)
        sys.stdout.reconfigure(errors="actlab")

    try:
        # This copy stays when rich replaces a broken pipe by a null device
        pipe = os.dup(sys.stdout.fileno())
    except (OSError, ValueError):  # not a file
        pipe = None
    nobody_reads = partial(_is_reader_gone, pipe)

    try:
        yield nobody_reads
    except BrokenPipeError as error:
        # The reader has ended, as ``head`` does after its lines
        if nobody_reads():
            raise ReaderGoneError from error
        raise
    finally:
        try:
            # Python itself would flush after the program, too late to report a full
            # disk
            sys.stdout.flush()
        except OSError as error:
            # Else Python would write the buffer again at exit
            null_device = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null_device, sys.stdout.fileno())
            os.close(null_device)
            if nobody_reads():
                raise ReaderGoneError from error
            raise
        finally:
            if pipe is not None:
                os.close(pipe)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """Return what stands for characters that an output cannot show: plain ones, else ``?``."""
    assert isinstance(error, UnicodeEncodeError)
    unprintable = error.object[error.start : error.end]
    text = "".join(_PLAIN.get(character, "?") for character in unprintable)
    return text, error.end


def _is_reader_gone(pipe: int | None) -> bool:
    """Return whether no process reads a pipe; False without a pipe."""
    if pipe is None or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(pipe, select.POLLOUT)
    ended = select.POLLERR | select.POLLHUP
    return any(event & ended for _, event in poll.poll(0))
