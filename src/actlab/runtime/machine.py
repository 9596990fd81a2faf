"""Where numbers were computed: versions of packages, the processor and how busy it was."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

# Processor time per second, in seconds, that a timing gets on an idle machine.
LEAST_SHARE = 0.9
_PACKAGES = ("actlab", "torch", "pytorch-lightning", "torchmetrics")


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of packages that affect a run's numbers, for provenance."""
    versions = {name: version(name) for name in _PACKAGES}
    versions["python"] = platform.python_version()
    return versions


@cache
def hardware() -> str:
    """Return the processor's name and number of cores, for provenance."""
    return f"{_processor()}, {os.cpu_count()} cores"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def is_busy(load: float, cores: int, share: float | None) -> bool:
    """Return whether other programs disturbed a timing.

    ``load`` is the average of the last minute, ``share`` the processor time per second, None if
    unknown.
    """
    return load > cores + 1 or (share is not None and share < LEAST_SHARE)
