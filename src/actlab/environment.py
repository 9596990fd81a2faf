"""What a command finds around it: where it prints, and variables that the libraries read."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from actlab.errors import ActlabError


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
def printing() -> Iterator[None]:
    """Print for a while: characters that the terminal lacks as ``?``, and nothing lost without an error.

    Without a standard output (``>&-``) nothing is printed. What is still buffered is written at the end, where
    a full disk can be reported; Python itself would find it out after the last line of the program.

    Raises:
        OSError: when what was printed cannot be written; BrokenPipeError when its reader has gone.
    """
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  (as long as the process lives)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            _drop()
            raise


def _drop() -> None:
    """Let what cannot be written go to nowhere, or Python would try it once more while it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
