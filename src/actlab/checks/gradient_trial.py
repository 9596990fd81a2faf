"""Compare the derivatives of an activation with difference quotients, before a study trains anything.

Kinks, jumps and plateaus are no faults: few inputs lie next to them, and the derivative exists
elsewhere.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import torch
from torch import Tensor, nn

from actlab import activations
from actlab.errors.messages import described
from actlab.random.seeding import own_generators
from actlab.tasks.building import materialise

POINTS = 2048  # inputs that are compared
SPREAD = 2.0  # standard deviation of the inputs: also the tails of the usual activations
TOLERANCE = 1e-3  # relative to 1 + |slope|
MOST = 0.01  # share of inputs next to kinks and jumps; a larger share is wrong
DIRECTIONS = 8  # in which activations that mix elements, and parameters, are compared
ORDERS = {1: "gradient", 2: "second derivative", 3: "third derivative"}
ROWS = 2, 3, 16  # sizes of batches; a pooled batch norm may fail for one row
Signs = Tensor | int
# The long step serves activations that compute in float32, whatever the dtype of their input.
_WAYS = ((torch.float64, 1e-6), (torch.float64, 3e-3), (torch.float32, 3e-3))


def fault_of_gradient(activation: nn.Module, like: Tensor, order: int = 1) -> str | None:
    """Return a message for an undeclared derivative up to an order that is not the output's, or None."""
    if activations.has_surrogate_gradient(activation):
        return None
    for number in range(1, order + 1):
        if share := wrong_share(activation, like, number):
            remedy = (
                ", and updates of this task need it: compute the backward pass from the saved input with "
                "torch's operations, without a saved slope, detach() or numpy"
                if number > 1
                else ": correct its backward pass or, if this is intended as in a straight-through estimator, "
                "set 'surrogate_gradient = True' on its class or function"
            )
            return f"has a {ORDERS.get(number, f'{number}th derivative')} that {differs(share)}{remedy}"
    return None


def differs(share: float) -> str:
    """Return how a gradient differs, in words."""
    return f"differs from the difference quotient at {100 * share:.0f} % of inputs"


def wrong_share(activation: nn.Module, like: Tensor, order: int = 1) -> float | None:
    """Return the share of inputs at which a derivative differs from the difference quotient, in the worse mode.

    A share up to `MOST` is 0, as kinks explain it. None if nothing can be compared, because calls
    with the same random numbers differ or raise. The derivatives below ``order`` must be right. The
    activation must have been called once. Do not use it afterwards: one that cannot be copied
    changes.
    """
    shares = [_share_in_mode(activation, like, order, training) for training in (True, False)]
    return max((share for share in shares if share is not None), default=None)


def _share_in_mode(activation: nn.Module, like: Tensor, order: int, training: bool) -> float | None:
    """Return the smallest share that a precision and step give; 0 ends the search."""
    shares = []
    for dtype, step in _WAYS:
        with suppress(Exception):  # third-party code may raise anything, for example for float64
            twin = copied(activation).to(dtype).train(training)
            if (share := _Derivatives(twin, like, dtype, step, order).share()) is not None:
                shares.append(share)
        if 0 in shares:
            return 0
    return min(shares, default=None)


def copied(activation: nn.Module) -> nn.Module:
    """Return a copy, or the activation itself if it holds something that cannot be copied."""
    try:
        return copy.deepcopy(activation)
    except Exception:  # for example of an output that it keeps
        return activation


def fault_of_rows(activation: nn.Module, like: Tensor) -> str | None:
    """Return a message for an activation whose state has the size of its first batch, or None.

    A copy is called with few rows, then with more, in each mode. The activation must not have been
    called.
    """
    for training in (True, False):
        twin, before = copied(activation).train(training), ""
        for rows in ROWS:
            x = torch.ones(rows, *like.shape[1:], dtype=like.dtype).cumsum(0).sin()
            try:
                materialise(twin, like.shape[1:])
                with own_generators(0):
                    shape = twin.forward(x).shape
                if shape != x.shape:
                    raise ValueError(f"returned shape {tuple(shape)}")
            except Exception as error:  # third-party code may raise anything
                why = f"fails for a batch of {rows}{before} ({described(error, 120)})"
                return f"{why}: its state must not depend on the size of a batch"
            before = f" after one of {rows}"
    return None


def derivative(
    activation: nn.Module,
    x: Tensor,
    order: int,
    weights: Signs = 1,
    along: Signs = 1,
    create_graph: bool = False,
) -> Tensor:
    """Return the derivative by ``x`` of a weighted sum of outputs, from the second order on along a direction.

    Of order 0: the weighted outputs. Calls draw the same random numbers. With ``create_graph`` the
    derivative can be differentiated.
    """
    with own_generators(0):
        value: Tensor = activation.forward(x.clone()) * weights
    for number in range(order):
        is_differentiated = create_graph or number + 1 < order
        (value,) = gradients_of((value * along if number else value).sum(), [x], is_differentiated)
    return value


