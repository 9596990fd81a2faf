"""Blocks in which code of other people is imported, with errors that say what to do."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from actlab.errors import ActlabError


@contextmanager
def importing(source: str) -> Iterator[None]:
    """Import third-party code in a block as if it were run without arguments.

    Its ``argv`` is ``[source]``.

    Raises:
        ActlabError: the code ends the process, as code that requires arguments does.
    """
    # Code may read its command line when it is imported
    arguments = sys.argv
    sys.argv = [source]
    try:
        yield
    except SystemExit as error:
        if not error.code:  # as for --help
            raise
        raise ActlabError(
            f"{source} ends the process with code {error.code} when it is imported. Move the call "
            "that ends it below `if __name__ == '__main__':`."
        ) from error
    finally:
        sys.argv = arguments


@contextmanager
def needing(package: str, extra: str, wants: str) -> Iterator[None]:
    """Name the ``extra`` of actlab that installs a ``package``, if ``wants`` lacks it.

    The package is an import name.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        # The extra does not install other packages
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ActlabError(
            f"{wants} requires the package {package.replace('_', '-')}, which is not installed. "
            f"Install the extra `{extra}`: pip install 'actlab[{extra}]'."
        ) from error
