"""How much memory the members of a stack need, what there is, and keeping what was freed."""

from __future__ import annotations

import ctypes
import os
import weakref
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from actlab.files import regular

GIB = 2**30
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # mallopt(3)


class PeakMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that live at a time, of those made while it is active.

    Works on any device; what an operation needs inside itself is not seen.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation and take note of the storages of its results."""
        results = func(*args, **(kwargs or {}))
        for result in tree_leaves(results):
            if isinstance(result, torch.Tensor):
                self._note(result.untyped_storage())
        return results

    def _note(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._known:
            self._known.add(key)
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._freed, key, storage.nbytes())

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def free_memory() -> int:
    """Bytes that the device of the runs has free."""
    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[0])
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return 4 * GIB
    available = next(
        line
        for line in regular(meminfo).read_text(encoding="utf-8").splitlines()
        if line.startswith("MemAvailable")
    )
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
