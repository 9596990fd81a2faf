"""A user's own data and module, without a class of actlab, and a task with a step of its own."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from actlab.tasks import ClassificationTask


class MyData(pl.LightningDataModule):
    def __init__(self, size: int = 64, batch_size: int = 16):
        super().__init__()
        self.size, self.batch_size = size, batch_size

    def setup(self, stage):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(self.size, 6, generator=generator)
        self.data = TensorDataset(x, (x.sum(1) > 0).long())

    def train_dataloader(self):
        return DataLoader(self.data, self.batch_size)

    val_dataloader = test_dataloader = train_dataloader


class MyModule(pl.LightningModule):
    def __init__(
        self, activation: str = "relu", width: int = 8, lr: float = 0.1, broken: bool = False
    ):
        super().__init__()
        from actlab.activations import create

        self.network = nn.Sequential(nn.Linear(6, width), create(activation), nn.Linear(width, 2))
        self.lr, self.broken = lr, broken

    def step(self, batch):
        return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def training_step(self, batch, batch_idx):
        loss = self.step(batch) * (float("nan") if self.broken else 1)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.step(batch))

    def on_train_epoch_end(self):
        if self.current_epoch % 2 == 1:
            self.log("every_second_epoch", float(self.current_epoch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class WithMomentum(MyModule):
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.5)


class OwnStep(ClassificationTask):
    def training_step(self, batch, batch_idx):
        return 2 * super().training_step(batch, batch_idx)
