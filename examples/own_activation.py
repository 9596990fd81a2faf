"""Compare two user-defined activations with GELU, in the demo study on handwritten digits.

One is a module class that learns a parameter, the other a function with a keyword argument.
`actlab.run_study` accepts both, also with values of their arguments. The runs are written to
``runs/`` in the current folder::

    python examples/own_activation.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import actlab

QUICK = True  # False: the whole demo, 15 epochs of 4,000 digits with 15 seeds
BRIEF = {"trainer.max_epochs": 1, "trainer.limit_train_batches": 20}


class LearntSwish(nn.Module):
    """Swish, x · sigmoid(β·x), with one learnt β per layer.

    Args:
        beta: initial value of β.
    """

    stochastic = False  # draws no random numbers

    def __init__(self, beta: float = 1.0) -> None:
        super().__init__()
        # Parameters and buffers are stored in checkpoints
        self.beta = nn.Parameter(torch.tensor(beta))

    def forward(self, x: Tensor) -> Tensor:
        """Return x · sigmoid(β·x), elementwise."""
        return x * torch.sigmoid(self.beta * x)


def squareplus(x: Tensor, b: float = 4.0) -> Tensor:
    """Return (x + √(x² + b)) / 2, a smooth ReLU; ``b`` sets the width of the bend."""
    return (x + torch.sqrt(x * x + b)) / 2


squareplus.elementwise = True  # acts on each element alone: one call serves all runs of a stack
squareplus.stochastic = False


def main() -> None:
    """Run the study and print its verdicts."""
    results = actlab.run_study(
        "demo",
        activations=[LearntSwish, {"name": squareplus, "b": 0.5}],
        seeds=8 if QUICK else 15,
        reference="gelu",
        # Of the demo's own, GELU only
        settings={
            "model.activation": ["gelu"],
            **(BRIEF if QUICK else {}),
        },
    )
    print(results.table[["activation", "runs", "test/error@last", "test/error@last difference"]])
    for verdict in results.verdicts:
        print("-", verdict.text)


if __name__ == "__main__":  # training processes import this file
    main()
