"""The route of float32 matrix products on the CPU: torch's own, or oneDNN where it is as exact and faster.

On AMD processors torch's library leaves AVX-512 unused. oneDNN does not, but torch sends it float32 products
only under a setting that also allows it bfloat16, which it takes where the processor has units for that (AMX).
So the error is measured: precision is never given up.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from actlab.errors import unknown

DEFAULT, ONEDNN, AUTO = "default", "onednn", "auto"
_SETTINGS = {DEFAULT: "none", ONEDNN: "bf16"}
LESS_EXACT = 4.0  # times the error of the default route: what summing in another order may do
FASTER = 0.9  # of its time, at most: less is no gain worth another order of sums
ROUNDS = 12


def use(route: str) -> None:
    """Take a route from now on, in this process.

    Raises:
        ActlabError: for a route that is none.
    """
    if route not in _SETTINGS:
        raise unknown("route of products", route, [*_SETTINGS, AUTO])
    torch.backends.mkldnn.matmul.fp32_precision = _SETTINGS[route]  # type: ignore[attr-defined]


def choose() -> str:
    """The route that is exact and fastest on this processor, measured."""
    found = measured()
    (error, seconds), (default_error, default_seconds) = found[ONEDNN], found[DEFAULT]
    exact, faster = error <= LESS_EXACT * default_error, seconds <= FASTER * default_seconds
    return ONEDNN if exact and faster else DEFAULT


def measured() -> dict[str, tuple[float, float]]:
    """Largest relative error and seconds of each route, for products as a stack of small networks has them."""
    source = torch.Generator().manual_seed(0)
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
                errors.setdefault(route, _error(product, exact))
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before  # type: ignore[attr-defined]
    return {route: (errors[route], seconds[route]) for route in _SETTINGS}


def _error(product: Tensor, exact: Tensor) -> float:
    return float((product - exact).abs().max() / exact.abs().max())
