"""What the finished runs of a large study recorded, in one file, so that they are read again in seconds.

The file saves time and is never needed. An entry holds for a run whose files still have the names, sizes and
modification times that they had when `actlab.analysis.reading` read them and checked their digests; any other
run is read from its own files. A file that is damaged, or from another version of this format, is ignored.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from actlab.storage.files import parsed, regular, replacing
from actlab.storage.series import Array
from actlab.studies.folders import METRICS, RESULT, UNITS

FILE = ".ended.arrow"
LEAST = 500  # runs that had to be read from their own files before the file is written again
SETTLED = 2.0  # seconds; a file may change once more without a new time, whose unit may be a second or two
PROBES = "probes"
_FORMAT = b"actlab ended 1\n"
_READ = ("config.yaml", METRICS, UNITS)  # files of a run, besides its result, that are read or checked
_BATCH = 5_000


class Entry(NamedTuple):
    """What one finished run recorded.

    Args:
        stamp: the result of `stamp_of` before the run was read.
        result: ``result.json`` without summaries, as JSON.
        shared: JSON that many runs have in common: names of the series and definitions of probes.
        values: the summary of each series, shape ``[series, 5]``.
    """

    stamp: str
    result: str
    shared: str
    values: Array


def stamp_of(folder: str, identity: str) -> str | None:
    """Return names, sizes and times of a finished run's files after its identity; None if it is unfinished."""
    if not (result := _line(folder, RESULT)):
        return None
    probes = sorted(f"{PROBES}/{name}" for name in _listed(f"{folder}/{PROBES}"))
    return "".join([identity, result, *(_line(folder, name) for name in (*_READ, *probes))])


def _listed(folder: str | Path) -> list[str]:
    """Return the names in a folder that do not begin with a dot; empty if there is no such folder."""
    try:
        with os.scandir(folder) as found:
            return [entry.name for entry in found if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _line(folder: str, name: str) -> str:
    """Return a file's line of a stamp; empty if there is no such file."""
    try:
        status = os.stat(f"{folder}/{name}")  # noqa: PTH116 (a path costs more than the call)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    text = name.encode("ascii", "backslashreplace").decode()
    return f"\n{text} {status.st_size} {status.st_mtime_ns}"


def changed(stamp: str, name: str = "") -> float:
    """Return the last time in a stamp, or that of the file ``name``, in seconds since 1970."""
    lines = [line for line in stamp.split("\n")[1:] if line.startswith(name)]
    return max(int(line.rpartition(" ")[2]) for line in lines) / 1e9


def finished_in(root: Path, wanted: Callable[[str], object]) -> list[str]:
    """Return the names of the finished runs in a study's folder; only names for which ``wanted`` is true."""
    return [name for name in _listed(root) if wanted(name) and (root / name / RESULT).exists()]


def read(root: Path) -> dict[str, Entry]:
    """Return the entries of a study's folder by run id; empty without a usable file."""
    try:
        content = memoryview(regular(root / FILE).read_bytes())
    except OSError:
        return {}
    digest, body = content[:32], content[32:]
    if bytes(digest) != _digest(body):
        return {}
    table = pa.ipc.open_stream(pa.py_buffer(body)).read_all().combine_chunks()
    ids, stamps, results, shared, values = (column.chunk(0) for column in table.columns)
    texts, numbers, places = shared.dictionary.to_pylist(), shared.indices.to_numpy(), values.offsets.to_numpy()
    flat = values.values.to_numpy().reshape(-1, 5)
    common = [texts[number] for number in numbers]
    arrays = [flat[begin:end] for begin, end in zip(places[:-1] // 5, places[1:] // 5, strict=True)]
    columns = (stamps.to_pylist(), results.to_pylist(), common, arrays)
    return dict(zip(ids.to_pylist(), map(Entry, *columns), strict=True))


def is_settled(stamp: str, now: float) -> bool:
    """Return whether no file of a stamp taken at the time ``now`` can have changed since without a new time."""
    return changed(stamp) < now - SETTLED


def write(root: Path, entries: Mapping[str, Entry]) -> None:
    """Write the entries of runs whose stamps were settled; do nothing if the folder cannot be written to."""
    stamps, results, shared, values = zip(*entries.values(), strict=True)
    offsets = np.cumsum([0, *(array.size for array in values)])
    table = pa.table(
        {
            "run": pa.array(entries),
            "stamp": pa.array(stamps),
            "result": pa.array(results),
            "shared": pa.array(shared).dictionary_encode(),
            "values": pa.LargeListArray.from_arrays(offsets, np.concatenate(values).ravel()),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    body = sink.getvalue()
    with suppress(OSError), replacing(root / FILE) as partial:
        partial.write_bytes(_digest(body) + bytes(body))


def _digest(body: Any) -> bytes:
    digest = hashlib.sha256(_FORMAT)
    digest.update(body)
    return digest.digest()


def results_of(entries: Iterable[Entry]) -> Iterator[Any]:
    """Yield the result of each entry; results that are parsed together share the memory of their keys."""
    yield from chain.from_iterable(map(_parsed, _batches([entry.result for entry in entries])))


def _parsed(texts: Sequence[str]) -> list[Any]:
    found: list[Any] = parsed(f"[{','.join(texts)}]")
    return found


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))
