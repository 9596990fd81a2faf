"""Compare activations on a table: a user-defined LightningDataModule, actlab's ClassificationTask.

The task is generated (Hastie, Tibshirani and Friedman, *The Elements of Statistical Learning*, eq.
10.2): ten standard normal features, and the label says whether the sum of their squares exceeds its
median. One label in twenty is flipped, so the lowest possible error is 5 %, and guessing gives 50
%.

The study file ``own_data.yaml`` names the class by its import path, so the shell requires this
folder on ``PYTHONPATH``. From the shell and from Python::

    PYTHONPATH=examples actlab study run examples/own_data.yaml --set trainer.max_epochs=2 --seeds 2
    python examples/own_data.py

Such runs are trained one by one; a subclass of `actlab.datamodules.base.TensorDataModule` also
allows stacks.
"""

from __future__ import annotations

import actlab  # first, so that torchvision, which Lightning imports if it is there, fits any torch

# isort: split
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

QUICK = True  # False: the whole study, 30 epochs with 10 seeds
STUDY = Path(__file__).with_suffix(".yaml")
MEDIAN = 9.34  # of the χ² distribution with 10 degrees of freedom
FLIPPED = 0.05


class TableDataModule(pl.LightningDataModule):
    """Rows of ten features in units of their own, standardised by the training rows.

    Args:
        rows: number of training rows; validation and test have half as many each.
        batch_size: size of a batch.
        table_seed: determines the rows. It is no seed of a run: all runs share one table.
    """

    num_classes, input_shape = 2, (10,)  # the task builds its network for these

    def __init__(self, rows: int = 2000, batch_size: int = 50, table_seed: int = 0) -> None:
        super().__init__()
        self.rows, self.batch_size, self.table_seed = rows, batch_size, table_seed

    def setup(self, stage: str) -> None:
        """Generate the three parts."""
        numbers = torch.Generator().manual_seed(self.table_seed)
        normal = torch.randn(2 * self.rows, 10, generator=numbers)
        flipped = torch.rand(2 * self.rows, generator=numbers) < FLIPPED
        labels = ((normal.square().sum(1) > MEDIAN) ^ flipped).long()
        # As in real tables, columns differ in scale
        table = 100 + normal * torch.logspace(-2, 3, 10)
        sizes = [self.rows, self.rows // 2, self.rows // 2]
        train, val, test = table.split(sizes)
        mean, std = train.mean(0), train.std(0)  # of the training rows alone
        parts = zip((train, val, test), labels.split(sizes), strict=True)
        self.train, self.val, self.test = (TensorDataset((x - mean) / std, y) for x, y in parts)

    def train_dataloader(self) -> DataLoader:
        """Return the training batches, shuffled by the run's seed."""
        return DataLoader(self.train, self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self) -> DataLoader:
        """Return the validation batches."""
        return DataLoader(self.val, 500)

    def test_dataloader(self) -> DataLoader:
        """Return the test batches."""
        return DataLoader(self.test, 500)


def main() -> None:
    """Run the study and print its table."""
    brief: dict[str, Any] = {"seeds": 2, "settings": {"trainer.max_epochs": 2}}
    print(actlab.run_study(STUDY, **(brief if QUICK else {})))


if __name__ == "__main__":  # training processes import this file
    main()
