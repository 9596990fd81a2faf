"""Files of probe results in run folders: ``probes/<name>-<digest>.parquet``.

The digest covers the request, which follows from the study file alone. If the probe's class has a
``version``, the digest of the version follows.
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
from actlab.storage.contents import ContentsByText
from actlab.storage.files import DamagedError, replacing
from actlab.studies.plan import Keep
from actlab.studies.rows import Row, frame_of
from actlab.studies.schema import ProbePart

_FILE = re.compile(r"(?P<name>.+)-(?P<request>[0-9a-f]{16})(-[0-9a-f]{8})?\.parquet")


def request_of(
    probe: ProbePart, keep: Keep, digests: ContentsByText | None = None
) -> list[Any]:
    """Return the request: class, arguments, checkpoints, and digests of files outside actlab.

    Digests in ``digests`` are not computed again; new ones are added to it.
    """
    config = {"class_path": probe.class_path, "init_args": probe.init_args}
    sources = identity.sources_of(config, digests)
    request: list[Any] = [probe.class_path, probe.init_args, probe.places]
    request += sorted(sources.values())
    # Another rule selects another best checkpoint
    if "best" in probe.places:
        request += [keep.best, keep.mode]
    return request


def requests_of(probes: Iterable[ProbePart], keep: Keep) -> dict[str, str]:
    """Return how the digest of each probe's request begins."""
    return {probe.name: digest_of(request_of(probe, keep))[:16] for probe in probes}


def digest_of(request: Sequence[Any]) -> str:
    """Return the digest of a request from `request_of`."""
    # Order of arguments does not matter
    text = json.dumps(request, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def file_of(
    folder: Path, name: str, request: Sequence[Any], version: Sequence[Any] = ()
) -> Path:
    """Return the path of the answer to a request; ``version`` is empty if the class has none."""
    stem = f"{name}-{digest_of(request)[:16]}"
    if version:
        stem += f"-{digest_of(version)[:8]}"
    return folder / "probes" / f"{stem}.parquet"


def found_in(folder: Path) -> dict[str, tuple[str, Path]]:
    """Return the digest of the answered request and the file, for each probe of a run's folder."""
    probes = folder / "probes"
    if not probes.is_dir():
        return {}

    answered = {}
    for name in sorted(os.listdir(probes)):  # noqa: PTH208 (pathlib takes ten times as long)
        # A hidden file is a partial one
        match = _FILE.fullmatch(name)
        if match and name[0] != ".":
            answered[match["name"]] = match["request"], probes / name
    return answered


def answers(
    folder: Path, name: str, request: Sequence[Any], version: Sequence[Any]
) -> bool:
    """Return whether a run's folder has the undamaged answer to a request; see `file_of`."""
    file = file_of(folder, name, request, version)
    if not file.exists():
        return False
    try:
        # Reading checks the file against its checksums
        series.read(file)
    except DamagedError:
        return False
    return True


def write(file: Path, rows: Sequence[Row]) -> None:
    """Write the results of a probe in one run to a path from `file_of`.

    They replace its earlier results.
    """
    match = _FILE.fullmatch(file.name)
    assert match

    # Results of an earlier request have another name
    earlier = found_in(file.parent.parent).get(match["name"])
    if earlier is not None:
        earlier[1].unlink()

    with replacing(file) as partial:
        series.write(frame_of(rows), partial)
