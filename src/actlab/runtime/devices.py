"""Devices for training: CPU threads, accelerators, ranks and memory allocation."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning_fabric.utilities import rank_zero

from actlab.runtime.machine import hardware

# Environment variable: the accelerators that a process sees.
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Whether updates are replayed as CUDA graphs; None: on devices that have shown graphs
# to be right.
graphs: bool | None = None
_GIB = 2**30
_M_TRIM_THRESHOLD = -1  # of mallopt(3)
_M_MMAP_THRESHOLD = -3


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Set the number of torch's threads within a block; training has one, for equal digits."""
    # A second thread gains at most a quarter on an idle machine and loses much more on
    # a busy one, by waiting.
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def accelerators() -> list[str]:
    """Return the names of accelerators, as values of `VISIBLE`, by falling free memory.

    Of several GPUs, those with less than 1 GiB are left out, unless all are. Names of slices of a
    GPU (MIG) are all returned, in the user's order: torch counts only the first slice.
    """
    # List the names that the user made visible, or the numbers of all devices.
    visible = os.environ.get(VISIBLE) or ""
    names = visible.split(",")
    if "MIG-" in visible:
        return names

    # CUDA ignores a name without a device, and all names after it.
    number = torch.accelerator.device_count()
    names = names[:number] if visible else [str(device) for device in range(number)]
    if number < 2:
        return names

    # Order by whole GiB, so that devices without work keep their order.
    free = {name: free_memory(device) // _GIB for device, name in enumerate(names)}
    names.sort(key=lambda name: -free[name])
    return [name for name in names if free[name]] or names


def free_memory(device: int) -> int:
    """Return the free bytes of a GPU's memory; 0 without CUDA or if this process cannot use it."""
    if not torch.cuda.is_available():
        return 0
    try:
        return torch.cuda.mem_get_info(device)[0]
    except RuntimeError:  # no room for this process, or another process has it alone
        return 0


def peak_share() -> float:
    """Return the largest share of the GPU's memory in use since the last call; 0 on a CPU.

    The whole is the memory that other processes leave free.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return 0.0
    room = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    return peak / room


def rank() -> int:
    """Return the rank of this process in multi-device training; rank 0 records."""
    return int(getattr(rank_zero.rank_zero_only, "rank", 0))


def wait_for(device: torch.device) -> None:
    """Wait until an accelerator has finished its queued work; return at once for the CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def name_of(device: torch.device) -> str:
    """Return the name of the GPU, or the processor and the number of its cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return hardware()


def keep_freed() -> None:
    """Let glibc keep freed memory (up to 2 GiB) for the next update, unless the user sets it."""
    # Else page faults take a fifth of an update's time (``benchmarks/stacks.py``,
    # figure ``trimmed_vs_kept``).
    if os.name != "posix" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        mallopt(_M_MMAP_THRESHOLD, _GIB)
        mallopt(_M_TRIM_THRESHOLD, 2 * _GIB - 1)