def quotient(
    activation: nn.Module, x: Tensor, order: int, step: float, weights: Signs = 1, along: Signs = 1
) -> Tensor:
    """Return the difference quotient of the `derivative` below ``order``; elements of ``along`` are ±1."""
    up, down = ((x.detach() + h * along).requires_grad_(order > 1) for h in (step, -step))
    high, low = (derivative(activation, end, order - 1, weights, along) for end in (up, down))
    return ((high - low) / (up - down) * along).detach()


def mixes(activation: nn.Module, x: Tensor) -> bool:
    """Return whether outputs depend on other elements than their own."""
    x, kept = x.detach(), torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    return not _close(
        derivative(activation, torch.where(kept, x, x + 1), 0)[kept],
        derivative(activation, x, 0)[kept],
    )


class _Derivatives:
    """Compares derivatives of a copy of an activation with difference quotients, of half-width ``step``."""

    def __init__(
        self, activation: nn.Module, like: Tensor, dtype: torch.dtype, step: float, order: int
    ) -> None:
        self.activation, self.step, self.order = activation, step, order
        self.generator = torch.Generator().manual_seed(0)
        rows = max(2, -(-POINTS * len(like) // max(1, like.numel())))
        self.x = (SPREAD * self._normal((rows, *like.shape[1:]), dtype)).requires_grad_()
        # From the second order on, a sum with random signs is differentiated along random signs:
        # these derivatives are symmetric, so elements may mix.
        self.weights, self.along = (
            self._normal(self.x.shape, dtype).sign() if order > 1 else torch.ones_like(self.x)
            for _ in range(2)
        )
        self.below = partial(
            derivative, activation, self.x, order - 1, self.weights, self.along, True
        )

    def share(self) -> float | None:
        """Return the share of inputs, or of directions, at which gradients differ; see `wrong_share`."""
        share = self._elementwise()
        if share > MOST:
            if not _close(self.below(), self.below()):
                return None
            share = (
                self._along([self.x])
                if self.order == 1 and mixes(self.activation, self.x)
                else share
            )
        learnt = [
            parameter for parameter in self.activation.parameters() if parameter.requires_grad
        ]
        share = self._along(learnt) if learnt and share <= MOST else share
        return share if share > MOST else 0

    def _normal(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.randn(tuple(shape), generator=self.generator, dtype=dtype)

    def _elementwise(self) -> float:
        """Return the share of elements whose derivative is not the change of their own output."""
        slope = quotient(self.activation, self.x, self.order, self.step, self.weights, self.along)
        gradient = derivative(
            self.activation, self.x, self.order, self.weights, self.along
        ).detach()
        return float(((gradient - slope).abs() > TOLERANCE * (1 + slope.abs())).double().mean())

    def _along(self, leaves: Sequence[Tensor]) -> float:
        """Return the share of random directions along which derivatives differ; 0 up to one half."""
        right = 0
        for _ in range(DIRECTIONS):
            # Off a kink
            self._move(leaves, 0.01, [self._normal(leaf.shape, leaf.dtype) for leaf in leaves])
            along = [self._normal(leaf.shape, leaf.dtype) for leaf in leaves]
            weights = self._normal(self.x.shape, self.x.dtype)
            gradients = gradients_of((self.below() * weights).sum(), leaves)
            expected = sum(float((g * d).sum()) for g, d in zip(gradients, along, strict=True))
            self._move(leaves, self.step, along)
            up = self.below().detach()
            self._move(leaves, -2 * self.step, along)
            slope = float(((up - self.below().detach()) * weights).sum()) / (2 * self.step)
            self._move(leaves, self.step, along)
            right += not abs(expected - slope) > TOLERANCE * (1 + abs(slope))
            if right >= DIRECTIONS / 2:
                return 0
        return 1 - right / DIRECTIONS

    @staticmethod
    def _move(leaves: Sequence[Tensor], step: float, along: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for leaf, direction in zip(leaves, along, strict=True):
                leaf.add_(direction, alpha=step)


def _close(y: Tensor, again: Tensor) -> bool:
    return torch.allclose(y, again, rtol=1e-9, atol=1e-12, equal_nan=True)


def gradients_of(
    value: Tensor, leaves: Sequence[Tensor], create_graph: bool = False
) -> list[Tensor]:
    """Return the gradients of a scalar by leaves of its graph; zeros where it does not depend on one."""
    if not value.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    gradients: list[Tensor | None]
    if create_graph:
        gradients = list(
            torch.autograd.grad(value, [*leaves], allow_unused=True, create_graph=True)
        )
    else:  # as in training: a reentrant checkpoint has no other gradients
        for leaf in leaves:
            leaf.grad = None
        value.backward()  # type: ignore[no-untyped-call]
        gradients = [leaf.grad for leaf in leaves]
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, leaves, strict=True)]
