"""Rename finished runs to the current scheme: ``python -m actlab.studies.renaming runs/STUDY …``.

Until November 2026 a run's name ended in eight digits of a digest that covered only parts of large files. A run
is renamed if that digest of its current config, data and code still matches its name; other runs are listed and
left unchanged. The command trains and deletes nothing, and can be repeated after an interruption.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import yaml

from actlab.config import identity
from actlab.errors import ActlabError
from actlab.storage import contents
from actlab.storage.files import digest_of, parsed, read_json, regular, write_atomically, write_sealed
from actlab.studies.ended import finished_in
from actlab.studies.formats import Result
from actlab.studies.probe_files import record_of

_FORMER = re.compile(r"(.+)-([0-9a-f]{8})")
_SAMPLE, _BLOCK = 2**20, 2**18  # bytes that the old digest read at each end of a file, and per block between
# Sizes of published files; the old digest read them at both ends only.
_PUBLISHED = {14_997_006, 2_502_531, 87_616_935, 17_534_114, 91_278_075, 18_313_763}
_MOST_READ = 5_000  # files of a folder; of further files the old digest covered only the size
Known = dict[str, str | None]


def former_in(root: Path) -> list[Path]:
    """Return the folders of finished runs in a study's folder that have an old name."""
    return [root / name for name in sorted(finished_in(root, _FORMER.fullmatch))]


def notice(root: Path) -> str:
    """Return a line about finished runs with old names in a study's folder; empty without any."""
    if not (former := former_in(root)):
        return ""
    remedy = f"rename them with `python -m actlab.studies.renaming {root}`"
    return f"{len(former)} finished runs in {root} have names from before November 2026: {remedy}"


def rename(root: Path) -> tuple[dict[str, str], list[str]]:
    """Rename the finished runs of a study.

    Args:
        root: the study's folder.

    Returns:
        The new name by old name, and a line for each run that was not renamed.

    Raises:
        DamagedError: if a ``result.json`` is damaged.
    """
    names, left = {}, []
    known: Known = {}
    former: Known = {}
    for folder in former_in(root):
        slug, digest = _FORMER.fullmatch(folder.name).groups()  # type: ignore[union-attr]
        config = yaml.safe_load(regular(folder / "config.yaml").read_text(encoding="utf-8"))
        sources = identity.sources_of(config, known)
        whole = identity.identity_of(identity.counted(config, sources), sources)
        name = f"{slug}-{whole[: identity.DIGITS]}"
        if former_digest(config, former) != digest:
            left.append(f"{folder} is not renamed: its settings, data or code changed after training")
        elif (root / name).exists():
            left.append(f"{folder} is not renamed: {name} already exists")
        else:
            _write_name(folder, name, {"sources": sources, "identity": whole})
            names[folder.name] = folder.rename(root / name).name
    rewrite(root, names)
    return names, left


def former_digest(config: Mapping[str, Any], known: Known) -> str:
    """Return the eight digits that end an old name of a run with this config."""
    with mock.patch.object(contents, "digests_of", _former_digests):  # all else is unchanged
        found = identity.sources_of(config, known)
    sources = {text: " ".join(part[:16] for part in content.split()) for text, content in found.items()}
    return identity.identity_of(identity.counted(config, sources), sources)[:8]


def _former_digests(files: Sequence[Path]) -> dict[Path, Any]:
    most = max(4, 2**8 // max(1, len(files)))
    read = {file: _former_digest(file, file.stat().st_size, most) for file in files[:_MOST_READ]}
    return {**read, **{file: file.stat().st_size for file in files[_MOST_READ:]}}


def _former_digest(file: Path, size: int, most: int) -> str:
    """Return the old digest of a file: its size, both ends and at most ``most`` blocks between."""
    digest = hashlib.sha256(str(size).encode())
    first = min(size, _SAMPLE)
    last = max(first, size - _SAMPLE)
    starts = () if size in _PUBLISHED else range(first, last, max(_BLOCK, -(-(last - first) // most)))
    with regular(file).open("rb") as stream:
        digest.update(stream.read(first))
        for start in starts:
            stream.seek(start)
            digest.update(stream.read(min(_BLOCK, last - start)))
        stream.seek(last)
        digest.update(stream.read())
    return digest.hexdigest()


def _write_name(folder: Path, name: str, facts: Mapping[str, Any]) -> None:
    """Write a new name into the files of a run; write a record for probe files that name their questions."""
    for rows in sorted(folder.glob("probes/[!.]*.parquet")):
        said = pq.read_schema(regular(rows)).metadata or {}
        asked, answered = (said.get(key, b"").decode() for key in (b"actlab_probe_asked", b"actlab_probe"))
        if asked:
            content = {"run": name, "rows": digest_of(rows), "asked": asked, "answered": answered}
            write_sealed(record_of(rows), content)
    result = read_json(folder / "result.json", Result, "restore it")
    write_sealed(folder / "result.json", {**result, "id": name, **facts})
    point = parsed(regular(folder / "point.json").read_text(encoding="utf-8"))
    write_atomically(folder / "point.json", json.dumps({**point, "id": name}, indent=1))


def rewrite(folder: Path, names: Mapping[str, str]) -> None:
    """Replace old names by new names in the CSV and JSON files of a study's folder.

    Args:
        folder: the study's folder.
        names: new name by old name.
    """
    former = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)")

    def renamed(text: str) -> str:
        return former.sub(lambda name: names[name[0]], text)

    for file in sorted(folder.glob("[!.]*.csv")):
        write_atomically(file, renamed(regular(file).read_text(encoding="utf-8")))
    for file in sorted(folder.glob("[!.]*.json")):
        if "digest" in parsed(text := regular(file).read_text(encoding="utf-8")):
            found: Any = read_json(file, Any, "restore it")
            write_sealed(file, parsed(renamed(json.dumps(found))))
        else:
            write_atomically(file, renamed(text))


def main(folders: Sequence[str]) -> int:
    """Rename the finished runs of studies and print the result; return 1 if some runs were not renamed."""
    all_left = []
    for folder in folders:
        names, left = rename(Path(folder))
        print("\n".join([f"{folder}: {len(names)} runs renamed", *left]))
        all_left += left
    return 1 if all_left else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ActlabError as error:
        sys.exit(f"actlab: error: {error}")
