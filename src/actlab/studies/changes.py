"""Which files that a study names have changed since runs finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from actlab.config import identity
from actlab.storage.files import DamagedError, read_json
from actlab.studies.folders import RESULT
from actlab.studies.formats import Result
from actlab.studies.groups import by_point
from actlab.studies.plan import Run

Code = Mapping[str, Mapping[str, str]]  # digests of the user's files by what configs name and by path


class Digests(NamedTuple):
    """Of what configs name, by today's rule and by that of earlier versions, and of each file of their code."""

    found: dict[str, set[str]]
    code: dict[str, dict[str, str]]


def digests(runs: Iterable[Run]) -> Digests:
    """Return the digests of all files and code that the runs name, as they are now."""
    known: dict[str, str | None] = {}
    found: dict[str, set[str]] = {}
    code: dict[str, dict[str, str]] = {}
    for run, *_ in by_point(runs):
        code |= run.code
        for by_bytes in (False, True):
            for text, digest in identity.sources_of(run.config, known, by_bytes).items():
                found.setdefault(text, set()).add(digest)
    return Digests(found, code)


def changed(folder: Path, now: Digests) -> list[str]:
    """Return what a finished run named, in its folder, that has another content ``now``; see `files_of`."""
    try:
        kept = read_json(folder / RESULT, Result, "")
    except DamagedError:
        return []
    texts = [text for text, digest in kept["sources"].items() if digest not in now.found.get(text, {digest})]
    return [name for text in texts for name in files_of(text, kept.get("code", {}), now.code)]


def files_of(text: str, before: Code, now: Code) -> list[str]:
    """Return the changed files of the code ``text``: ``helpers.py of ./mine.py:Unit``; itself if unknown."""
    one, other = before.get(text, {}), now.get(text, {})
    files = [file for file in sorted({*one, *other}) if one and one.get(file) != other.get(file)]
    own = Path(text.rpartition(":")[0]).name
    names = [text if Path(file).name == own else f"{file} of {text}" for file in files]
    return names or [f"{text}, or what it imports,"]
