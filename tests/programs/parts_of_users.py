"""Data, networks, tasks and activations as users write them, some against what stacks assume."""

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from actlab.datamodules import MNISTDataModule, base
from actlab.networks import MLP
from actlab.tasks import ClassificationTask


def samples(seed, number=60):
    source = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (number,), generator=source)
    return torch.randn(number, 10, generator=source) + labels[:, None], labels


class Endless(IterableDataset):
    def __iter__(self):
        return iter(list(zip(*samples(1), strict=True)))


class SplitBySeed(pl.LightningDataModule):
    num_classes, input_shape = 2, (10,)

    def __init__(self, seed: int = 0):
        super().__init__()
        self.seed = seed

    def train_dataloader(self):
        return DataLoader(TensorDataset(*samples(self.seed)), batch_size=20)

    def val_dataloader(self):
        return DataLoader(TensorDataset(*samples(self.seed + 50)), batch_size=60)

    def test_dataloader(self):
        return DataLoader(TensorDataset(*samples(self.seed + 100)), batch_size=60)


class Normalised(nn.Module):
    def __init__(self, act, outputs, shape, inplace: bool = False):
        super().__init__()
        self.inplace = inplace
        first = [nn.Flatten(), Shifted(inplace), nn.Linear(784, 8)]
        self.layers = nn.Sequential(*first, act(), nn.Linear(8, outputs))

    def forward(self, x):
        return self.layers(x)


class Shifted(nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.inplace = inplace

    def forward(self, x):
        return x.sub_(0.13).div_(0.31) if self.inplace else (x - 0.13) / 0.31


class Overwriting(nn.Module):
    def forward(self, x):
        return x.relu_()


class Stream(SplitBySeed):
    def train_dataloader(self):
        return DataLoader(Endless(), batch_size=20)


class Augmented(MNISTDataModule):
    def on_after_batch_transfer(self, batch, dataloader_idx):
        x, y = batch
        return (x + 100 if self.trainer.training else x), y


class TwoOptimizers(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.parts = nn.ModuleList([nn.Linear(10, 8), nn.Linear(8, 2)])

    def loss(self, batch):
        return nn.functional.cross_entropy(self.parts[1](self.parts[0](batch[0])), batch[1])

    def configure_optimizers(self):
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in self.parts]

    def training_step(self, batch, number):
        loss = self.loss(batch)
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()
            optimizer.zero_grad()
        self.log("train/loss", loss, on_epoch=True, on_step=False)

    def validation_step(self, batch, number):
        self.log("val/loss", self.loss(batch))


def noisy(batch, position):
    return batch[0] + torch.randn_like(batch[0]), batch[1]


class NoisyTransform(base.TensorDataModule):
    num_classes, input_shape = 2, (10,)
    stackable = True

    def __init__(self, seed: int = 0):
        super().__init__(20, 60, seed)

    def load(self, device):
        self.train = base.TensorDataset(*samples(1), transform=noisy)
        self.val = self.test = base.TensorDataset(*samples(2))


class Buffered(ClassificationTask):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_buffer("seen", torch.zeros(()))


class Explodes(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        return x.relu() / float(self.calls < 7)


class Dropped(nn.Sequential):
    stackable = ("dropout",)

    def __init__(self, activation, outputs, input_shape, dropout: float):
        super().__init__(
            nn.Flatten(),
            nn.Linear(784, 16),
            activation(),
            nn.Dropout(dropout),
            nn.Linear(16, outputs),
        )


class AlwaysDropping(MLP):
    def train(self, mode=True):
        return super().train(True)
