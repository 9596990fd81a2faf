"""Each activation beside another way to write it: time of both, and memory for the backward.

    python benchmarks/forms.py [--rounds N]

``NAME_vs_OTHER`` is this package's form ÷ the other one: forward and backward in float32 over one
run's layer ``(128, 128)`` and a stack's ``(15, 128, 128)``, and a whole update of the MNIST
classifier (eight hidden layers of 128, batches of 128, Adam). All forms take turns, and each counts
by its fastest round. `OTHERS` holds the other forms: those that this package had before, and those
that anyone would write.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from figures import show
from torch import Tensor, nn
from units import bytes_kept

from actlab import activations
from actlab.activations.gates import gate
from actlab.networks import MLP
from actlab.runtime.devices import keep_freed, threads

LAYERS = {"run": (128, 128), "stack": (15, 128, 128)}
ROUNDS = 200


class _BoundedTanhGELU(torch.autograd.Function):
    """torch's kernel with a finite gradient everywhere; torch's own is nan once x² overflows."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        """Any shape to the same shape."""
        return F.gelu(x, approximate="tanh")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Keep the input."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The gradient times the slope."""
        (x,) = ctx.saved_tensors
        bounded: Tensor = torch.ops.aten.gelu_backward(
            gradient, x.clamp(-10, 10), approximate="tanh"
        )
        return bounded


class _LaplaceByHand(torch.autograd.Function):
    """max(x, 0) − ½a·e⁻ᵃ with a = |x|; its gradient is s = ½(1 − a)e⁻ᵃ on the left, else 1 − s."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        """Any shape to the same shape."""
        a = x.abs().clamp_max_(1e18)
        return x.relu().sub_(a.neg().exp_().mul_(a), alpha=0.5)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Keep the input."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The gradient times the slope."""
        (x,) = ctx.saved_tensors
        a = x.abs().clamp_max_(1e18)
        h = a.neg().exp_().mul_(a.mul_(-0.5).add_(0.5))
        right: Tensor = torch.ops.aten.threshold_backward(h.mul(-2).add_(1), x, 0)
        return right.add_(h).mul_(gradient)


def laplace_by_where(x: Tensor) -> Tensor:
    """By ``torch.where``."""
    return x * torch.where(x < 0, 0.5 * x.clamp_max(0).exp(), 1 - 0.5 * (-x.clamp_min(0)).exp())


class _Module(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same shape."""
        return self.function(x)


OTHERS: dict[str, dict[str, Callable[[Tensor], Tensor]]] = {
    "gelu_tanh": {"bounded_gradient": _BoundedTanhGELU.apply},
    "gelu": {"erfc": lambda x: gate(x, lambda y: 0.5 * torch.erfc(-y / math.sqrt(2)))},
    "silu": {"product": lambda x: x * torch.sigmoid(x)},
    "gelu_sigmoid": {"product": lambda x: x * torch.sigmoid(1.702 * x)},
    "laplace_lu": {"by_hand": _LaplaceByHand.apply, "where": laplace_by_where},
    "srelu": {"clamp": lambda x: x.clamp_min(-1)},
    "rrelu": {"torch": nn.RReLU()},
}


def forms() -> dict[str, nn.Module]:
    """ReLU, each of the package's forms by its name, and the others as ``NAME:OTHER``."""
    found = {name: activations.create(name) for name in ("relu", *OTHERS)}
    others = {
        f"{name}:{way}": _Module(f) for name, ways in OTHERS.items() for way, f in ways.items()
    }
    return {**found, **others}


def fastest(turns: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds of the fastest of some rounds in turns; the first is for warming up."""
    least = dict.fromkeys(turns, math.inf)
    for number in range(rounds + 1):
        for name, turn in turns.items():
            start = time.perf_counter()
            turn()
            if number:
                least[name] = min(least[name], time.perf_counter() - start)
    return least


def layer(unit: nn.Module, shape: tuple[int, ...]) -> Callable[[], object]:
    """Forward and backward over one layer's outputs."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).requires_grad_()
    gradient = torch.randn(shape, generator=generator)
    return lambda: torch.autograd.grad(unit(x), x, gradient)


def update(unit: nn.Module) -> Callable[[], object]:
    """An update of the MNIST classifier, in which one module serves every layer."""
    torch.manual_seed(0)
    network = MLP(lambda: unit, 10)
    optimizer = torch.optim.Adam(network.parameters())
    x, y = torch.rand(128, 1, 28, 28), torch.randint(10, (128,))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()

    return step


def measure(rounds: int = ROUNDS) -> dict[str, float]:
    """All figures, by one thread, as studies of small networks: times to ReLU, bytes an element."""
    keep_freed()
    units = forms()
    found: dict[str, float] = {}
    with threads(1):
        least = {
            place: fastest({name: layer(unit, shape) for name, unit in units.items()}, rounds)
            for place, shape in LAYERS.items()
        }
        least["network"] = fastest({name: update(unit) for name, unit in units.items()}, rounds)
    for place, seconds in least.items():
        found |= {f"{name}_{place}_to_relu": seconds[name] / seconds["relu"] for name in units}
        pairs = [(name, way) for name, ways in OTHERS.items() for way in ways]
        found |= {f"{n}_vs_{way}_{place}": seconds[n] / seconds[f"{n}:{way}"] for n, way in pairs}
    return {**found, **{f"{name}_bytes": bytes_kept(unit) for name, unit in units.items()}}


def main() -> None:
    """Measure and print, one figure a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    show(measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
