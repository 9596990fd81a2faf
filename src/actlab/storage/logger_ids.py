"""The id by which loggers know the run of a folder."""

from __future__ import annotations

import secrets
from pathlib import Path

# Before Python 3.12 pydantic rejects `typing.TypedDict`.
from typing_extensions import TypedDict

from actlab.storage.json_files import read_json, write_json

_FILE = "logger.json"


class _Logger(TypedDict):
    id: str


def ensure_id(folder: Path) -> str:
    """Return the id of a folder's run for loggers; create and store it on first use.

    A resumed run therefore continues its history. The stored id also marks a run as logged.
    """
    path = folder / _FILE
    if not path.exists():
        write_json(path, {"id": secrets.token_hex(8)})
    return read_json(path, _Logger, "Delete it. Loggers then start a new history.")[
        "id"
    ]


def has_id(folder: Path) -> bool:
    """Return whether a folder's run has an id, and so has been logged."""
    return (folder / _FILE).exists()


def forget_id(folder: Path) -> None:
    """Delete the id of a folder's run, so that loggers start a new run."""
    (folder / _FILE).unlink(missing_ok=True)
