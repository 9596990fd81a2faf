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

Digests = Mapping[str, set[str]]  # of what configs name, by today's rule and by that of earlier versions


def digests(runs: Iterable[Run]) -> Digests:
    """Return the digests of all files and code that the runs name, as they are now."""
    known: dict[str, str | None] = {}
    found: dict[str, set[str]] = {}
    for run, *_ in by_point(runs):
        for by_bytes in (False, True):
            for text, digest in identity.sources_of(run.config, known, by_bytes).items():
                found.setdefault(text, set()).add(digest)
    return found


def changed(folder: Path, now: Digests) -> list[str]:
    """Return what a finished run named, in its folder, that has another content ``now``; empty if unknown."""
    try:
        kept = read_json(folder / RESULT, Result, "")["sources"]
    except DamagedError:
        return []
    return [text for text, digest in kept.items() if digest not in now.get(text, {digest})]
