"""What the finished runs of a large study recorded, in one file, so that they are read again in seconds.

The file saves time and is never needed. An entry holds for a run whose files still have the names, sizes and
modification times that they had when `actlab.analysis.reading` read them and checked their digests; any other
run is read from its own files. A file that is damaged, or from another version of this format, is ignored.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_READ = {RESULT, UNITS, "config.yaml", METRICS}  # files of a run that are read or checked
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
    try:
        with os.scandir(folder) as found:
            files = {entry.name: entry for entry in found if entry.name in _READ or entry.name == PROBES}
        if RESULT not in files:
            return None
        probes = files.pop(PROBES, None)
        lines = [_line(entry) for entry in files.values()]
        if probes:
            with os.scandir(probes.path) as found:
                lines += [f"{PROBES}/{_line(entry)}" for entry in found if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return None
    return "\n".join([identity, *sorted(lines)])


def _line(entry: os.DirEntry[str]) -> str:
    status = entry.stat()
    return f"{entry.name} {status.st_size} {status.st_mtime_ns}"


def changed(stamp: str) -> float:
    """Return the last time in a stamp, in seconds since 1970."""
    return max(int(line.rpartition(" ")[2]) for line in stamp.split("\n")[1:]) / 1e9


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


def write(root: Path, entries: Mapping[str, Entry]) -> None:
    """Write the entries of runs whose files have settled; do nothing where the folder cannot be written to."""
    latest = time.time() - SETTLED
    kept = {name: entry for name, entry in entries.items() if changed(entry.stamp) < latest}
    if not kept:
        return
    stamps, results, shared, values = zip(*kept.values(), strict=True)
    offsets = np.cumsum([0, *(array.size for array in values)])
    table = pa.table(
        {
            "run": pa.array(kept),
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
