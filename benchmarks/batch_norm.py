"""Time an update with ELU against ReLU with batch norm, in the ELU paper's CIFAR-100 network.

    python benchmarks/batch_norm.py [--batch 100]

Three networks take turns on one batch of the sample, as `actlab study run` measures costs: ELU,
ReLU, and ReLU with batch norm. Printed are the ratio of the fastest updates, its range over fifths
of the rounds, and the ratio of the memory that is kept for the backward pass.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from typing import Any

from actlab import load_study
from actlab.checks import cost

PLAIN = ("elu", False)
OPPONENTS = {("relu", False): "ReLU", ("relu", True): "ReLU with batch norm"}
Place = tuple[str, bool]


def place(point: Mapping[str, Any]) -> Place:
    """Return a grid point's activation, and whether it has batch norm."""
    return point["model.activation"], point["model.network.batch_norm"]


def measure(batch: int = 100) -> dict[Place, dict[str, Any]]:
    """Return the cost of ELU and of its opponents, timed in turns."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    settings = {"data.sample": True, "data.batch_size": batch, "seeds": 1}
    runs = load_study("elu_cifar100", settings=settings).runs()
    wanted = [run for run in runs if place(run.point) in (PLAIN, *OPPONENTS)]
    entries = cost.measure(wanted, "model.activation")
    return {place(entry["point"]): entry for entry in entries}


def main() -> None:
    """Measure and print a line for each opponent."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=100)
    found = measure(parser.parse_args().batch)
    elu = found[PLAIN]
    for other, name in OPPONENTS.items():
        parts = [
            a / b
            for a, b in zip(elu["seconds_in_parts"], found[other]["seconds_in_parts"], strict=True)
        ]
        ratio = elu["seconds_per_update"] / found[other]["seconds_per_update"]
        memory = elu["bytes_kept"] / found[other]["bytes_kept"]
        print(
            f"ELU ÷ {name}: {ratio:.2f} ({min(parts):.2f} to {max(parts):.2f}), memory "
            f"{memory:.2f}, {elu['rounds']} rounds, {elu['seconds_per_update']:.2f} s an update"
        )
    print(f"machine: {elu['machine']}, {elu['hardware']}")


if __name__ == "__main__":
    main()
