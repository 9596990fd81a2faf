"""Costs of activations: forward and backward over 16M elements against ReLU, and stored bytes.

    python benchmarks/units.py

Every name of the registry, as ``create`` gives it, on float32 ``(16384, 1024)``; each round runs
all of them, and the figures are medians over the rounds of the ratio to ReLU in the same round.
``NAME_in_a_stack_to_relu`` is the same on ``(15, 128, 128)``, which caches hold, and
``NAME_compiled_to_relu`` that in a long study: with reproducible draws, and compiled where the unit
offers it; both are ratios of the least times of many rounds. ``soi_vs_gelu_dropout`` compares the
SOI map with GELU followed by torch's dropout, both as anyone would use them. Freed memory is kept,
as in a study: otherwise fresh pages would cost more than any unit.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from figures import show
from torch import nn

from actlab import activations
from actlab.random import masks, streams
from actlab.runtime.devices import keep_freed

SHAPE = (16384, 1024)
ROUNDS = 3
STACK = (15, 128, 128)  # runs, batch, features
STACK_ROUNDS = 200


def in_a_study(unit: nn.Module) -> nn.Module:
    """The unit with its random numbers from a stream, as a task has it."""
    streams.attach(unit, streams.Stream(0))
    return unit


def seconds(unit: nn.Module, x: torch.Tensor, gradient: torch.Tensor) -> float:
    """Of one forward and one backward."""
    start = time.perf_counter()
    torch.autograd.grad(unit(x), x, gradient)
    if x.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def bytes_kept(unit: nn.Module) -> float:
    """Bytes an element that the backward keeps, the input among them where it is needed."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(256, 1024, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        unit(x)
    return sum(kept.values()) / x.numel()


def times(
    units: dict[str, nn.Module], shape: tuple[int, ...], rounds: int
) -> dict[str, list[float]]:
    """Seconds of each unit in each round, training."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(shape, device=device, requires_grad=True)
    gradient = torch.randn_like(x)
    taken: dict[str, list[float]] = {name: [] for name in units}
    for round_ in range(rounds + 1):
        for name, unit in units.items():
            duration = seconds(unit.to(device).train(), x, gradient)
            if round_:  # the first is for warming up and compiling
                taken[name].append(duration)
    return taken


def least_to_relu(taken: dict[str, list[float]], suffix: str) -> dict[str, float]:
    """``NAME_SUFFIX_to_relu`` of the least times."""
    return {
        f"{name}_{suffix}_to_relu": min(found) / min(taken["relu"]) for name, found in taken.items()
    }


def measure(dataset: str | None = None) -> dict[str, float]:
    """All figures; the data set is not used.

    Returns:
        ``NAME_to_relu``, ``NAME_in_a_stack_to_relu``, ``NAME_compiled_to_relu`` and ``NAME_bytes``
        for each unit, and the ratios.
    """
    del dataset
    keep_freed()
    units = {name: activations.create(name) for name in activations.names()}
    kept = {f"{name}_bytes": bytes_kept(unit) for name, unit in units.items()}
    in_a_stack = least_to_relu(times(units, STACK, STACK_ROUNDS), "in_a_stack")
    units["gelu_dropout"] = nn.Sequential(activations.create("gelu"), nn.Dropout(0.5))
    taken = times(units, SHAPE, ROUNDS)
    masks.compile_masks()
    studied = {name: in_a_study(activations.create(name)) for name in activations.names()}
    compiled = least_to_relu(times(studied, STACK, STACK_ROUNDS), "compiled")

    def ratio(name: str, other: str) -> float:
        return statistics.median(a / b for a, b in zip(taken[name], taken[other], strict=True))

    return {
        "relu_ms": statistics.median(taken["relu"]) * 1e3,
        **{f"{name}_to_relu": ratio(name, "relu") for name in units},
        **in_a_stack,
        **compiled,
        **kept,
        "soi_vs_gelu_dropout": ratio("soi", "gelu_dropout"),
    }


def main() -> None:
    """Measure and print, one figure a line."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    show(measure())


if __name__ == "__main__":
    main()
