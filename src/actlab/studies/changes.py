"""What has changed since runs finished: files that a study names, or its settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from actlab.config import identity
from actlab.config.labels import in_full
from actlab.config.paths import differences
from actlab.config.text import without_replaced_dataset
from actlab.errors import ActlabError
from actlab.storage.files import DamagedError
from actlab.storage.json_files import read_json
from actlab.storage.mappings import read_mapping
from actlab.studies.formats import Result
from actlab.studies.groups import by_point
from actlab.studies.plan import Run
from actlab.studies.run_folder import RESULT


class Digests(NamedTuple):
    """Digests of what configs name: ``sources`` by text, and ``code`` by the name of each of its files.

    An activation in a file has both, under one name, and they differ: the first covers its imports.
    """

    sources: Mapping[str, str]
    code: Mapping[str, str]


def digests(runs: Iterable[Run]) -> Digests:
    """Return the digests of all files and code that the runs name, as they are now."""
    known: dict[str, str | None] = {}
    sources: dict[str, str] = {}
    code: dict[str, str] = {}
    for run, *_ in by_point(runs):
        sources |= {**run.sources, **identity.sources_of(run.config, known)}
        code |= run.code
    return Digests(sources, code)


def changed(folder: Path, now: Digests) -> list[str]:
    """Return what a finished run named, in its folder, that has another content ``now``; see `files_of`."""
    try:
        kept = read_json(folder / RESULT, Result, "")
    except DamagedError:
        return []
    texts = [
        text for text, digest in kept["sources"].items() if now.sources.get(text, digest) != digest
    ]
    return [name for text in texts for name in files_of(text, kept.get("code", {}), now.code)]


def files_of(text: str, code: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the changed files of the code ``text``: ``helpers.py of ./mine.py:Name``; itself if unknown."""
    names = [name for name in code if name == text or name.endswith(f" of {text}")]
    differ = [name for name in names if code[name] != now.get(name)]
    return differ or [text if Path(text).is_file() else f"{text}, or what it imports,"]


def other_settings(folder: Path, planned: Iterable[Run]) -> list[str]:
    """Return how the settings of a finished run differ from the nearest planned one: ``KEY was 1, is 2``.

    Empty if none differs that affects results, or if the config in ``folder`` cannot be read.
    """
    try:
        config = identity.counted(read_mapping(folder / "config.yaml"), {})
    except ActlabError:
        return []

    # Plans may hold several runs of one name.
    candidates: list[list[str]] = []
    for run in planned:
        now = identity.counted(without_replaced_dataset(run.config), {})
        candidates.append([*_in_words(differences(config, now))])

    return min(candidates, key=len, default=[])


def _in_words(differing: Iterable[tuple[str, Any, Any]]) -> Iterator[str]:
    for key, before, now in differing:
        yield f"{key} was {in_full(before)}, is {in_full(now)}"
