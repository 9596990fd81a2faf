"""What ELU costs a network: time of an update of the ELU paper's ImageNet network over ReLU's.

    python benchmarks/pyramid.py [--whole]

Both networks take turns, update by update, on the same random images; the figure is the median of
the ratio in a turn. The paper's two trainings took 12.15 and 11.48 hours, a ratio of 1.058, on GPUs
of 2015. By default a quarter of the widths, on maps of a quarter of the size: elementwise work
weighs more there than in the whole network, which ``--whole`` takes (3 GB, minutes a turn on two
cores).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from figures import show
from timing import DEVICE, synchronise
from torch import nn
from torch.nn.functional import cross_entropy

from actlab import activations
from actlab.networks import PyramidNet
from actlab.runtime.devices import keep_freed

PUBLISHED = 12.15 / 11.48
QUARTER = {
    "input_shape": (3, 56, 56),
    "stacks": ((1, 24, 6), (3, 128, 3), (5, 192, 3), (3, 256, 3)),
    "dense": (1024, 1024),
}
BATCH, TURNS, WARM_UP = 8, 30, 3


def update_of(name: str, **options: object) -> Callable[[], float]:
    """Seconds of one update: forward, backward, SGD with momentum."""
    torch.manual_seed(0)
    network: nn.Module = PyramidNet(lambda: activations.create(name), 1000, **options).to(DEVICE)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    shape = options.get("input_shape", (3, 224, 224))
    x = torch.randn(BATCH, *shape, device=DEVICE)  # type: ignore[misc]
    y = torch.randint(1000, (BATCH,), device=DEVICE)

    def update() -> float:
        synchronise()
        start = time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(network(x), y).backward()
        optimizer.step()
        synchronise()
        return time.perf_counter() - start

    return update


def measure(dataset: str | None = None, turns: int = TURNS, **options: object) -> dict[str, float]:
    """All figures; the data set is not used.

    Returns:
        ``elu_ms`` and ``relu_ms`` an update, and ``elu_vs_relu_update``.
    """
    del dataset
    keep_freed()
    updates = {name: update_of(name, **(options or QUARTER)) for name in ("elu", "relu")}
    taken: dict[str, list[float]] = {name: [] for name in updates}
    for turn in range(turns + WARM_UP):
        for name, update in updates.items():
            seconds = update()
            if turn >= WARM_UP:
                taken[name].append(seconds)
    ratio = statistics.median(a / b for a, b in zip(taken["elu"], taken["relu"], strict=True))
    medians = {f"{name}_ms": statistics.median(found) * 1e3 for name, found in taken.items()}
    return {**medians, "elu_vs_relu_update": ratio}


def main() -> None:
    """Measure and print, one figure a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--whole", action="store_true", help="the paper's widths and windows of 224"
    )
    whole = parser.parse_args().whole
    show(measure(turns=5, input_shape=(3, 224, 224)) if whole else measure())
    print(f"the paper's ratio: {PUBLISHED:.3f}")


if __name__ == "__main__":
    main()
