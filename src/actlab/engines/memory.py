"""Keeping what was freed for the next update."""

from __future__ import annotations

import ctypes
import os

GIB = 2**30
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)


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
