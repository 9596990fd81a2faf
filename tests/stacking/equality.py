"""A stack against its members trained alone."""

from collections.abc import Callable
from typing import Any

import torch

from actlab.stacking import StackedTask
from toys import trained_alone, trained_together


def assert_trains_as_alone(
    make: Callable[[int], Any],
    batches: Callable[[], Any],
    runs: int = 3,
    steps: bool = False,
    rtol: float = 1e-8,
    atol: float = 1e-10,
) -> StackedTask:
    """Compare losses, weights, buffers and outputs in evaluation; return the stack."""
    singles = [make(r) for r in range(runs)]
    losses = trained_alone(singles, batches())
    stack, together = trained_together([make(r) for r in range(runs)], batches(), steps)
    torch.testing.assert_close(together, losses, rtol=rtol / 10, atol=0)
    (x, *_), *_ = batches()
    with torch.no_grad():
        outputs = stack.eval().network(x[0], shared=True)
    for r, one in enumerate(singles):
        own, ours = one.network.state_dict(), stack.network.member_state(r)
        assert own.keys() == ours.keys()
        for name, value in own.items():
            torch.testing.assert_close(ours[name], value, rtol=rtol, atol=atol, msg=name)
        torch.testing.assert_close(outputs[r], one.network.eval()(x[0]), rtol=rtol, atol=atol)
    return stack
