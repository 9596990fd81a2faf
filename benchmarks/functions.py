"""How well networks with GELU, ReLU and ELU approximate random smooth functions (GELU paper, §5).

    python benchmarks/functions.py [FOLDER]

A function of two inputs in [-1, 1] is a sum of 64 cosines with normal frequencies of deviation 6;
its variance is 1. Each network has two hidden layers of 64 and is trained for 3,000 updates of Adam
on batches of 128 fresh samples, with He's initialisation. Initial weights and samples are those of
the function's number, whatever the activation. The learning rate is chosen for each activation on
functions 0 to 4 by the median error; functions 20 to 59 are compared on 10,000 other samples
(functions 5 to 19 came first). Printed are the medians, and the paired differences of the decadic
logarithms with sign-flip p-values; FOLDER gets ``values.csv``.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from actlab import activations
from actlab.analysis.differences import paired_difference

ACTIVATIONS = ("gelu", "relu", "elu")
RATES = (3e-2, 1e-2, 3e-3, 1e-3)
CHOOSE, COMPARE = range(5), range(20, 60)
INPUTS, WIDTH, COSINES, FREQUENCY = 2, 64, 64, 6.0
UPDATES, BATCH, TEST = 3000, 128, 10_000


class Functions:
    """Random smooth functions, one for each number: f(x) = √(2 / M) Σ cos(wᵀ x + b)."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.sources = [torch.Generator().manual_seed(n) for n in numbers]
        self.w = self.draw(torch.randn, INPUTS, COSINES) * FREQUENCY
        self.b = self.draw(torch.rand, 1, COSINES) * 2 * math.pi

    def draw(self, how: object, *shape: int) -> Tensor:
        """Return numbers of each function's own generator: ``(R, *shape)``."""
        assert callable(how)
        return torch.stack([how(*shape, generator=source) for source in self.sources])

    def samples(self, number: int) -> tuple[Tensor, Tensor]:
        """Return inputs ``(R, number, 2)`` and values ``(R, number, 1)``."""
        x = 2 * self.draw(torch.rand, number, INPUTS) - 1
        return x, math.sqrt(2 / COSINES) * torch.baddbmm(self.b, x, self.w).cos().sum(
            -1, keepdim=True
        )


def errors_on(activation: str, rate: float, numbers: Sequence[int]) -> list[float]:
    """Train a network for each function, all of them together; return the mean squared errors."""
    functions, act = Functions(numbers), activations.create(activation)
    widths = [INPUTS, WIDTH, WIDTH, 1]
    weights = [
        nn.Parameter(functions.draw(torch.randn, a, b) * math.sqrt(2 / a))
        for a, b in pairwise(widths)
    ]
    biases = [nn.Parameter(torch.zeros(len(numbers), 1, b)) for b in widths[1:]]

    def network(x: Tensor) -> Tensor:
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            x = act(torch.baddbmm(b, x, w))
        return torch.baddbmm(biases[-1], x, weights[-1])

    test = functions.samples(TEST)
    adam = torch.optim.Adam([*weights, *biases], lr=rate, fused=True)
    for _ in range(UPDATES):
        x, y = functions.samples(BATCH)
        adam.zero_grad()
        (network(x) - y).square().mean((1, 2)).sum().backward()
        adam.step()
    with torch.no_grad():
        errors: list[float] = (network(test[0]) - test[1]).square().mean((1, 2)).tolist()
    return errors


def chosen(activation: str) -> float:
    """Return the learning rate with the lowest median error on the functions that choose."""
    return min(RATES, key=lambda rate: statistics.median(errors_on(activation, rate, CHOOSE)))


def main() -> None:
    """Choose, compare and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    folder = parser.parse_args().folder
    rates = {activation: chosen(activation) for activation in ACTIVATIONS}
    found = {activation: errors_on(activation, rate, COMPARE) for activation, rate in rates.items()}
    for activation, errors in found.items():
        print(
            f"{activation} at {rates[activation]:g}: median test error "
            f"{statistics.median(errors):.3g}"
        )
    logs = {
        activation: [math.log10(error) for error in errors] for activation, errors in found.items()
    }
    for other in ("relu", "elu"):
        of = paired_difference(logs["gelu"], logs[other])
        print(
            f"log10 gelu - log10 {other}: {of.mean:.3g} [{of.low:.3g}, {of.high:.3g}], "
            f"p = {of.p:.2g}"
        )
    if folder:
        with (folder / "values.csv").open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["model.activation", "model.optimizer.lr", "seed", "test/loss"])
            for activation, errors in found.items():
                rows.writerows(
                    [activation, rates[activation], n, error]
                    for n, error in zip(COMPARE, errors, strict=True)
                )


if __name__ == "__main__":
    main()
