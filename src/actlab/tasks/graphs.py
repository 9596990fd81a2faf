"""Whether updates are replayed as CUDA graphs: if the user says so, or where they were shown to be right.

A device has shown them right if `benchmarks/gpu_*.json` holds a comparison on a device of its kind,
under the key ``correct``: training with and without graphs leaves the same weights in every case,
in every bit or as far as two trainings without graphs. A comparison of fewer than `CASES` was cut
off, and shows nothing.
"""

from __future__ import annotations

from functools import cache

import torch
from typing_extensions import TypedDict

from actlab.runtime import devices
from actlab.storage.json_files import read_json
from actlab.storage.resources import resource

OFF = "CUDA graphs are off for this device: turn them on with --graphs"
SAME = {"bits", "noise"}  # verdicts on equal weights
CASES = 29  # of a complete comparison, at least


class _Device(TypedDict):
    device: str
    smoke: bool


class _Case(TypedDict):
    verdict: str


class _Comparison(TypedDict):
    about: _Device
    rows: list[_Case]


class _Measured(TypedDict, total=False):
    correct: _Comparison


def are_used(device: torch.device) -> bool:
    """Return whether updates on a CUDA device are replayed as graphs."""
    wanted = devices.graphs
    return are_shown(devices.name_of(device)) if wanted is None else wanted


@cache
def are_shown(name: str) -> bool:
    """Return whether a device of this name has shown graphs to be right."""
    for path in sorted(resource("benchmarks").glob("gpu_*.json")):
        found = read_json(path, _Measured, "install actlab again").get("correct")
        if found is None or found["about"]["device"] != name or found["about"]["smoke"]:
            continue
        if len(found["rows"]) < CASES:
            continue
        verdicts = {row["verdict"] for row in found["rows"]}
        if verdicts & SAME and verdicts <= SAME | {"eager"}:  # in some cases no update was replayed
            return True
    return False
