"""Time of an update with ELU against ReLU with batch norm, in the ELU paper's network for CIFAR-100.

    python benchmarks/batch_norm.py [--batch 100]

Three networks take turns on one batch of the sample, as `actlab study run` measures costs: ELU, ReLU, and ReLU
with batch norm. Printed are the ratio of the fastest updates, its range over fifths of the rounds, and the
ratio of the memory that is kept for the backward pass.
"""

from __future__ import annotations

import argparse
import logging

from actlab import load_study
from actlab.engines import cost

PLAIN, NORMED = ("elu", False), ("relu", True)


def measure(batch: int = 100) -> dict[tuple[str, bool], dict[str, object]]:
    """Return the entry of each network, by activation and whether it has batch norm."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    settings = {"data.sample": True, "data.batch_size": batch, "seeds": 1}
    study = load_study("elu_cifar100", settings=settings)
    wanted = {PLAIN, NORMED, ("relu", False)}
    points = {
        (run.point["model.activation"], run.point["model.network.batch_norm"]): run for run in study.runs()
    }
    entries = cost.measure([points[key] for key in wanted], "model.activation", "relu", updates=2)
    return {(e["point"]["model.activation"], e["point"]["model.network.batch_norm"]): e for e in entries}


def main() -> None:
    """Measure and print a line for each opponent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=100)
    found = measure(parser.parse_args().batch)
    elu = found[PLAIN]
    for other, name in (("relu", False), "ReLU"), (NORMED, "ReLU with batch norm"):
        parts = [a / b for a, b in zip(elu["seconds_in_parts"], found[other]["seconds_in_parts"], strict=True)]
        ratio = elu["seconds_per_update"] / found[other]["seconds_per_update"]
        memory = elu["bytes_kept"] / found[other]["bytes_kept"]
        print(
            f"ELU ÷ {name}: {ratio:.2f} ({min(parts):.2f} to {max(parts):.2f}), memory {memory:.2f}, "
            f"{elu['rounds']} rounds, {elu['seconds_per_update']:.2f} s an update"
        )
    print(f"machine: {elu['machine']}, {elu['hardware']}")


if __name__ == "__main__":
    main()
