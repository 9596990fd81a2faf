"""What a command finds around it: where it prints, and variables that the libraries read."""

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
    """The process that read what is printed has ended, as ``head`` does."""


def check_variables() -> None:
    """Check what libraries read off the environment while they are imported, where a mistake is a traceback.

    Raises:
        ActlabError: for a ``SOURCE_DATE_EPOCH`` that numpy cannot read.
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
    """Print for a while: characters that the terminal lacks as ``?``, and nothing lost without an error.

    Without a standard output (``>&-``) nothing is printed. What is still buffered is written at the end, where
    a full disk can be reported; Python itself would find it out after the last line of the program.

    Yields:
        Whether the process that read the output has ended, also after rich has replaced the output by nothing.

    Raises:
        OSError: when what was printed cannot be written.
        ReaderGoneError: when its reader has ended.
    """
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (as long as the process lives)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    pipe = _copy_of_output()
    nobody_reads = partial(_nobody_reads, pipe)
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
            _drop()
            raise (ReaderGoneError() if nobody_reads() else error) from error
        finally:
            if pipe is not None:
                os.close(pipe)


def _copy_of_output() -> int | None:
    """A descriptor of the standard output; None where no file is behind it."""
    try:
        return os.dup(sys.stdout.fileno())
    except (OSError, ValueError):
        return None


def _nobody_reads(pipe: int | None) -> bool:
    if pipe is None or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(pipe, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _drop() -> None:
    """Let what cannot be written go to nowhere, or Python would try it once more while it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
