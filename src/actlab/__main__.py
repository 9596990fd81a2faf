"""The command ``actlab``; each part loads when it is asked for."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from actlab.environment import check_variables, printing
from actlab.errors import ActlabError, one_line

LONGEST_LINE = 1_500  # characters that an error may take on the terminal
USAGE = """\
usage: actlab COMMAND …

  fit | validate | test | predict   one network:  actlab fit -c mnist_classifier
      --products auto               float32 products by the faster library that is as exact, measured
  study plan | run | show | report | wandb | schema
                                    many runs:    actlab study run gelu_mnist_classifier --smoke
  scoreboard                        your unit:    actlab scoreboard --activation ./my_unit.py:MyUnit
  report                            all studies:  actlab report --runs-dir runs
  data list | fetch | check         the data:     actlab data check timit FOLDER
  activations                       the units:    actlab activations --plot units.png
  completion bash | zsh | fish      a script by which the shell completes what is typed

Each has --help. Files that travel with actlab may be named without their path.
"""


class Stopped(BaseException):
    """A signal asked the process to end; no library takes it for an error of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def stopping() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into `Stopped`, also while libraries are imported."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(number)

    alone = threading.current_thread() is threading.main_thread()  # only there a handler can be set
    former = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM) if alone}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: the words after ``actlab``; those of the process when None.

    Returns:
        The exit code: 0; 2 after one line about bad input; 130 or 143 when Ctrl-C or SIGTERM stopped it; 141
        when the reader of its output has gone, as ``head`` does.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        with stopping(), printing():
            check_variables()
            return run(args)
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
    except BrokenPipeError:
        return 141
    except OSError as error:  # a full or read-only disk, a file in the place of a folder
        print(f"actlab: error: {error}", file=sys.stderr)
        return 2


def run(args: Sequence[str]) -> int:
    """Run a command in this process; returns 0.

    Raises:
        ActlabError: for bad input.
    """
    command = args[0] if args else "--help"
    if command in ("-h", "--help"):
        print(USAGE, end="")
    elif command == "--version":
        from actlab import __version__

        print(__version__)
    elif command in ("fit", "validate", "test", "predict"):
        from actlab import cli

        cli.main(args)
    elif command == "study":
        from actlab.studies import command as study

        study.main(args[1:])
    elif command == "scoreboard":
        from actlab.studies import scoreboard

        scoreboard.main(args[1:])
    elif command == "report":
        from actlab.reports.pages import index

        index.main(args[1:])
    elif command == "data":
        from actlab.datamodules import command as data

        data.main(args[1:])
    elif command == "activations":
        from actlab.reports import units

        units.main(args[1:])
    elif command == "completion":
        from actlab import completion

        completion.main(args[1:])
    else:
        from actlab.errors import unknown

        commands = [
            "fit",
            "validate",
            "test",
            "predict",
            "study",
            "scoreboard",
            "report",
            "data",
            "activations",
        ]
        raise unknown("command", command, [*commands, "completion"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
