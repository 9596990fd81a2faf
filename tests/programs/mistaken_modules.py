"""Modules of users that a command line builds unlike their scripts, or that lack something."""

import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import OptimizerCallable
from torch.utils.data import DataLoader, TensorDataset


class Line(pl.LightningModule):
    """``x ↦ w·x``, by least squares."""

    def __init__(self, activation: str = "relu", optimizer: OptimizerCallable = torch.optim.SGD):
        super().__init__()
        self.save_hyperparameters()
        self.layer, self.make = torch.nn.Linear(1, 1), optimizer

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.layer(batch[0]).square().mean())

    def configure_optimizers(self):
        return self.make(self.parameters())


class TakesAnOptimizer(Line):
    def __init__(self, optimizer: torch.optim.Optimizer, activation: str = "relu"):
        super().__init__(activation, optimizer)


class HasLoaders(Line):
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.rand(8, 1)), 4)


class Points(pl.LightningDataModule):
    def __init__(self, missing: str = "", num_workers: int = 0):
        super().__init__()
        self.missing, self.num_workers = missing, num_workers

    def read(self, where):
        if self.missing == where:
            raise FileNotFoundError("no images here")

    def setup(self, stage):
        self.read("setup")

    def collated(self, rows):
        self.read("loader")
        return torch.utils.data.default_collate(rows)

    def train_dataloader(self):
        rows = TensorDataset(torch.rand(8, 1))
        return DataLoader(
            rows, 4, num_workers=self.num_workers, collate_fn=lambda rows: self.collated(rows)
        )

    val_dataloader = train_dataloader
