"""A module and data without a class of actlab that draw wherever code of users does."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split


class RandomSlope(nn.Module):
    """An activation that draws when it is built."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(1))

    def forward(self, x):
        return x * torch.sigmoid(self.slope * x)


class Noisy(Dataset):
    """Samples with noise of torch and numpy, which data loaders draw in their workers."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        x, y = self.data[index]
        return x + 0.1 * torch.randn_like(x) + 0.1 * float(np.random.normal()), y, index


class RandomData(pl.LightningDataModule):
    """Draws which samples are held out; ``test`` is made where testing is set up alone."""

    def __init__(self, workers: int = 0, persistent: bool = False):
        super().__init__()
        self.options: dict[str, Any] = {"num_workers": workers, "persistent_workers": persistent}

    def setup(self, stage):
        x = torch.rand(48, 4, generator=torch.Generator().manual_seed(0))
        parts = random_split(TensorDataset(x, x.sum(1, keepdim=True)), [32, 8, 8])
        if stage == "fit":
            self.train, self.val, _ = parts
            self.trained = set(self.train.indices)
        if stage == "test":
            self.test = parts[2]
            assert not self.trained & set(self.test.indices)

    def train_dataloader(self):
        return DataLoader(Noisy(self.train), batch_size=8, shuffle=True, **self.options)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=8, shuffle=True)

    def test_dataloader(self):
        return [DataLoader(self.test, batch_size=size, shuffle=True) for size in (8, 3)]


class Layers(nn.Sequential):
    """A part that is built, with random weights, before the module that is given it."""

    def __init__(self, activation: str = "relu"):
        from actlab import create

        super().__init__(nn.Linear(4, 8), create(activation), nn.Dropout(0.5), nn.Linear(8, 1))


class RandomModule(pl.LightningModule):
    """Draws in each epoch and batch, and resets its test metric at the start of testing."""

    def __init__(self, net: nn.Module, lr: float = 0.01):
        super().__init__()
        self.net, self.lr = net, lr
        self.tested: list[float] = []

    def loss(self, batch):
        return (self.net(batch[0]) - batch[1]).square().mean()

    def on_train_epoch_start(self):
        self.scale = float(torch.rand(()))

    def training_step(self, batch, number):
        loss = self.loss(batch) * self.scale
        self.log_dict(
            {"train_loss": loss, "order": number * batch[2].float().mean()},
            on_step=False,
            on_epoch=True,
        )
        return loss

    def validation_step(self, batch, number):
        self.log_dict({"val_loss": self.loss(batch), "val_rows": batch[0].sum()})

    def on_test_epoch_start(self):
        self.tested = []

    def test_step(self, batch, number, dataloader_idx=0):
        self.tested.append(float(self.loss(batch)))
        self.log("test_rows", batch[0].sum(), on_step=True, on_epoch=True)

    def on_test_epoch_end(self):
        self.log("test_loss", sum(self.tested))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), self.lr)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class ReplacedForTest(RandomModule):
    def setup(self, stage):
        if stage == "test":
            self.net = Layers()


class SwapForTest(pl.Callback):
    """Tests other weights, as an average of weights does."""

    def on_test_start(self, trainer, module):
        self.kept = [parameter.detach().clone() for parameter in module.parameters()]
        for parameter in module.parameters():
            parameter.data.mul_(0.5)

    def on_test_end(self, trainer, module):
        for parameter, kept in zip(module.parameters(), self.kept, strict=True):
            parameter.data.copy_(kept)


class StopOnce(pl.Callback):
    """Sends SIGTERM in the third epoch if there is a file ``stop``, which it deletes."""

    def on_train_batch_end(self, trainer, *_):
        if trainer.current_epoch == 2 and Path("stop").exists():
            Path("stop").unlink()
            os.kill(os.getpid(), signal.SIGTERM)
