"""A user's activation and module with an encoder that torch would evaluate by a fused kernel."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Leaky(nn.ReLU):
    """x for x > 0, else 0.3 x."""

    def forward(self, x):
        return torch.where(x > 0, x, 0.3 * x)


def encoder(activation):
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, activation=activation, batch_first=True
    )
    return nn.TransformerEncoder(layer, 2)


class Module(pl.LightningModule):
    """Checks that its outputs in evaluation are those in training."""

    def configure_model(self):
        if not hasattr(self, "net"):
            self.net = encoder(Leaky())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

    def training_step(self, batch, batch_idx):
        return self.net(batch[0]).square().mean()

    def validation_step(self, batch, batch_idx):
        padded = (
            torch.arange(5) >= 1 + torch.arange(len(batch[0])).sort(descending=True).values[:, None]
        )
        evaluated, trained = (
            self.net.train(mode)(batch[0], None, padded) for mode in (False, True)
        )
        self.net.eval()
        assert (evaluated - trained)[~padded].abs().max() < 2e-6


class Data(pl.LightningDataModule):
    def train_dataloader(self):
        return DataLoader(
            TensorDataset(torch.randn(5, 5, 8, generator=torch.Generator().manual_seed(0))), 5
        )

    val_dataloader = train_dataloader
