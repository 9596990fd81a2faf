"""The backend of float32 matmuls on the CPU: torch's default, or oneDNN where it is as exact and faster.

On AMD processors only oneDNN uses AVX-512. Torch sends float32 matmuls to oneDNN under a setting that also
allows bfloat16, which oneDNN uses on processors with AMX: `exact` measures the error of both, so no precision
is lost. Which one is faster depends on the network: oneDNN multiplies the matrices of an MLP faster and makes
attention several times slower, so a study times its own updates (`actlab.engines.timing`).
"""

from __future__ import annotations

import time

import torch

from actlab.errors import unknown

DEFAULT, ONEDNN, AUTO = "default", "onednn", "auto"
_SETTINGS = {DEFAULT: "none", ONEDNN: "bf16"}
LESS_EXACT = 4.0  # largest error, as a multiple of the default's: room for another order of summation
FASTER = 0.9  # largest time, as a share of the default's: a smaller gain is not worth another order of sums
ROUNDS = 12


def use(route: str) -> str:
    """Set the matmul backend of this process, ``default`` or ``onednn``; with a GPU it stays the default."""
    if route not in _SETTINGS:
        raise unknown("matmul backend", route, [*_SETTINGS, AUTO])
    # Lightning asks torch for one precision of all backends, which torch rejects where theirs differ.
    route = DEFAULT if torch.cuda.is_available() else route
    torch.backends.mkldnn.matmul.fp32_precision = _SETTINGS[route]  # type: ignore[attr-defined]
    return route


def exact() -> list[str]:
    """Return the backends that are exact enough on this processor, by measurement; the default is the first."""
    if torch.cuda.is_available():
        return [DEFAULT]
    products = measured()
    return [route for route, (error, _) in products.items() if error <= LESS_EXACT * products[DEFAULT][0]]


def choose() -> str:
    """Return the backend for MLPs: the faster of those that are exact enough on this processor."""
    products = measured()
    (error, seconds), (default_error, default_seconds) = products[ONEDNN], products[DEFAULT]
    close, faster = error <= LESS_EXACT * default_error, seconds <= FASTER * default_seconds
    return ONEDNN if close and faster else DEFAULT


def measured() -> dict[str, tuple[float, float]]:
    """Return (largest absolute error over largest absolute value, shortest time in seconds) of each backend."""
    source = torch.Generator().manual_seed(0)
    # The first layer of an MLP for MNIST, in a stack of eight runs.
    left, right = torch.randn(8, 128, 784, generator=source), torch.randn(8, 784, 128, generator=source)
    exact = left.double() @ right.double()
    errors: dict[str, float] = {}
    seconds = dict.fromkeys(_SETTINGS, float("inf"))
    before = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
    try:
        for _ in range(ROUNDS):
            for route in _SETTINGS:
                use(route)
                start = time.perf_counter()
                product = left @ right
                seconds[route] = min(seconds[route], time.perf_counter() - start)
                error = (product - exact).abs().max() / exact.abs().max()
                errors.setdefault(route, float(error))
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before  # type: ignore[attr-defined]
    return {route: (errors[route], seconds[route]) for route in _SETTINGS}
