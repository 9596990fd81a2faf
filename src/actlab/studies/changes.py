"""Which files that a study names have changed since runs finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from actlab.config import identity
from actlab.storage.files import DamagedError, read_json
from actlab.studies.folders import RESULT
from actlab.studies.formats import Result
from actlab.studies.groups import by_point
from actlab.studies.plan import Run

Digests = Mapping[str, str]  # of what configs name


def digests(runs: Iterable[Run]) -> Digests:
    """Return the digests of all files and code that the runs name, as they are now."""
    known: dict[str, str | None] = {}
    by_name: dict[str, str] = {}
    for run, *_ in by_point(runs):
        by_name |= {**run.sources, **identity.sources_of(run.config, known), **run.code}
    return by_name


def changed(folder: Path, now: Digests) -> list[str]:
    """Return what a finished run named, in its folder, that has another content ``now``; see `files_of`."""
    try:
        kept = read_json(folder / RESULT, Result, "")
    except DamagedError:
        return []
    texts = [text for text, digest in kept["sources"].items() if now.get(text, digest) != digest]
    return [name for text in texts for name in files_of(text, kept.get("code", {}), now)]


def files_of(text: str, code: Mapping[str, str], now: Digests) -> list[str]:
    """Return the changed files of the code ``text``: ``helpers.py of ./mine.py:Unit``; itself if unknown."""
    names = [name for name in code if name == text or name.endswith(f" of {text}")]
    differ = [name for name in names if code[name] != now.get(name)]
    return differ or [text if Path(text).is_file() else f"{text}, or what it imports,"]
