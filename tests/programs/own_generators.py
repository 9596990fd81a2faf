"""Data whose batches depend on generators and counters of its own, and a module that counts."""

import numpy as np
import pytorch_lightning as pl
import torch
import torchmetrics
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


class Net(pl.LightningModule):
    def __init__(self, activation: str = "relu", counts: bool = False):
        super().__init__()
        self.net, self.counts, self.steps = torch.nn.Linear(2, 1), counts, 0
        self.logged, self.total = torchmetrics.MeanMetric(), torchmetrics.SumMetric()

    def training_step(self, batch, _):
        loss = (self.net(batch[0]) - batch[1]).square().mean()
        self.logged(loss.detach())
        self.log("loss", self.logged, on_step=False, on_epoch=True)
        if self.counts:
            self.total.update(loss.detach())
            self.steps += 1
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)


class Data(pl.LightningDataModule):
    def __init__(self, kind: str):
        super().__init__()
        self.kind, self.order = kind, torch.Generator().manual_seed(42)
        self.noise = np.random.default_rng(1)
        x = torch.randn(16, 2, generator=torch.Generator().manual_seed(1))
        self.rows = TensorDataset(x, x.sum(1, keepdim=True).sin())

    def train_dataloader(self):
        if self.kind == "numpy":
            return DataLoader(self.rows, 4, sampler=self.noise.permutation(16).tolist())
        if self.kind == "local":
            return DataLoader(
                self.rows, 4, shuffle=True, generator=torch.Generator().manual_seed(7)
            )
        if self.kind == "weighted":
            weights = torch.linspace(0.1, 1, 16).tolist()
            return DataLoader(
                self.rows, 4, sampler=WeightedRandomSampler(weights, 16, generator=self.order)
            )
        return DataLoader(self.rows, 4, shuffle=True, generator=self.order)
