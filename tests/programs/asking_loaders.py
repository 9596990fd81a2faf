"""Data whose loaders ask their Trainer, and collections of loaders, as in public DataModules."""

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import CombinedLoader
from torch.utils.data import DataLoader, IterableDataset, TensorDataset


def points(size: int) -> TensorDataset:
    x = torch.randn(size, 4, generator=torch.Generator().manual_seed(size))
    return TensorDataset(x, x.sum(1, keepdim=True))


class Rows(IterableDataset):
    def __iter__(self):
        return iter(points(40))


class Data(pl.LightningDataModule):
    def __init__(self, kind: str = "plain"):
        super().__init__()
        self.kind = kind
        self.kept = CombinedLoader(
            [DataLoader(points(48), 8), DataLoader(points(40), 8)], "max_size"
        )

    def setup(self, stage):
        self.size = 40 * self.trainer.world_size

    def train_dataloader(self):
        one, other = DataLoader(points(self.size), 8), DataLoader(points(48), 4)
        collections = {
            "pair": {"a": one, "b": other},
            "shortest": CombinedLoader({"a": one, "b": other}, "min_size"),
            "longest": CombinedLoader({"a": one, "b": other}, "max_size_cycle"),
            "kept": self.kept,
            "rows": DataLoader(Rows(), 8),
            "rows and points": {"a": DataLoader(Rows(), 8), "b": other},
        }
        if self.kind == "epoch":
            return DataLoader(points(24 + 8 * self.trainer.current_epoch), 8)
        if self.kind == "module":
            module: Any = self.trainer.lightning_module
            return DataLoader(points(40), module.batch_size)
        return collections.get(self.kind, one)

    def val_dataloader(self):
        return DataLoader(points(16), 8)


class Line(pl.LightningModule):
    def __init__(self, activation: str = "relu", batch_size: int = 8):
        super().__init__()
        self.activation, self.batch_size = activation, batch_size
        self.layer = torch.nn.Linear(4, 1)

    def loss(self, x, y):
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def training_step(self, batch, batch_idx):
        while not isinstance(batch[0] if isinstance(batch, list | tuple) else None, torch.Tensor):
            batch = batch["a"] if isinstance(batch, dict) else batch[0]
        return self.loss(*batch)

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.loss(*batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)
