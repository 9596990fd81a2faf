"""Compare the derivatives of an activation with difference quotients.

This is done before a study trains anything. Kinks, jumps and plateaus are not faults: few inputs
are next to them, and the derivative exists elsewhere.
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
# Standard deviation of the inputs: also the tails of the usual activations.
SPREAD = 2.0
TOLERANCE = 1e-3  # relative to 1 + |slope|
MOST = 0.01  # share of inputs next to kinks and jumps; a larger share is wrong
DIRECTIONS = 8  # in which activations that mix elements, and parameters, are compared
ORDERS = {1: "gradient", 2: "second derivative", 3: "third derivative"}
ROWS = 2, 3, 16  # sizes of batches; a pooled batch norm may fail for one row
Signs = Tensor | int
# Precisions with half-widths of the difference quotient. The long step serves
# activations that compute in float32, whatever the dtype of their input.
_STEPS = ((torch.float64, 1e-6), (torch.float64, 3e-3), (torch.float32, 3e-3))


def fault_of_gradient(
    activation: nn.Module, example: Tensor, order: int = 1
) -> str | None:
    """Return a message for an undeclared wrong derivative up to an order, or None."""
    if activations.has_surrogate_gradient(activation):
        return None

    # Report the lowest order that is wrong
    for number in range(1, order + 1):
        share = wrong_share(activation, example, number)
        if not share:
            continue
        name = ORDERS.get(number, f"{number}th derivative")

        # Higher orders require a differentiable backward pass
        if number > 1:
            remedy = (
                ", and updates of this task require it. Compute the backward pass from the saved "
                "input with torch's operations, without a saved slope, detach() or numpy"
            )
        else:
            remedy = (
                ". Correct its backward pass or, if this is intended as in a straight-through "
                "estimator, set 'surrogate_gradient = True' on its class or function"
            )
        return f"has a {name} that {differs(share)}{remedy}"
    return None


def differs(share: float) -> str:
    """Return how a gradient differs, in words."""
    return f"differs from the difference quotient at {100 * share:.0f} % of inputs"


def wrong_share(activation: nn.Module, example: Tensor, order: int = 1) -> float | None:
    """Return the share of inputs at which a derivative differs from the difference quotient.

    The worse of training and evaluation counts. A share up to `MOST` is 0, as kinks explain it.
    The derivatives below ``order`` must be right. The activation must have been called once. Do
    not use it afterwards: one that cannot be copied changes.

    Returns:
        The share, or None if calls with the same random numbers differ or raise.
    """
    shares = []
    for training in (True, False):
        share = _share_in_mode(activation, example, order, training)
        if share is not None:
            shares.append(share)
    return max(shares, default=None)


def _share_in_mode(
    activation: nn.Module, example: Tensor, order: int, training: bool
) -> float | None:
    """Return the smallest share over all precisions and steps; 0 ends the search."""
    shares = []
    for dtype, step in _STEPS:
        # Third-party code may raise anything, for example for float64.
        with suppress(Exception):
            twin = copied(activation).to(dtype).train(training)
            share = _Derivatives(twin, example, dtype, step, order).share()
            if share is not None:
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


def fault_of_rows(activation: nn.Module, example: Tensor) -> str | None:
    """Return a message for an activation whose state has the size of its first batch, or None.

    A copy is called with few rows, then with more, in each mode. The activation must not have been
    called.
    """
    for training in (True, False):
        twin = copied(activation).train(training)
        before = ""
        for rows in ROWS:
            x = (
                torch.ones(rows, *example.shape[1:], dtype=example.dtype)
                .cumsum(0)
                .sin()
            )
            try:
                materialise(twin, example.shape[1:])
                with own_generators(0):
                    shape = twin.forward(x).shape
                if shape != x.shape:
                    raise ValueError(f"returned shape {tuple(shape)}")
            except Exception as error:  # third-party code may raise anything
                reason = (
                    f"fails for a batch of {rows}{before} ({described(error, 120)})"
                )
                return f"{reason}. Remove state that depends on the size of a batch"
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
    """Return the derivative by ``x`` of a weighted sum of outputs.

    Calls draw the same random numbers.

    Args:
        activation: the module, of which ``forward`` is called.
        x: inputs of any shape.
        order: of the derivative; 0 returns the weighted outputs.
        weights: of the outputs.
        along: the direction of the derivatives above the first.
        create_graph: whether the derivative can be differentiated.
    """
    with own_generators(0):
        value: Tensor = activation.forward(x.clone()) * weights

    for number in range(order):
        if number > 0:
            value = value * along
        is_differentiated = create_graph or number + 1 < order
        (value,) = gradients_of(value.sum(), [x], is_differentiated)
    return value


def quotient(
    activation: nn.Module,
    x: Tensor,
    order: int,
    step: float,
    weights: Signs = 1,
    along: Signs = 1,
) -> Tensor:
    """Return the difference quotient of the `derivative` below ``order``.

    Elements of ``along`` are ±1.
    """
    upper = (x.detach() + step * along).requires_grad_(order > 1)
    lower = (x.detach() - step * along).requires_grad_(order > 1)
    high = derivative(activation, upper, order - 1, weights, along)
    low = derivative(activation, lower, order - 1, weights, along)
    return ((high - low) / (upper - lower) * along).detach()


def mixes(activation: nn.Module, x: Tensor) -> bool:
    """Return whether outputs depend on other elements than their own."""
    x = x.detach()
    generator = torch.Generator().manual_seed(0)
    unchanged = torch.rand(x.shape, generator=generator) < 0.5

    # Move the other half of the elements.
    moved = torch.where(unchanged, x, x + 1)
    after = derivative(activation, moved, 0)[unchanged]
    before = derivative(activation, x, 0)[unchanged]
    return not _close(after, before)


class _Derivatives:
    """Compares derivatives of a copy of an activation with difference quotients.

    The half-width of the quotients is ``step``.
    """

    def __init__(
        self,
        activation: nn.Module,
        example: Tensor,
        dtype: torch.dtype,
        step: float,
        order: int,
    ) -> None:
        self.activation = activation
        self.step = step
        self.order = order
        # Fixed, so that each trial repeats
        self.generator = torch.Generator().manual_seed(0)

        # Draw the inputs.
        rows = max(2, -(-POINTS * len(example) // max(1, example.numel())))
        inputs = SPREAD * self._normal((rows, *example.shape[1:]), dtype)
        self.x = inputs.requires_grad_()

        # From the second order on, a sum with random signs is differentiated along
        # random signs: these derivatives are symmetric, so elements may mix.
        self.weights = torch.ones_like(self.x)
        self.along = torch.ones_like(self.x)
        if order > 1:
            self.weights = self._normal(self.x.shape, dtype).sign()
            self.along = self._normal(self.x.shape, dtype).sign()

        # Derivatives along directions differentiate the order below
        self.below = partial(
            derivative, activation, self.x, order - 1, self.weights, self.along, True
        )

    def share(self) -> float | None:
        """Return the share of inputs, or of directions, at which gradients differ.

        See `wrong_share`.
        """
        # Compare elementwise, or along directions if elements mix.
        share = self._elementwise()
        if share > MOST:
            if not _close(self.below(), self.below()):
                return None
            if self.order == 1 and mixes(self.activation, self.x):
                share = self._along([self.x])

        # Compare the gradients of trainable parameters.
        learnt = [p for p in self.activation.parameters() if p.requires_grad]
        if learnt and share <= MOST:
            share = self._along(learnt)

        # A few inputs may be next to kinks or jumps
        if share > MOST:
            return share
        return 0

    def _normal(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.randn(tuple(shape), generator=self.generator, dtype=dtype)

    def _elementwise(self) -> float:
        """Return the share of elements whose derivative is not the change of their own output."""
        signs = (self.weights, self.along)
        slope = quotient(self.activation, self.x, self.order, self.step, *signs)
        gradient = derivative(self.activation, self.x, self.order, *signs).detach()
        wrong = (gradient - slope).abs() > TOLERANCE * (1 + slope.abs())
        return float(wrong.double().mean())

    def _along(self, leaves: Sequence[Tensor]) -> float:
        """Return the share of random directions with other derivatives; 0 up to one half."""
        right = 0
        for _ in range(DIRECTIONS):
            # Move off a kink.
            self._move(leaves, 0.01, self._directions(leaves))

            # The gradient gives the slope of a weighted sum along a direction.
            directions = self._directions(leaves)
            weights = self._normal(self.x.shape, self.x.dtype)
            gradients = gradients_of((self.below() * weights).sum(), leaves)
            pairs = zip(gradients, directions, strict=True)
            expected = sum(
                float((gradient * direction).sum()) for gradient, direction in pairs
            )

            # Measure the slope, and move back.
            self._move(leaves, self.step, directions)
            high = self.below().detach()
            self._move(leaves, -2 * self.step, directions)
            low = self.below().detach()
            slope = float(((high - low) * weights).sum()) / (2 * self.step)
            self._move(leaves, self.step, directions)

            # A slope that is not a number is no fault of the gradient.
            is_wrong = abs(expected - slope) > TOLERANCE * (1 + abs(slope))
            if not is_wrong:
                right += 1
            if right >= DIRECTIONS / 2:
                return 0
        return 1 - right / DIRECTIONS

    def _directions(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        return [self._normal(leaf.shape, leaf.dtype) for leaf in leaves]

    @staticmethod
    def _move(
        leaves: Sequence[Tensor], step: float, directions: Sequence[Tensor]
    ) -> None:
        with torch.no_grad():
            for leaf, direction in zip(leaves, directions, strict=True):
                leaf.add_(direction, alpha=step)


def _close(y: Tensor, again: Tensor) -> bool:
    return torch.allclose(y, again, rtol=1e-9, atol=1e-12, equal_nan=True)


def gradients_of(
    value: Tensor, leaves: Sequence[Tensor], create_graph: bool = False
) -> list[Tensor]:
    """Return the gradients of a scalar by leaves of its graph.

    Zeros where the scalar does not depend on a leaf.
    """
    if not value.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]

    gradients: Sequence[Tensor | None]
    if create_graph:
        gradients = torch.autograd.grad(
            value, [*leaves], allow_unused=True, create_graph=True
        )
    else:  # as in training: a reentrant checkpoint has no other gradients
        for leaf in leaves:
            leaf.grad = None
        value.backward()  # type: ignore[no-untyped-call]
        gradients = [leaf.grad for leaf in leaves]

    # Autograd returns None for an unused leaf
    filled = []
    for leaf, gradient in zip(leaves, gradients, strict=True):
        if gradient is None:
            gradient = torch.zeros_like(leaf)
        filled.append(gradient)
    return filled
