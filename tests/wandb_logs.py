"""What W&B's transaction logs hold, read back record by record with wandb's own messages."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def records(data: bytes) -> Iterator[bytes]:
    """The records of a transaction log: a file header of 7 bytes, then LevelDB's log format."""
    at, whole = 7, b""
    while at + 7 <= len(data):
        # A block's tail too short for a record's header is padding
        if 0 < (left := -at % 32768) < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)  # after the checksum
        if at + 7 + length > len(data):  # still being written
            return
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # full, or last part
            yield whole
            whole = b""


def log_records(file: Path) -> list[Any]:
    """The records of a closed run's log."""
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]  # generated

    # wandb's service writes the end of the log a moment after the run was closed
    for _ in range(200):
        parsed = list(map(Record.FromString, records(file.read_bytes())))
        if parsed and parsed[-1].HasField("exit"):
            break
        time.sleep(0.05)
    return parsed


def items(entries: Any) -> dict[str, Any]:
    """Keys and values of a record's items."""
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in entries}


def history(folder: Path) -> list[dict[str, Any]]:
    """The logged steps of the one run below a folder."""
    (file,) = folder.rglob("*.wandb")
    return [
        items(record.history.item) for record in log_records(file) if record.HasField("history")
    ]


def config(file: Path) -> dict[str, Any]:
    """The config of a run, as the last update of each key has it."""
    found: dict[str, Any] = {}
    for record in log_records(file):
        for part in (record.config, record.run.config):
            found |= items(part.update)
    return found


def summary(file: Path) -> dict[str, Any]:
    """The summary of a run."""
    found: dict[str, Any] = {}
    for record in log_records(file):
        found |= items(record.summary.update)
    return found


def header(file: Path) -> Any:
    """Name, group, job type and tags of a run."""
    return next(record.run for record in log_records(file) if record.HasField("run"))
