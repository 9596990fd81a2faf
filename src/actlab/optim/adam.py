"""Adam with ε inside the root, the optimiser of the GELU paper's CIFAR-10 network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt
from torch import Tensor
from torch.optim import Optimizer

from actlab.errors import ActlabError
from actlab.validation import validated


class AdamEpsilonInRoot(Optimizer):
    """Adam (Kingma & Ba 2015) with ε inside the root: ``w ← w − lr · m̂ / √(v̂ + ε)``.

    ``m ← β₁m + (1 − β₁)g``, ``v ← β₂v + (1 − β₂)g²``, ``m̂ = m / (1 − β₁ᵗ)``, ``v̂ = v / (1 −
    β₂ᵗ)``. An ε of 1e-8 keeps the root above 1e-4, similar to an ε of 1e-4 in ``torch.optim.Adam``.
    The update is elementwise, with one call per operation for all tensors of a group.

    Source: the released script of Hendrycks & Gimpel, GELU §3.5 (CIFAR-10).

    Args:
        params: parameters, or parameter groups with their own settings.
        lr: step size, at least 0.
        betas: β₁ and β₂, each in [0, 1).
        eps: ε, above 0.
        weight_decay: λ ≥ 0 of the penalty ½λΣw²; the gradient of the penalty is added to g.
    """

    @validated
    def __init__(
        self,
        params: Any,
        lr: Annotated[float, Ge(0)] = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: Annotated[float, Gt(0)] = 1e-8,
        weight_decay: Annotated[float, Ge(0)] = 0.0,
    ) -> None:
        if not all(0 <= beta < 1 for beta in betas):
            raise ActlabError(
                f"{type(self).__name__}: betas: expected two numbers in [0, 1), got {tuple(betas)}"
            )
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one update and return the result of ``closure``, or None without a closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                # Lightning's closure computes the gradients
                loss = closure()

        for group in self.param_groups:
            # A parameter of an unused layer has no gradient, and its state does not age
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._update(group, params)
        return loss

    def _update(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """Update the parameters of a group that have gradients."""
        lr = group["lr"]
        beta1, beta2 = group["betas"]

        # Collect m, v and t of each parameter.
        m, v, t = [], [], []
        for p in params:
            state = self._advance(p)
            m.append(state["exp_avg"])
            v.append(state["exp_avg_sq"])
            t.append(state["step"])

        # Add the decay to the gradients.
        gradients: Any = [p.grad for p in params]
        if group["weight_decay"]:
            gradients = torch._foreach_add(
                gradients, params, alpha=group["weight_decay"]
            )

        # Update the moments.
        torch._foreach_lerp_(m, gradients, 1 - beta1)
        torch._foreach_mul_(v, beta2)
        torch._foreach_addcmul_(v, gradients, gradients, 1 - beta2)

        # Step by m̂ / √(v̂ + ε).
        root: Any = torch._foreach_div(v, [1 - beta2**n for n in t])
        torch._foreach_add_(root, group["eps"])
        torch._foreach_sqrt_(root)
        torch._foreach_addcdiv_(params, m, root, [-lr / (1 - beta1**n) for n in t])

    def _advance(self, parameter: Tensor) -> dict[str, Any]:
        """Return the state of a parameter, at its next update."""
        state: dict[str, Any] = self.state[parameter]
        # Made at the first update, as in torch, so that an unused parameter has no
        # state
        if not state:
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(
                    parameter, memory_format=torch.preserve_format
                )
            state["step"] = 0
        # Python's number: t is read on the CPU in each update
        state["step"] += 1
        return state
