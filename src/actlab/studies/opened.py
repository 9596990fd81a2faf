"""Files that users' code opens although no config names them.

The code opens them while a run is built or its data are prepared.
A study's folder stores them by part of a run, the data or the model with the code and the files
that it names. They count in the identities of runs as named files do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from actlab.config.values import canonical
from actlab.storage import contents

if TYPE_CHECKING:
    from actlab.studies.plan import Run

FILE = "opened.json"  # in a study's folder
OpenedFiles = Mapping[str, list[str]]  # paths by the key of a part
# Arguments of a model that open no file
_OF_UPDATES = {"optimizer", "scheduler", "schedules", "lr"}


def parts_of(config: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """Return the data and the model of a config, by keys that change with their code and files."""
    # Optimizers and schedules open no files
    model = _without_updates(config.get("model") or {})
    if isinstance(model.get("init_args"), Mapping):
        model["init_args"] = _without_updates(model["init_args"])

    # The data and the model, each under its own key
    parts: dict[str, Any] = {}
    for part in (config.get("data"), model):
        digests = sorted(
            sources[text] for text in contents.texts(part) if text in sources
        )

        # The key changes with the code and the files, so that what they open is found
        # again
        text = canonical([part, digests])
        parts[hashlib.sha256(text.encode()).hexdigest()[:16]] = part
    return parts


def _without_updates(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _OF_UPDATES}


def sources_of(
    config: Mapping[str, Any],
    sources: Mapping[str, str],
    opened: OpenedFiles,
    contents_by_name: contents.ContentsByText,
) -> dict[str, str]:
    """Return digests of the opened files that exist, by path.

    The config names ``sources``. Digests in ``contents_by_name`` are not computed again; new ones
    are added to it.
    """
    if not opened:
        return {}

    digests: dict[str, str] = {}
    for key in parts_of(config, sources):
        for path in opened.get(key, ()):
            name = f"data {path}"  # the key of the digest in `actlab.config.identity`
            if name not in contents_by_name:
                contents_by_name[name] = contents.content_of(path, True)
            content = contents_by_name[name]
            if content:
                digests[path] = content
    return digests


def code_of(part: Any) -> set[str]:
    """Return the resolved paths of the users' code that a part of a config names.

    They include the files that this code imports.
    """
    paths: set[str] = set()
    for text in contents.texts(part):
        for file in contents.code_files(text, False):
            # Resolved, because code may be opened by another path
            paths.add(str(file.resolve()))
    return paths


def unknown(runs: Iterable[Run], opened: OpenedFiles) -> list[Run]:
    """Return a run for each part with users' code if it is not known what the part opens."""
    checked_keys: set[str] = set()
    unknown_runs: list[Run] = []
    for run in runs:
        # A run without files or code of a user opens no other files
        if not run.sources:
            continue
        for key, part in parts_of(run.config, run.sources).items():
            if key in opened or key in checked_keys:
                continue

            # Equal parts are looked at once
            checked_keys.add(key)
            if code_of(part):
                unknown_runs.append(run)
    return unknown_runs
