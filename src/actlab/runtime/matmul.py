"""The backend of float32 matmuls on the CPU: torch's default, or oneDNN if as exact and faster.

On AMD processors only oneDNN uses AVX-512. Torch sends float32 matmuls to oneDNN under a setting
that also allows bfloat16, which oneDNN uses on processors that compute with it: `is_exact` tells
them apart, so no precision is lost. oneDNN multiplies the matrices of an MLP up to 2.4 times
faster, and makes attention several times slower. The choice depends on the network and the kind of
processor alone, so that digits do not depend on how busy a machine is.
"""

from __future__ import annotations

from functools import cache

import torch

from actlab.errors.messages import unknown
from actlab.runtime.machine import hardware

DEFAULT = "default"
ONEDNN = "onednn"
AUTO = "auto"
_SETTINGS = {DEFAULT: "none", ONEDNN: "bf16"}
# Largest error, as a multiple of the default's: room for another order of summation.
LESS_EXACT = 4.0


def use(name: str) -> str:
    """Set the matmul backend of this process, ``default`` or ``onednn``, and return it.

    With a GPU it stays the default.
    """
    if name not in _SETTINGS:
        raise unknown("matmul backend", name, [*_SETTINGS, AUTO])

    # Lightning asks torch for one precision of all backends, which torch rejects if
    # they differ.
    if torch.cuda.is_available():
        name = DEFAULT
    torch.backends.mkldnn.matmul.fp32_precision = _SETTINGS[name]  # type: ignore[attr-defined]
    return name


def backend() -> str:
    """Return the matmul backend of this process."""
    precision = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
    if precision == _SETTINGS[ONEDNN]:
        return ONEDNN
    return DEFAULT


def for_mlps() -> str:
    """Return the backend for networks of linear layers on this kind of processor."""
    if torch.cuda.is_available() or "AMD" not in hardware():
        return DEFAULT
    if torch.backends.cpu.get_cpu_capability() == "AVX512" and is_exact():
        return ONEDNN
    return DEFAULT


@cache
def is_exact() -> bool:
    """Return whether oneDNN's products are as exact as the default backend's."""
    # Shapes of a stack's first layer on MNIST images
    source = torch.Generator().manual_seed(0)
    a = torch.randn(8, 128, 784, generator=source)
    b = torch.randn(8, 784, 128, generator=source)
    exact = a.double() @ b.double()

    # Measure the error of each backend.
    backend_before = backend()
    errors = {}
    try:
        for name in _SETTINGS:
            use(name)
            error = (a @ b - exact).abs()
            errors[name] = float(error.max())
    finally:
        use(backend_before)
    return errors[ONEDNN] <= LESS_EXACT * errors[DEFAULT]
