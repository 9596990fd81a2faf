"""Files that users' code opens while a run is built or its data are prepared, though no config names them.

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
_OF_UPDATES = {
    "optimizer",
    "scheduler",
    "schedules",
    "lr",
}


def parts_of(config: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """Return the data and the model of a complete config, by keys that change with their code and files."""
    model = {
        name: value
        for name, value in (config.get("model") or {}).items()
        if name not in _OF_UPDATES
    }
    if isinstance(arguments := model.get("init_args"), Mapping):
        model["init_args"] = {
            name: value for name, value in arguments.items() if name not in _OF_UPDATES
        }
    parts: dict[str, Any] = {}
    for part in (config.get("data"), model):
        digests = sorted(sources[text] for text in contents.texts(part) if text in sources)
        key = hashlib.sha256(canonical([part, digests]).encode()).hexdigest()
        parts[key[:16]] = part
    return parts


def sources_of(
    config: Mapping[str, Any],
    sources: Mapping[str, str],
    opened: OpenedFiles,
    known: dict[str, str | None],
) -> dict[str, str]:
    """Return digests of the opened files that exist, by path, for a config that names ``sources``."""
    digests: dict[str, str] = {}
    for key in parts_of(config, sources) if opened else ():
        for path in opened.get(key, ()):
            name = f"data {path}"
            if name not in known:
                known[name] = contents.content_of(path, True)
            if content := known[name]:
                digests[path] = content
    return digests


def code_of(part: Any) -> set[str]:
    """Return the resolved paths of the users' code that a part of a config names, with what it imports."""
    return {
        str(file.resolve())
        for text in contents.texts(part)
        for file in contents.code_files(text, False)
    }


def unknown(runs: Iterable[Run], opened: OpenedFiles) -> list[Run]:
    """Return the runs with users' code in a part of which is not known what it opens."""
    has_code: dict[str, bool] = {}
    found: list[Run] = []
    for run in runs:
        for key, part in parts_of(run.config, run.sources).items() if run.sources else ():
            if key not in opened and key not in has_code:
                has_code[key] = bool(code_of(part))
                if has_code[key]:
                    found.append(run)
    return found
