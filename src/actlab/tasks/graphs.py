"""Whether updates are replayed as CUDA graphs: if the user, or a comparison on the device, says so.

A device has shown them right if `benchmarks/gpu_*.json` holds a comparison on a device of its kind,
under the key ``correct``: training with and without graphs leaves the same weights in every case,
in every bit or as far as two trainings without graphs. A comparison of fewer than `CASES` was cut
off, and shows nothing.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from actlab.runtime import devices
from actlab.storage.json_files import read_json
from actlab.storage.resources import resource

OFF = "CUDA graphs are off for this device: turn them on with --graphs"
SAME = {"bits", "noise"}  # verdicts on equal weights
CASES = 29  # of a complete comparison, at least


def are_used(device: torch.device) -> bool:
    """Return whether updates on a CUDA device are replayed as graphs."""
    if devices.graphs is None:
        return are_shown(devices.name_of(device))
    return devices.graphs


@cache
def are_shown(name: str) -> bool:
    """Return whether a device of this name has shown graphs to be right."""
    for path in resource("benchmarks").glob("gpu_*.json"):
        measured = read_json(path, dict[str, Any], "Install actlab again.")
        if "correct" not in measured:
            continue
        about = measured["correct"]["about"]
        rows = measured["correct"]["rows"]
        if about["device"] != name or about["smoke"] or len(rows) < CASES:
            continue

        # In some cases no update was replayed, which shows nothing.
        verdicts = {row["verdict"] for row in rows} - {"eager"}
        if verdicts and verdicts <= SAME:
            return True
    return False
