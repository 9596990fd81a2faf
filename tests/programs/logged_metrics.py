"""A module that logs as people do: torchmetrics objects, one name in two loops, batch values."""

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAccuracy, BinaryF1Score, BinaryHingeLoss

import actlab


class Module(pl.LightningModule):
    def __init__(self, activation: str = "relu", lr: float = 0.01):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2, 8), actlab.create(activation), torch.nn.Linear(8, 1)
        )
        self.acc, self.lr = BinaryAccuracy(), lr
        self.several = MetricCollection([BinaryF1Score(), BinaryHingeLoss()], prefix="valid_")

    def forward(self, batch):
        return self.net(batch[0])[:, 0]

    def loss(self, batch):
        return torch.nn.functional.binary_cross_entropy_with_logits(self(batch), batch[1])

    def training_step(self, batch, number):
        self.log("train_loss", loss := self.loss(batch))
        self.log("loss", loss, on_step=False, on_epoch=True)
        self.log("batch", float(number))
        return loss

    def validation_step(self, batch, _):
        guessed = self(batch)
        self.acc(guessed, batch[1])
        self.several(guessed, batch[1].int())
        self.log("valid/acc", self.acc)
        self.log_dict(self.several)
        self.log("loss", self.loss(batch))
        self.log("val_loss", self.loss(batch))
        self.log("val_mean", guessed.mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.lr)


class Data(pl.LightningDataModule):
    def loader(self):
        x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
        return DataLoader(TensorDataset(x, (x[:, 0] > 0).float()), batch_size=16)

    train_dataloader = val_dataloader = loader
