"""What has changed since runs finished: files that a study names, or its settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from actlab.config import identity
from actlab.config.labels import in_full
from actlab.config.paths import differences
from actlab.config.text import without_replaced_dataset
from actlab.errors import ActlabError
from actlab.storage.contents import ContentsByText
from actlab.storage.files import DamagedError
from actlab.storage.json_files import read_json
from actlab.storage.mappings import read_mapping
from actlab.studies.formats import Result
from actlab.studies.groups import by_point
from actlab.studies.plan import Run
from actlab.studies.run_folder import RESULT


class Digests(NamedTuple):
    """Digests of what configs name: ``sources`` by text, ``code`` by the name of each of its files.

    An activation in a file has both, under one name, and they differ: only its digest in
    ``sources`` covers its imports.
    """

    sources: Mapping[str, str]
    code: Mapping[str, str]


def digests(runs: Iterable[Run]) -> Digests:
    """Return the digests of all files and code that the runs name, as they are now."""
    contents_by_text: ContentsByText = {}  # remembered over runs
    sources: dict[str, str] = {}
    code: dict[str, str] = {}
    # Runs of one grid point name the same files and code
    for run, *_ in by_point(runs):
        sources |= run.sources
        sources |= identity.sources_of(run.config, contents_by_text)
        code |= run.code
    return Digests(sources, code)


def changed(folder: Path, now: Digests) -> list[str]:
    """Return what a finished run named whose content is another ``now``; see `files_of`.

    The run has finished in ``folder``; the list is empty if its result is damaged.
    """
    try:
        result = read_json(folder / RESULT, Result, "")
    except DamagedError:
        return []

    code = result.get("code", {})
    names = []
    for text, digest in result["sources"].items():
        # A file that no planned run names any more has not changed for the study
        if now.sources.get(text, digest) != digest:
            names += files_of(text, code, now.code)
    return names


def files_of(text: str, code: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the changed files of the code ``text``, such as ``helpers.py of ./mine.py:Name``.

    If none is known, the text itself is returned.
    """
    files = []
    for name, digest in code.items():
        # The file itself, or one that it imports
        belongs_to_text = name == text or name.endswith(f" of {text}")
        if belongs_to_text and digest != now.get(name):
            files.append(name)
    if files:
        return files
    if Path(text).is_file():
        return [text]
    return [f"{text}, or what it imports,"]


def other_settings(folder: Path, planned: Iterable[Run]) -> list[str]:
    """Return how the settings of a finished run differ from the nearest planned run.

    The differences read ``KEY was 1, is 2``. There is none if no difference affects results, or if
    the config in ``folder`` cannot be read.
    """
    try:
        config = identity.counted(read_mapping(folder / "config.yaml"), {})
    except ActlabError:
        return []

    # Plans may hold several runs of one name
    candidates: list[list[str]] = []
    for run in planned:
        planned_config = identity.counted(without_replaced_dataset(run.config), {})
        texts = []
        for key, before, now in differences(config, planned_config):
            texts.append(f"{key} was {in_full(before)}, is {in_full(now)}")
        candidates.append(texts)
    return min(candidates, key=len, default=[])
