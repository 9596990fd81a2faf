"""What depends on a device, not on the network: accidents, and whether there is float64."""

from __future__ import annotations

import re

import torch
from pytorch_lightning.utilities.memory import is_oom_error
from torch import Tensor

from actlab.errors import LostDeviceError, described

_LIBRARIES = re.compile(r"CUBLAS|CUDNN|CUSOLVER|NCCL|MIOPEN|(CUDA|HIP|MPS) error|C\+\+ compil", re.IGNORECASE)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether Python, torch or an accelerator ran out of memory."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or is_oom_error(error)


def is_accident(error: BaseException) -> bool:
    """Return whether the same call may succeed at another time: no verdict follows from such an error."""
    compilers = any(kind.__module__.startswith(("torch._inductor", "triton")) for kind in type(error).__mro__)
    of_library = compilers or isinstance(error, torch.AcceleratorError) or _LIBRARIES.search(str(error))
    return bool(of_library) or is_out_of_memory(error)


def check_device(error: BaseException) -> None:
    """Raise `LostDeviceError` for an error after which every call on the accelerator fails, as an assert."""
    if isinstance(error, torch.AcceleratorError) and not is_out_of_memory(error):
        raise LostDeviceError(described(error)) from error


def has_float64(device: torch.device) -> bool:
    """Return whether a device computes in float64, as Apple's do not."""
    return device.type != "mps"


def wide(x: Tensor) -> Tensor:
    """Return a tensor in float64, on the CPU if its device has none."""
    return (x if has_float64(x.device) else x.cpu()).double()
