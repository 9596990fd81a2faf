"""The command ``actlab``; each part loads when it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import takewhile

from actlab.cli.commands import COMMANDS, FITS, USAGE
from actlab.cli.environment import ReaderGoneError, check_variables, printing
from actlab.errors import ActlabError, one_line, unknown
from actlab.runtime.signals import Stopped, check, stopping

LONGEST_LINE = 1_500  # characters that an error may take on the terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: the words after ``actlab``; those of the process when None.

    Returns:
        The exit code: 0; 1 when runs or probes of a study failed; 2 after one line about bad input; 130 or 143
        when Ctrl-C or SIGTERM stopped it; 141 when the reader of its output has gone, as ``head`` does.
    """
    if argv is None and sys.getfilesystemencoding() == "ascii":
        _restart_in_utf8()
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        with stopping(), printing() as nobody_reads:
            check_variables()
            return _whole(args, nobody_reads)
    except ActlabError as error:
        print(f"actlab: error: {one_line(error, LONGEST_LINE)}", file=sys.stderr)
        return 2
    except Stopped as stop:
        how = (
            "the same command resumes"
            if args[:1] in (["study"], ["scoreboard"])
            else "--ckpt_path last goes on"
        )
        print(f"actlab: stopped; {how}", file=sys.stderr)
        return 128 + stop.number
    except ReaderGoneError:
        return 141
    except OSError as error:  # a full or read-only disk, a file in the place of a folder
        print(f"actlab: error: {one_line(error) or type(error).__name__}", file=sys.stderr)
        return 2


def _restart_in_utf8() -> None:
    """Replace this process by the same command in Python's UTF-8 mode.

    In the locale C all names of files would be ASCII, and those that are not would be text that no file of ours
    could hold.
    """
    os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def _whole(args: Sequence[str], nobody_reads: Callable[[], bool]) -> int:
    """Run a command to its end.

    Raises:
        ActlabError: for bad input, and where code that the command calls asks the process to exit.
        Stopped: for a signal, also one whose exception was swallowed or replaced by another.
    """
    try:
        return run(args)
    except Exception:
        check()  # a C extension that is stopped while it is imported raises ImportError in its place
        raise
    except SystemExit as exit_:
        check()
        if nobody_reads():
            raise ReaderGoneError from exit_  # which rich turns into an exit
        if any(
            word in ("-h", "--help") or word.partition("=")[0].endswith(".help") or "--print" in word
            for word in args
        ):
            raise  # a parser has printed what was asked for
        command = " ".join(["actlab", *takewhile(lambda word: not word.startswith("-"), args)])
        raise ActlabError(
            f"the process was asked to exit with code {exit_.code} while `{command}` ran: an activation, class "
            "or callback of the config calls sys.exit"
        ) from exit_


def run(args: Sequence[str]) -> int:
    """Run a command in this process.

    Returns:
        0, or 1 when runs or probes of a study failed.

    Raises:
        ActlabError: for bad input.
    """
    command, *rest = args or ["--help"]
    if command in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if command == "--version":
        from actlab import __version__

        print(__version__)
        return 0
    if command not in COMMANDS:
        raise unknown("command", command, list(COMMANDS))
    module = import_module(COMMANDS[command])
    return module.main(args if command in FITS else rest) or 0


if __name__ == "__main__":
    sys.exit(main())
