"""Standard output of commands, and environment variables that libraries read."""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from actlab.errors import ActlabError


class ReaderGoneError(Exception):
    """Raised when the process that reads the output, such as ``head``, has exited."""


def check_variables() -> None:
    """Check environment variables that libraries parse during import, where a bad value causes a traceback.

    Raises:
        ActlabError: if ``SOURCE_DATE_EPOCH`` is not an integer, which numpy requires.
    """
    text = os.environ.get("SOURCE_DATE_EPOCH", "0")
    try:
        int(text)
    except ValueError:
        raise ActlabError(
            f"SOURCE_DATE_EPOCH={text!r} is not a number of seconds: give a whole number, or unset it"
        ) from None


@contextmanager
def printing() -> Iterator[Callable[[], bool]]:
    """Prepare standard output for a command: replace unsupported characters by ``?`` and report lost output.

    Without a standard output (``>&-``) nothing is printed. The buffer is flushed at the end of the block, so
    that a full disk can be reported; Python itself would flush only after the program has finished.

    Yields:
        A function that returns whether the process that reads the output has exited. It also works after rich
        has replaced the output by a null device.

    Raises:
        OSError: if the output cannot be written.
        ReaderGoneError: if the reader of the output has exited.
    """
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (open until the process ends)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    pipe = _duplicate_output()
    nobody_reads = partial(_is_reader_gone, pipe)
    try:
        yield nobody_reads
    except BrokenPipeError as error:
        if nobody_reads():
            raise ReaderGoneError from error
        raise
    finally:
        try:
            sys.stdout.flush()
        except OSError as error:
            _discard_output()
            raise (ReaderGoneError() if nobody_reads() else error) from error
        finally:
            if pipe is not None:
                os.close(pipe)


def _duplicate_output() -> int | None:
    """Return a duplicate descriptor of the standard output; None if it is not a file."""
    try:
        return os.dup(sys.stdout.fileno())
    except (OSError, ValueError):
        return None


def _is_reader_gone(pipe: int | None) -> bool:
    if pipe is None or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(pipe, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _discard_output() -> None:
    """Redirect standard output to the null device, or Python would write the buffer again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
