"""Draw the uniform numbers and masks of a site, by plain functions or by compiled ones.

Shapes: ``R`` runs, ``N`` elements of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from actlab.random.hashing import hash_words, to_unit_interval

# The functions after `compile_masks`; None: nothing is compiled.
_compiled: dict[Callable[..., Any], Callable[..., Any]] | None = None
counters: dict[
    torch.device, Tensor
] = {}  # 0, 1, 2, … on each device, up to the largest end so far


class Source(NamedTuple):
    """What determines the uniform numbers of a site."""

    elements: Tensor  # numbers of the elements, (N,)
    first_key: Tensor  # of each run, (R, 1)
    second_key: Tensor
    # The numbers, (1, R, N), if they were drawn together with other sites.
    drawn: list[Tensor]


def elements(begin: int, end: int, device: torch.device) -> Tensor:
    """Return ``begin`` … ``end`` − 1, int32: a slice of the one counter of a device."""
    if torch.compiler.is_compiling():
        # A whole network: the counter is fused with its use.
        return torch.arange(begin, end, dtype=torch.int32, device=device)

    counter = counters.get(device)
    if counter is None or len(counter) < end:
        counter = torch.arange(end, dtype=torch.int32, device=device)
        counters[device] = counter
    return counter[begin:end]


def uniform(source: Source | None, x: Tensor) -> Tensor:
    """Return uniform float32 numbers in [0, 1) in the shape and on the device of ``x``, ``(R, *)``.

    The numbers are multiples of 2⁻²⁴, below ``p`` with probability ``p`` to 6e-8. Without a source
    they come from torch's own generator.
    """
    if source is None:
        return torch.rand_like(x, dtype=torch.float32)

    if source.drawn:
        return source.drawn.pop().view(x.shape)
    words = hash_words(source.elements, source.first_key, source.second_key)
    return to_unit_interval(words).view(x.shape)


def keep(source: Source | None, x: Tensor, p: float | Tensor) -> Tensor:
    """Return a mask like ``x``: 0 with probability ``p``, else 1 / (1 − p)."""
    # Plain numbers are compared in float32 too.
    threshold = p.to(torch.float32) if isinstance(p, Tensor) else p
    mask = uniform(source, x).ge_(threshold)

    # Scale in float32 or better.
    precise = torch.float64 if x.dtype == torch.float64 else torch.float32
    return mask.to(precise).mul_(1 / (1 - p)).to(x.dtype)


def compile_masks() -> None:
    """Fuse the functions that draw masks by ``torch.compile``, each at its first draw.

    Each is compiled for the device of its tensor. Numbers and masks stay the same bit for bit:
    these functions only hash integers, compare, multiply and add. On the CPU this needs a C++
    compiler; without a compiler the plain functions stay in use, and a line says why.
    """
    global _compiled
    if _compiled is None:
        _compiled = {}
        settings = torch._dynamo.config
        # A study may have many shapes.
        settings.recompile_limit = max(64, settings.recompile_limit)


def are_compiled() -> bool:
    """Return whether `compile_masks` was called, and no compilation has failed since."""
    return _compiled is not None


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` compiled to one pass over memory if `are_compiled`, else itself."""
    if _compiled is None or torch.compiler.is_compiling():
        return function
    if function not in _compiled:
        _compiled[function] = partial(_call, function, torch.compile(function))
    return _compiled[function]


def _call(
    function: Callable[..., Any], compiled: Callable[..., Any], *args: Any
) -> Any:
    """Call ``compiled``, or if that fails ``function``, which is used from then on."""
    global _compiled
    try:
        return compiled(*args)
    except (RuntimeError, OSError) as error:
        masks = function(*args)  # raises the error again if it is not the compiler's
        _compiled = None
        reason = str(error).strip().partition("\n")[0]
        print(
            f"masks are not compiled ({reason}): dropout and stochastic activations run slower",
            flush=True,
        )
        return masks
