"""Processor time of `actlab fit --print_config` and `--help` against a stock LightningCLI.

Run in turns, because others may load the machine: ``python benchmarks/startup.py --rounds 5``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from itertools import chain

from actlab.storage.resources import config_file

CONFIG = str(config_file("mnist_classifier"))
STOCK = """\
import actlab, pytorch_lightning as pl
from pytorch_lightning.cli import LightningCLI
classes = pl.LightningModule, pl.LightningDataModule
LightningCLI(*classes, subclass_mode_model=True, subclass_mode_data=True)
"""
SIDES = {"actlab": ["-m", "actlab"], "stock": ["-c", STOCK]}
WORDS = {"--print_config": ["fit", "-c", CONFIG, "--print_config"], "--help": ["fit", "--help"]}


def seconds(words: list[str]) -> float:
    """Return user and system time of a Python process and its children."""
    before = os.times()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def main() -> None:
    """Print the median of each side and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    for name, words in WORDS.items():
        times: dict[str, list[float]] = {side: [] for side in SIDES}
        for side in chain.from_iterable(SIDES for _ in range(rounds + 1)):
            times[side].append(seconds([*SIDES[side], *words]))
        # The first fills caches
        median = {side: statistics.median(found[1:]) for side, found in times.items()}
        print(f"fit {name}: {median['actlab']:.2f} s, stock {median['stock']:.2f} s", end=", ")
        print(f"ratio {median['actlab'] / median['stock']:.2f}")


if __name__ == "__main__":
    main()
