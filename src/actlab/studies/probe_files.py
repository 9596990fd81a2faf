"""The files of probes: where they lie in run folders, their rows, and what was asked for them.

Beside ``probes/<name>.parquet``, with rows as in ``metrics.parquet``, lies ``<name>.json``, written last: whose
rows they are, their digest, and two digests of what was asked. One is known from the study's file alone, and
tells old values before anything is evaluated; for the other the probe's class is asked its ``version``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from actlab.config import identity
from actlab.storage import series
from actlab.storage.files import DamagedError, digest_of, read_json, replacing, write_sealed
from actlab.studies.folders import Row, frame_of
from actlab.studies.plan import Keep, Probe

_REMEDY = "delete it, and run the study again"


class _Answer(TypedDict):
    run: str
    rows: str
    asked: str
    answered: str


def file_of(folder: Path, name: str) -> Path:
    """The rows of a probe in a run's folder."""
    return folder / "probes" / f"{name}.parquet"


def record_of(file: Path) -> Path:
    """What says what the rows in a file are."""
    return file.with_suffix(".json")


def asked(probe: Probe, keep: Keep) -> list[Any]:
    """What is asked: class, arguments and checkpoints, and the contents of what they name outside actlab."""
    sources = identity.sources_of({"class_path": probe.class_path, "init_args": probe.init_args})
    rule = [keep.best, keep.mode] if "best" in probe.at else []
    return [probe.class_path, probe.init_args, list(probe.at), *sorted(sources.values()), *rule]


def _digest(questions: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(questions, sort_keys=True, default=str).encode()).hexdigest()


def write(file: Path, rows: Sequence[Row], questions: Sequence[Any], version: Sequence[Any]) -> None:
    """Write what a probe measured in one run.

    Args:
        file: as `file_of` gives it.
        rows: what was measured.
        questions: what was asked.
        version: of the probe's class, where it has one.
    """
    record_of(file).unlink(missing_ok=True)
    with replacing(file) as partial:
        frame_of(rows).to_parquet(partial, index=False)
    sign(file, questions, version)


def sign(file: Path, questions: Sequence[Any], version: Sequence[Any]) -> None:
    """Write what says what the rows in a file are; see `write`."""
    digests = {"asked": _digest(questions), "answered": _digest([*questions, *version])}
    write_sealed(record_of(file), {"run": file.parent.parent.name, "rows": digest_of(file), **digests})


def _record(file: Path) -> _Answer:
    """What the rows in a file are.

    Raises:
        DamagedError: for a file that is not what was written, or is of another run.
    """
    record = read_json(record_of(file), _Answer, _REMEDY)
    try:
        whole = record["rows"] == digest_of(file)
    except OSError:
        whole = False
    if not whole or record["run"] != file.parent.parent.name:
        raise DamagedError(f"{file} is damaged (it is not what was written): {_REMEDY}")
    return record


def answers(file: Path, questions: Sequence[Any], version: Sequence[Any]) -> bool:
    """Whether a file is there, is whole, and has what is asked for."""
    try:
        return _record(file)["answered"] == _digest([*questions, *version])
    except DamagedError:
        return False


def is_outdated(file: Path, questions: Sequence[Any]) -> bool:
    """Whether a file is there that was made for other questions.

    Raises:
        DamagedError: for a file that is not what was written, or is of another run.
    """
    return record_of(file).exists() and _record(file)["asked"] != _digest(questions)


def read(file: Path, prefix: str) -> dict[series.Key, series.Series]:
    """The series that a probe measured in a run, their names beginning with ``prefix``.

    Raises:
        DamagedError: for a file that is not what was written, or is of another run.
    """
    _record(file)
    return series.read(file, Row._fields, prefix)
