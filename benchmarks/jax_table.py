"""The engine as users get it against JAX: milliseconds an update and run by size of the stack.

    python benchmarks/jax_table.py [--sizes 1,15,45,90] [--rounds 3]

Both train the MNIST classifier (784–8×128–10, GELU, Adam, batches of 128, one seed a member) for
whole epochs of 107 updates, on a quarter of the images that MNIST has: batches in an order of each
epoch and member, three validations, the test set; with dropout 0.5 the clean training loss too, by
one more forward pass an update. The engine is the command ``actlab study run`` with one stack of R,
its records and checkpoints included (`sides.Study`); JAX is ``vmap`` over members and one compiled
``scan`` (`jax_side`). They take turns of an epoch, and the fastest turn of each counts. What the
engine does once an epoch weighs four times as much here as with all of MNIST.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import sides
import torch
from figures import show
from opponents import looped, products
from timing import updates_of

SIZES = (1, 15, 45, 90)
ROUNDS = 3


def measure(
    dataset: str | None = None,
    size: int = 15,
    rounds: int = ROUNDS,
    dropouts: Sequence[float] = (0.0, 0.5),
    jax: bool = True,
    epochs: int = sides.EPOCHS,
) -> dict[str, float]:
    """Figures of one size; the data set is not used. Without ``jax`` those of the engine alone.

    Returns:
        milliseconds an update and run, ``stacked_vs_jax`` and ``stacked_dropout_vs_jax``; of one
        run ``loop_vs_jax`` too, a loop by hand without evaluation.
    """
    del dataset
    with tempfile.TemporaryDirectory() as folder:
        data = sides.make_data(Path(folder))
        makers: dict[str, Callable[[], sides.Side]] = {}
        for dropout in dropouts:
            name = "_dropout" * bool(dropout)
            makers[f"engine{name}_ms"] = partial(sides.Study, data, size, dropout, epochs=epochs)
            if jax:
                makers[f"jax{name}_ms"] = partial(sides.Jax, data, size, dropout)
        figures = sides.fastest(makers, rounds)
    if size == 1 and jax:  # what a loop by hand takes, and the products in it
        batches: Any = [
            (torch.rand(128, 1, 28, 28), torch.randint(10, (128,))) for _ in range(updates_of())
        ]
        figures["loop_ms"] = min(looped(batches) for _ in range(rounds))
        figures["products_ms"] = min(products(1) for _ in range(rounds))
        figures["loop_vs_jax"] = figures["loop_ms"] / figures["jax_ms"]
    for name in ["_dropout" * bool(dropout) for dropout in dropouts if jax]:
        figures[f"stacked{name}_vs_jax"] = figures[f"engine{name}_ms"] / figures[f"jax{name}_ms"]
    return figures


def main() -> None:
    """Measure and print, one size after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="of stacks")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each side")
    args = parser.parse_args()
    for size in map(int, args.sizes.split(",")):
        print(f"R = {size}, {psutil.getloadavg()[0]:.1f} processes at work on the machine")
        show(measure(size=size, rounds=args.rounds))


if __name__ == "__main__":
    main()
