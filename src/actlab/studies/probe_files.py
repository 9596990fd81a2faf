"""Files of probe results in run folders, and the records that show whether they are up to date.

A probe writes ``probes/<name>.parquet``, with rows as in ``metrics.parquet``, and then the record
``<name>.json``. The record holds the run's name, the digest of the rows and two digests of the request. The
digest ``asked`` follows from the study file alone, so stale results are detected before anything is evaluated.
The digest ``answered`` also includes the ``version`` of the probe's class.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from actlab.config import identity
from actlab.storage import series
from actlab.storage.files import DamagedError, digest_of, is_whole, read_json, replacing, write_sealed
from actlab.studies.folders import Row, frame_of
from actlab.studies.plan import Keep, Probe

_REMEDY = "delete it, and run the study again"


class _Record(TypedDict):
    run: str
    rows: str
    asked: str
    answered: str


def file_of(folder: Path, name: str) -> Path:
    """Return the path of a probe's rows in a run's folder."""
    return folder / "probes" / f"{name}.parquet"


def record_of(file: Path) -> Path:
    """Return the path of the record of a file of rows."""
    return file.with_suffix(".json")


def asked(probe: Probe, keep: Keep) -> list[Any]:
    """Return the request: class, arguments, checkpoints, and the digests of files and code outside actlab."""
    sources = identity.sources_of({"class_path": probe.class_path, "init_args": probe.init_args})
    rule = [keep.best, keep.mode] if "best" in probe.at else []
    return [probe.class_path, probe.init_args, list(probe.at), *sorted(sources.values()), *rule]


def _digest(questions: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(questions, sort_keys=True, default=str).encode()).hexdigest()


def write(file: Path, rows: Sequence[Row], questions: Sequence[Any], version: Sequence[Any]) -> None:
    """Write the results of a probe in one run.

    Args:
        file: path from `file_of`.
        rows: measured values.
        questions: the request from `asked`.
        version: version of the probe's class as a list of one item; empty if it has none.
    """
    record_of(file).unlink(missing_ok=True)
    with replacing(file) as partial:
        frame_of(rows).to_parquet(partial, index=False)
    sign(file, questions, version)


def sign(file: Path, questions: Sequence[Any], version: Sequence[Any]) -> None:
    """Write the record of an existing file of rows; arguments as for `write`."""
    digests = {"asked": _digest(questions), "answered": _digest([*questions, *version])}
    write_sealed(record_of(file), {"run": file.parent.parent.name, "rows": digest_of(file), **digests})


def _record(file: Path) -> _Record:
    """Return the record of a file of rows.

    Raises:
        DamagedError: if the file is damaged or belongs to another run.
    """
    record = read_json(record_of(file), _Record, _REMEDY)
    if not is_whole(file, record["rows"]) or record["run"] != file.parent.parent.name:
        raise DamagedError(f"{file} is damaged (its content or run does not match its record): {_REMEDY}")
    return record


def answers(file: Path, questions: Sequence[Any], version: Sequence[Any]) -> bool:
    """Return whether a file exists, is undamaged and answers the request."""
    try:
        return _record(file)["answered"] == _digest([*questions, *version])
    except DamagedError:
        return False


def asked_in(folder: Path) -> dict[str, str]:
    """Return the digest of the request that each file of a run's folder answers, by the probe's name.

    Raises:
        DamagedError: if a file is damaged or belongs to another run.
    """
    names = sorted(record.stem for record in (folder / "probes").glob("[!.]*.json"))
    return {name: _record(file_of(folder, name))["asked"] for name in names}


def outdated(found: Mapping[str, str], asked: Mapping[str, Sequence[Any]]) -> set[str]:
    """Return the names of the probes whose files answer another request than the study's.

    Args:
        found: the result of `asked_in`.
        asked: the result of `asked` for each probe of the study, by name.
    """
    return {name for name, questions in asked.items() if name in found and found[name] != _digest(questions)}


def read(file: Path, prefix: str) -> dict[series.Key, series.Series]:
    """Return the series that a probe measured in a run; ``prefix`` is prepended to their names.

    Raises:
        DamagedError: if the file is damaged or belongs to another run.
    """
    _record(file)
    return series.read(file, Row._fields, prefix)
