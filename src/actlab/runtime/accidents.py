"""What depends on a device, not on the network: accidents, and whether there is float64."""

from __future__ import annotations

import re
from subprocess import SubprocessError

import torch
from pytorch_lightning.utilities.memory import is_oom_error
from torch import Tensor

from actlab.errors import LostDeviceError
from actlab.errors.messages import described

# A capture of a CUDA graph has failed here, which leaves torch's generators and memory
# in a wrong state.
harmed = False
_LIBRARIES = re.compile(
    r"(?i)CUBLAS|CUDNN|CUSOLVER|NCCL|MIOPEN|(CUDA|HIP|MPS) error|C\+\+ compil"
    r"|DataLoader (worker \(|timed out)"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether Python, torch or an accelerator ran out of memory."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or is_oom_error(
        error
    )


def is_accident(error: BaseException) -> bool:
    """Return whether the same call may succeed at another time, so that no verdict follows."""
    # Errors of the machine
    if isinstance(error, torch.AcceleratorError | OSError | SubprocessError):
        return True
    if is_out_of_memory(error) or _LIBRARIES.search(str(error)):
        return True

    # Errors of compilers
    for kind in type(error).__mro__:
        if kind.__module__.startswith(("torch._inductor", "triton")):
            return True
    return error.__cause__ is not None and is_accident(error.__cause__)


def check_device(error: BaseException) -> None:
    """Raise `LostDeviceError` for an error, as an assert, after which the accelerator fails."""
    if isinstance(error, torch.AcceleratorError) and not is_out_of_memory(error):
        raise LostDeviceError(described(error)) from error


def has_float64(device: torch.device) -> bool:
    """Return whether a device computes in float64, as Apple's do not."""
    return device.type != "mps"


def wide(x: Tensor) -> Tensor:
    """Return a tensor in float64, on the CPU if its device has none."""
    if not has_float64(x.device):
        x = x.cpu()
    return x.double()
