"""Networks that functions build, as users write them, and a module that takes such a function."""

from collections.abc import Callable

import pytorch_lightning as pl
import torch
from torch import nn

import actlab


def net(act, num_classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(8), act(8), nn.Linear(8, num_classes))


def sized(act, num_classes, *, width=8):
    return nn.Sequential(
        nn.Flatten(), nn.LazyLinear(width), act(width), nn.Linear(width, num_classes)
    )


def shaped(act, num_classes, input_shape, width=8):
    inputs = torch.Size(input_shape).numel()
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, width), act(width), nn.Linear(width, num_classes)
    )


class Shaped(nn.Sequential):
    """The class that `shaped` is instead of."""

    def __init__(self, act, num_classes, input_shape, width=8):
        super().__init__(*shaped(act, num_classes, input_shape, width))


class Untyped(pl.LightningModule):
    def __init__(self, network: Callable, activation: str = "relu"):
        super().__init__()
        self.network = network(actlab.factory(activation), 10)

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self.network(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", nn.functional.cross_entropy(self.network(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Typed(Untyped):
    def __init__(self, network: Callable[[Callable, int], nn.Module], activation: str = "relu"):
        super().__init__(network, activation)
