"""Files of probe results in run folders: ``probes/<name>-<digest>.parquet``.

The digest is that of the request, which follows from the study file alone; that of the ``version``
of the probe's class follows, if it has one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from actlab.config import identity
from actlab.storage import series
from actlab.storage.files import DamagedError, replacing
from actlab.studies.plan import Keep
from actlab.studies.rows import Row, frame_of
from actlab.studies.schema import ProbePart

_FILE = re.compile(r"(?P<name>.+)-(?P<asked>[0-9a-f]{16})(-[0-9a-f]{8})?\.parquet")


def request_of(
    probe: ProbePart, keep: Keep, known: dict[str, str | None] | None = None
) -> list[Any]:
    """Return the request: class, arguments, checkpoints, and the digests of files and code outside actlab."""
    named = {"class_path": probe.class_path, "init_args": probe.init_args}
    sources = identity.sources_of(named, known)
    rule = [keep.best, keep.mode] if "best" in probe.places else []
    return [probe.class_path, probe.init_args, probe.places, *sorted(sources.values()), *rule]


def wanted(probes: Iterable[ProbePart], keep: Keep) -> dict[str, str]:
    """Return how the digest of each probe's request begins."""
    return {probe.name: digest_of(request_of(probe, keep))[:16] for probe in probes}


def digest_of(questions: Sequence[Any]) -> str:
    """Return the digest of a request from `request_of`."""
    return hashlib.sha256(json.dumps(questions, sort_keys=True, default=str).encode()).hexdigest()


def file_of(folder: Path, name: str, questions: Sequence[Any], version: Sequence[Any] = ()) -> Path:
    """Return the path of the answer to a request; ``version`` is empty if the class has none."""
    suffix = f"-{digest_of(version)[:8]}" if version else ""
    return folder / "probes" / f"{name}-{digest_of(questions)[:16]}{suffix}.parquet"


def found_in(folder: Path) -> dict[str, tuple[str, Path]]:
    """Return the digest of the request that was answered, and the file, for each probe of a run's folder."""
    answered, probes = {}, folder / "probes"
    names = os.listdir(probes) if probes.is_dir() else ()  # noqa: PTH208 (pathlib takes ten times as long)
    for name in sorted(names):
        match = _FILE.fullmatch(name)
        if match and name[0] != ".":
            answered[match["name"]] = match["asked"], probes / name
    return answered


def answers(folder: Path, name: str, questions: Sequence[Any], version: Sequence[Any]) -> bool:
    """Return whether a run's folder has the undamaged answer to a request; arguments as for `file_of`."""
    file = file_of(folder, name, questions, version)
    if not file.exists():
        return False
    try:
        series.read(file)
    except DamagedError:
        return False
    return True


def write(file: Path, rows: Sequence[Row]) -> None:
    """Write the results of a probe in one run to a path from `file_of`, instead of its earlier results."""
    probe = _FILE.fullmatch(file.name)
    assert probe
    for name, (_, old) in found_in(file.parent.parent).items():
        if name == probe["name"]:
            old.unlink()
    with replacing(file) as partial:
        series.write(frame_of(rows), partial)
