"""The files of probes: where they lie in run folders, their rows, and what was asked for them.

A file is ``probes/<name>.parquet``, with rows as in ``metrics.parquet`` and two digests of what was asked: one
is known from the study's file alone, and tells old values before anything is evaluated; for the other the
probe's class is asked its ``version``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from actlab import series
from actlab.engines.folders import Row, frame_of
from actlab.files import regular, replacing
from actlab.studies import identity
from actlab.studies.plan import Keep, Probe

_DIGEST, _ASKED = b"actlab_probe", b"actlab_probe_asked"


def file_of(folder: Path, name: str) -> Path:
    """The file of a probe in a run's folder."""
    return folder / "probes" / f"{name}.parquet"


def asked(probe: Probe, keep: Keep) -> list[Any]:
    """What is asked: class, arguments and checkpoints, and the contents of what they name outside actlab."""
    sources = identity.sources_of({"class_path": probe.class_path, "init_args": probe.init_args})
    rule = [keep.best, keep.mode] if "best" in probe.at else []
    return [probe.class_path, probe.init_args, list(probe.at), *sorted(sources.values()), *rule]


def digest_of(questions: Sequence[Any]) -> str:
    """Of what is asked."""
    return hashlib.sha256(json.dumps(questions, sort_keys=True, default=str).encode()).hexdigest()


def write(path: Path, rows: Sequence[Row], questions: Sequence[Any], version: Sequence[Any]) -> None:
    """Write what a probe measured in one run.

    Args:
        path: as `file_of` gives it.
        rows: what was measured.
        questions: what was asked.
        version: of the probe's class, where it has one.
    """
    table = pa.Table.from_pandas(frame_of(rows), preserve_index=False)
    added = {
        _DIGEST: digest_of([*questions, *version]).encode(),
        _ASKED: digest_of(questions).encode(),
        series.SEAL: series.seal(table, path.parent.parent.name).encode(),
    }
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), **added})
    with replacing(path) as partial:
        pq.write_table(table, partial)


def answers(path: Path, questions: Sequence[Any], version: Sequence[Any]) -> bool:
    """Whether a file is there, can be read, and has what is asked for."""
    return _metadata(path).get(_DIGEST) == digest_of([*questions, *version]).encode()


def is_outdated(path: Path, questions: Sequence[Any]) -> bool:
    """Whether a file is there that was made for other questions; files from before they were kept pass."""
    kept = _metadata(path).get(_ASKED)
    return kept is not None and kept != digest_of(questions).encode()


def _metadata(path: Path) -> dict[bytes, bytes]:
    try:
        return dict(pq.read_schema(regular(path)).metadata or {})
    except (OSError, pa.ArrowException):
        return {}
