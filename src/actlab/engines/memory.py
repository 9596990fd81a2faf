"""How much memory the members of a stack need, what there is, and keeping what was freed."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch

GIB = 2**30
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)


def memory_bound(network: torch.nn.Module, batch: int) -> int:
    """How many members fit into half of the free memory: parameters, gradients, moments, activations.

    Args:
        network: of one member.
        batch: samples an update.
    """
    numbers = sum(p.numel() for p in network.parameters())
    widths = sum(layer.out_features for layer in network.modules() if isinstance(layer, torch.nn.Linear))
    each = 4 * (5 * numbers + 6 * batch * widths)  # float32; weights, gradient, two moments, a working copy
    return max(1, int(free_memory() / 2 / each))


def free_memory() -> int:
    """Bytes that the device of the runs has free."""
    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[0])
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return 4 * GIB
    available = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable"))
    return int(available.split()[1]) * 1024


def keep_freed() -> bool:
    """Let the C library keep freed memory (up to 2 GiB) for the next update instead of returning it.

    The gradients of a stack, some 12 MB, are freed and allocated again in every update. By default glibc gives
    them back to the system, which then hands out fresh pages one fault at a time: a fifth of an update
    (``benchmarks/stacks.py``, figure ``trimmed_vs_kept``). Settings in the environment (``MALLOC_…``) win.

    Returns:
        Whether this was set: not with a C library other than glibc.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    return bool(mallopt and mallopt(M_MMAP_THRESHOLD, GIB) and mallopt(M_TRIM_THRESHOLD, 2 * GIB - 1))
