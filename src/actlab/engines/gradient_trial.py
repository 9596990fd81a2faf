"""Compare the gradient of an activation with difference quotients, before a study trains anything.

Kinks, jumps and plateaus are no faults: few inputs lie next to them, and the derivative exists elsewhere.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from actlab import activations
from actlab.random.seeding import own_generators

POINTS = 2048  # inputs that are compared
SPREAD = 2.0  # standard deviation of the inputs: also the tails of the usual activations
TOLERANCE = 1e-3  # relative to 1 + |slope|
MOST = 0.01  # share of inputs next to kinks and jumps; a larger share is wrong
DIRECTIONS = 8  # in which activations that mix elements, and parameters, are compared
# The long step serves activations that compute in float32, whatever the dtype of their input.
_WAYS = ((torch.float64, 1e-6), (torch.float64, 3e-3), (torch.float32, 3e-3))


def fault_of_gradient(unit: nn.Module, like: Tensor) -> str | None:
    """Return a message for an undeclared gradient that is not the derivative of the output, or None."""
    if activations.has_surrogate_gradient(unit):
        return None
    share = wrong_share(unit, like)
    if not share:
        return None
    return (
        f"has a gradient that {differs(share)}: correct its backward pass or, if this is intended as in a "
        "straight-through estimator, set 'surrogate_gradient = True' on its class or function"
    )


def differs(share: float) -> str:
    """Return how a gradient differs, in words.

    >>> differs(0.504)
    'differs from the difference quotient at 50 % of inputs'
    """
    return f"differs from the difference quotient at {100 * share:.0f} % of inputs"


def wrong_share(unit: nn.Module, like: Tensor) -> float | None:
    """Return the share of inputs at which the gradient differs from the difference quotient, in the worse mode.

    The activation is compared in training, with the same random numbers in each call, and in evaluation. If it
    mixes elements, derivatives of a random sum of its outputs along random directions are compared, as they are
    for its parameters. A share up to `MOST` is 0, as kinks explain it. None if nothing can be compared, because
    calls with the same random numbers differ or raise.

    The activation must have been called once. Do not use it afterwards: if it cannot be copied, its dtype, mode
    and parameters change.
    """
    found = [_share_in_mode(unit, like, training) for training in (True, False)]
    return max((share for share in found if share is not None), default=None)


def _share_in_mode(unit: nn.Module, like: Tensor, training: bool) -> float | None:
    """Return the smallest share that a precision and step give; 0 ends the search."""
    shares = []
    for dtype, step in _WAYS:
        try:
            share = _Comparison(_copied(unit).to(dtype).train(training), like, dtype, step).share()
        except Exception:  # third-party code may raise anything, for example for float64
            continue
        if share == 0:
            return share
        shares += [share] if share is not None else []
    return min(shares, default=None)


def _copied(unit: nn.Module) -> nn.Module:
    """Return a copy, or the activation itself if it holds something that cannot be copied."""
    try:
        return copy.deepcopy(unit)
    except Exception:  # for example of an output that it keeps
        return unit


class _Comparison:
    """Compares the gradients of one copy of an activation with difference quotients, of half-width ``step``."""

    def __init__(self, unit: nn.Module, like: Tensor, dtype: torch.dtype, step: float) -> None:
        self.unit, self.step = unit, step
        self.generator = torch.Generator().manual_seed(0)
        rows = max(2, -(-POINTS * len(like) // max(1, like.numel())))
        self.x = (SPREAD * self._normal((rows, *like.shape[1:]), dtype)).requires_grad_()

    def share(self) -> float | None:
        """Return the share of inputs, or of directions, at which gradients differ; see `wrong_share`."""
        share = self._elementwise()
        if share > MOST:
            if not _close(self._call(self.x), self._call(self.x)):
                return None
            share = self._along([self.x]) if self._mixes() else share
        learnt = [parameter for parameter in self.unit.parameters() if parameter.requires_grad]
        share = max(share, self._along(learnt) if learnt else 0)
        return share if share > MOST else 0

    def _normal(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.randn(tuple(shape), generator=self.generator, dtype=dtype)

    def _call(self, x: Tensor) -> Tensor:
        """Return the output for ``x``, with the same random numbers in each call."""
        with own_generators(0):
            y: Tensor = self.unit.forward(x.clone())
        return y

    def _elementwise(self) -> float:
        """Return the share of elements whose derivative is not the change of their own output."""
        up, down = self.x.detach() + self.step, self.x.detach() - self.step
        slope = ((self._call(up) - self._call(down)) / (up - down)).detach()
        (gradient,) = _gradients(self._call(self.x).sum(), [self.x])
        return float(((gradient - slope).abs() > TOLERANCE * (1 + slope.abs())).double().mean())

    def _mixes(self) -> bool:
        """Return whether outputs depend on other elements than their own."""
        x = self.x.detach()
        kept = torch.rand(x.shape, generator=self.generator) < 0.5
        return not _close(self._call(torch.where(kept, x, x + 1))[kept], self._call(x)[kept])

    def _along(self, leaves: Sequence[Tensor]) -> float:
        """Return the share of random directions along which derivatives differ; 0 up to one half."""
        wrong = 0
        for _ in range(DIRECTIONS):
            self._move(leaves, 0.01, [self._normal(leaf.shape, leaf.dtype) for leaf in leaves])  # off a kink
            along = [self._normal(leaf.shape, leaf.dtype) for leaf in leaves]
            weights = self._normal(self.x.shape, self.x.dtype)
            gradients = _gradients((self._call(self.x) * weights).sum(), leaves)
            expected = sum(float((g * d).sum()) for g, d in zip(gradients, along, strict=True))
            self._move(leaves, self.step, along)
            up = self._call(self.x).detach()
            self._move(leaves, -2 * self.step, along)
            slope = float(((up - self._call(self.x).detach()) * weights).sum()) / (2 * self.step)
            self._move(leaves, self.step, along)
            wrong += abs(expected - slope) > TOLERANCE * (1 + abs(slope))
        return wrong / DIRECTIONS if wrong > DIRECTIONS / 2 else 0

    @staticmethod
    def _move(leaves: Sequence[Tensor], step: float, along: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for leaf, direction in zip(leaves, along, strict=True):
                leaf.add_(direction, alpha=step)


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-9, atol=1e-12, equal_nan=True)


def _gradients(value: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients of a scalar; zeros where it does not depend on a leaf."""
    if not value.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(value, [*leaves], allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]
