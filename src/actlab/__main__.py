"""Entry point of the command ``actlab``; the module of each command is imported on use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise, takewhile

from actlab.cli.commands import COMMANDS, FITS, RESUMED, USAGE, WITH_WORKERS
from actlab.cli.environment import ReaderGoneError, printing
from actlab.errors import ActlabError
from actlab.errors.messages import one_line, unknown
from actlab.runtime import interpreter
from actlab.runtime.signals import Stopped, check, stopping

LONGEST_LINE = 1_500  # in characters, of an error message on the terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, and print errors as one line.

    Args:
        argv: the arguments after ``actlab``, by default the arguments of the process.

    Returns:
        The exit code: 0 on success; 1 if runs or probes of a study failed; 2 after a one-line
        message about bad input; 130 or 143 if Ctrl-C or SIGTERM stopped the command; 141 if the
        reader of its output, such as ``head``, has exited.
    """
    # Only the command's own process may restart Python
    is_process = argv is None
    args = list(sys.argv[1:] if argv is None else argv)
    if is_process:
        _restart_once(args)

    try:
        with stopping(), printing() as nobody_reads:
            if is_process:
                interpreter.put_folder_last()
            return _run_guarded(args, nobody_reads)
    except ActlabError as error:
        print(f"actlab: error: {one_line(error, LONGEST_LINE)}", file=sys.stderr)
        return 2
    except Stopped as stop:
        message = "actlab: stopped"
        resumption = stop.explanation or RESUMED.get(args[0] if args else "")
        if resumption:
            message += f"; {resumption}"
        print(message, file=sys.stderr)
        return 128 + stop.number
    except ReaderGoneError:
        return 141
    except OSError as error:
        # Full or read-only disk, or a file where a folder is expected.
        print(f"actlab: error: {one_line(error)}", file=sys.stderr)
        return 2


def _restart_once(args: Sequence[str]) -> None:
    """Start Python again if only that sets the encoding, or the hash seed of users' code."""
    runs_users_code = _trains_here(args) or (len(args) > 0 and args[0] in FITS)
    if sys.getfilesystemencoding() == "ascii":
        # In the C locale, Python decodes file names to text that cannot be written to
        # our UTF-8 files.
        interpreter.restart(["-X", "utf8"])
    elif runs_users_code and interpreter.draws_hashes():
        interpreter.restart()


def _trains_here(args: Sequence[str]) -> bool:
    """Return whether a command trains in this process instead of workers."""
    return "--jobs=0" in args or ("--jobs", "0") in pairwise(args)


def _needs_workers(args: Sequence[str]) -> bool:
    """Return whether a command asks worker processes."""
    has_workers = args[0] in WITH_WORKERS or " ".join(args[:2]) in WITH_WORKERS
    asks_help = "-h" in args or "--help" in args
    return has_workers and not _trains_here(args) and not asks_help


def _run_guarded(args: Sequence[str], nobody_reads: Callable[[], bool]) -> int:
    """Run a command; of an exit, find out whether a signal, a reader or other code asked for it."""
    try:
        return run(args)
    except Exception:
        # Other code may have replaced Stopped, such as an interrupted import of a C
        # extension
        check()
        raise
    except SystemExit as exit_:
        check()
        if nobody_reads():
            raise ReaderGoneError from exit_  # rich turns a broken pipe into an exit
        if any(map(_prints_only, args)):
            raise  # a parser printed help or the config and exits regularly

        # Any other exit comes from the user's code
        words = takewhile(lambda word: not word.startswith("-"), args)
        command = " ".join(["actlab", *words])
        raise ActlabError(
            f"an activation, class or callback of the config ended `{command}` with code "
            f"{exit_.code}. Remove its call of sys.exit."
        ) from exit_


def _prints_only(word: str) -> bool:
    """Return whether a word of a command asks for help or for the config."""
    option = word.partition("=")[0]
    return option == "-h" or option.endswith((".help", "--help")) or "--print" in option


def run(args: Sequence[str]) -> int:
    """Run a command in this process; return 0, or 1 if runs or probes of a study failed."""
    command, *arguments = args or ["--help"]

    # Print the help or the version
    if command in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if command == "--version":
        from actlab import __version__

        print(__version__)
        return 0

    # Import and run the module of the command
    if command not in COMMANDS:
        raise unknown("command", command, COMMANDS, command="actlab --help")
    if _needs_workers(args):
        from actlab.engines.workers import start_server

        start_server()  # it loads torch while this process imports the command
    module = import_module(COMMANDS[command])
    exit_code = module.main(args if command in FITS else arguments)
    return exit_code or 0


if __name__ == "__main__":
    sys.exit(main())
