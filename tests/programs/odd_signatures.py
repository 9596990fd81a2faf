"""A module, a network and a function with required, optional and untyped arguments."""

import pytorch_lightning as pl
import torch


class Model(pl.LightningModule):
    def __init__(self, required, options: dict | None = None, anything=None, **unused):
        super().__init__()


class Net(torch.nn.Linear):
    def __init__(self, act, num_classes: int, input_shape, width):
        super().__init__(784, num_classes)


def model() -> pl.LightningModule:
    return Model(1)
