"""How Python starts in processes that run users' code: with the hash seed 0 and a safe path.

The hash of a text, and with it the order of a set, depend on a seed that Python draws for each
process. Without a safe path, a file ``random.py`` in the current folder replaces the standard
module of this name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HASH_SEED = "PYTHONHASHSEED"
SAFE_PATH = "PYTHONSAFEPATH"
OURS = "actlab"  # value of `SAFE_PATH` for a process that puts the current folder last on its path


@contextmanager
def started_alike() -> Iterator[None]:
    """Let processes that start in a block have the hash seed 0 and a safe path."""
    variables = {HASH_SEED: "0", SAFE_PATH: OURS}
    values_before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in values_before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def restart(options: Sequence[str] = ()) -> None:
    """Replace this process by itself with hash seed 0, a safe path and ``options`` of Python."""
    os.environ[HASH_SEED] = "0"
    if not sys.flags.safe_path:
        os.environ[SAFE_PATH] = OURS
    os.execv(sys.executable, [sys.executable, *options, *sys.orig_argv[1:]])


def draws_hashes() -> bool:
    """Return whether Python drew the hash seed of this process, though `restart` could set it."""
    return bool(sys.flags.hash_randomization) and os.environ.get(HASH_SEED) != "0"


def put_folder_last() -> None:
    """Move the current folder to the end of Python's path, or add it there.

    ``python -m`` puts it first. A path that the user made safe stays as it is.
    """
    if sys.flags.safe_path and os.environ.get(SAFE_PATH) != OURS:
        return
    folder = str(Path.cwd())
    if sys.path[0] in ("", folder):
        del sys.path[0]
    if folder not in sys.path:
        sys.path.append(folder)
