"""Classes and functions of each kind of a config, which raise when they are built or called."""

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger


class Refusing(torch.nn.ReLU):
    def __init__(self):
        raise KeyError("no luck")


class Failing(torch.nn.ReLU):
    def forward(self, x):
        raise ZeroDivisionError("later")


class Network(torch.nn.Module):
    def __init__(self, act, num_classes, input_shape):
        raise AttributeError("of the author")


class Data:
    pass


def optimizer(parameters):
    raise RuntimeError("none")


class Keywords(torch.optim.SGD):
    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)


class Task(pl.LightningModule):
    def __init__(self):
        raise KeyError("no luck")


class Module(pl.LightningDataModule):
    def __init__(self):
        raise OSError("no disk")


class Callback(pl.Callback):
    def __init__(self):
        raise RuntimeError("no luck")


class Logger(CSVLogger):
    def __init__(self):
        raise ZeroDivisionError("no luck")
