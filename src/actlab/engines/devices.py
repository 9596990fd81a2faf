"""The devices of this computer as training uses them: threads of torch, ranks of processes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning_fabric.utilities import rank_zero

from actlab.studies.folders import hardware

SMALL = 400  # samples an update
_GIB = 2**30
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)


def threads_for(samples: int) -> int:
    """How many threads pay for updates of so many samples, over all members of a stack.

    Below `SMALL` samples a second thread gains at most a quarter alone, and on a busy machine it loses many
    times as much, waiting for the first.
    """
    return 1 if samples < SMALL and not torch.cuda.is_available() else torch.get_num_threads()


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Let torch use some number of threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def rank() -> int:
    """Number of this process among those that train on several devices; 0 is the first, which records."""
    return int(getattr(rank_zero.rank_zero_only, "rank", 0))


def wait_for(device: torch.device) -> None:
    """Let a device finish what it was given; a CPU has."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def name_of(device: torch.device) -> str:
    """The accelerator, or the processor and the number of its cores."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else hardware()


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
    return bool(mallopt and mallopt(_M_MMAP_THRESHOLD, _GIB) and mallopt(_M_TRIM_THRESHOLD, 2 * _GIB - 1))
