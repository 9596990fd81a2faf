"""Paths as users write them, and the cache folder."""

from __future__ import annotations

import os
from pathlib import Path

from actlab.errors import ActlabError
from actlab.errors.messages import one_line


def resolved(path: str) -> Path:
    """Return an absolute path, with ``~`` expanded and links followed.

    Raises:
        ActlabError: the path is invalid.
    """
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ActlabError(f"{path!r} is not a valid path: {one_line(error)}") from error


def at_home(path: str | Path) -> Path:
    """Return a path with a leading ``~`` expanded; unchanged if its user does not exist."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def cache_folder(cache_dir: str | None = None) -> Path:
    """Return the cache folder: ``cache_dir``, else ``$ACTLAB_CACHE``, else ``~/.cache/actlab``."""
    return at_home(cache_dir or os.environ.get("ACTLAB_CACHE") or "~/.cache/actlab")


def leads_back(path: str) -> bool:
    """Return whether a path is a link to a folder that contains it; a walk would not end there."""
    if not Path(path).is_symlink():
        return False
    return Path(path).parent.resolve().is_relative_to(os.path.realpath(path))
