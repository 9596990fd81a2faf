"""The SOI map as a single Triton kernel for CUDA devices.

The forward pass reads x, writes x·m and saves x, but no mask; the backward pass draws the mask again from the
same keys. The uniform numbers equal those of `actlab.random.streams.uniform` bit for bit. Triton's erf differs
from torch's, so a mask may differ from the plain form's where u and Φ(x) agree to seven digits.

`actlab.activations.stochastic` imports this module when a tensor is on a CUDA device and Triton is installed.
With ``TRITON_INTERPRET=1`` in the environment, Triton runs the kernel slowly on the CPU; this allows tests
without a GPU.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _mask_kernel(t, x, y, keys, size, per_run, runs, first, mu, scale, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write t·m to y, m ~ Bernoulli(Φ((x − μ)/σ)), scale = 1/(σ√2); see `actlab.random.hashing.hash_words`."""
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offset < size
    run = offset // per_run
    h = (offset - run * per_run + first).to(tl.int32) ^ tl.load(keys + run, mask=inside, other=0)
    h ^= (h >> 16) & 0xFFFF
    h *= 0x7FEB352D
    h ^= tl.load(keys + runs + run, mask=inside, other=0)
    h ^= (h >> 15) & 0x1FFFF
    h *= -0x7B935975
    h ^= (h >> 16) & 0xFFFF
    u = ((h >> 8) & 0xFFFFFF).to(tl.float32) * 5.9604644775390625e-08  # 2⁻²⁴
    value = tl.load(x + offset, mask=inside, other=0.0).to(tl.float32)
    kept = u < 0.5 + 0.5 * tl.erf((value - mu) * scale)
    masked = tl.load(t + offset, mask=inside, other=0.0)
    tl.store(y + offset, tl.where(kept | (masked != masked), masked, 0.0), mask=inside)  # nan stays nan


class _Masked(torch.autograd.Function):
    """The product t·m(x). It is linear in t, so its backward applies the same kernel to the gradient."""

    @staticmethod
    def forward(ctx: Any, t: Tensor, x: Tensor, keys: Tensor, first: int, mu: float, sigma: float) -> Tensor:
        """Apply the kernel to t."""
        ctx.save_for_backward(x, keys)
        ctx.settings = first, mu, sigma
        t, x = t.contiguous(), x.contiguous()
        y = torch.empty_like(x)
        runs, size = keys.shape[1], x.numel()
        scale = 1 / (sigma * math.sqrt(2))
        grid = (triton.cdiv(size, BLOCK),)
        _mask_kernel[grid](t, x, y, keys, size, size // runs, runs, first, mu, scale, BLOCK)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, keys = ctx.saved_tensors
        gradient = _Masked.apply(gradients[0], x, keys, *ctx.settings)  # type: ignore[no-untyped-call]
        return gradient, None, None, None, None, None


def soi(x: Tensor, keys: Tensor, first: int, mu: float = 0.0, sigma: float = 1.0) -> Tensor:
    """Return x·m with m ~ Bernoulli(Φ((x − μ)/σ)); the gradient is m.

    Args:
        x: shape ``(R, *)``, float16, bfloat16 or float32, on a CUDA device.
        keys: int32 ``(2, R, 1)``, contiguous: two words per run, from `actlab.random.streams.Uniform.position`.
        first: number of the first element of each run.
        mu: location of the normal distribution.
        sigma: scale of the normal distribution.

    Returns:
        A tensor of the shape and dtype of ``x``.
    """
    y: Tensor = _Masked.apply(x, x.detach(), keys, first, mu, sigma)  # type: ignore[no-untyped-call]
    return y
