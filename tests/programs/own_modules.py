"""Modules of a user: a task with a further argument, a module without optimiser, an activation."""

import pytorch_lightning as pl
import torch
from torch.nn import functional as F

from actlab.tasks import ClassificationTask, NetworkFactory


class Sub(ClassificationTask):
    def __init__(self, network: NetworkFactory, activation: str, extra: int = 3):
        super().__init__(activation=activation, network=network)


class Counted(torch.nn.Module):
    """A network whose ``hidden`` is a number where that of `MLP` is a list."""

    def __init__(
        self,
        act,
        num_classes,
        input_shape,
        hidden: int = 4,
        dropout: float = 0.0,
        norm: torch.nn.Module | None = None,
    ):
        super().__init__()


class Bare(pl.LightningModule):
    def __init__(self, width: int = 4):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(784, width), torch.nn.Linear(width, 10))

    def training_step(self, batch, index):
        loss = F.cross_entropy(self.layers(batch[0].flatten(1)), batch[1])
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val/loss", F.cross_entropy(self.layers(batch[0].flatten(1)), batch[1]))


class Mish2(torch.nn.Module):
    def __init__(self, beta: float = 1.0):
        super().__init__()
        self.beta = beta

    def forward(self, x):
        return x * torch.tanh(self.beta * F.softplus(x))
