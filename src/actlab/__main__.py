"""The command ``actlab``; each part loads when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from actlab.errors import ActlabError

USAGE = """\
usage: actlab COMMAND …

  fit | validate | test | predict   one network:  actlab fit -c configs/mnist_classifier.yaml
  study plan | run | show | report  many runs:    actlab study run gelu_mnist_classifier --smoke
  activations                       the units:    actlab activations --plot units.png

Each has --help. Files that travel with actlab may be named without their path.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, or 2 after one line about bad input.

    Args:
        argv: the words after ``actlab``; those of the process when None.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    command = args[0] if args else "--help"
    try:
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
        elif command == "activations":
            from actlab.reports import units

            units.main(args[1:])
        else:
            from actlab.errors import unknown

            raise unknown("command", command, ["fit", "validate", "test", "predict", "study", "activations"])
    except ActlabError as error:
        print(f"actlab: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
