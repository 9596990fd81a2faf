"""Activations, a task, a network and data, most of which draw random numbers of their own."""

import random

import numpy as np
import torch
from torch import nn

from actlab.activations.learnt import GELU
from actlab.datamodules import MNISTDataModule
from actlab.tasks import ClassificationTask


class BornRandom(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.tensor(float(np.random.rand())))
        self.b = random.random()

    def forward(self, x):
        slope = 0.5 * (np.random.rand() + random.random()) if self.training else 0.5
        return torch.where(x > 0, x, (self.a * self.b + slope) * x)


def noisy(x):  # in evaluation too
    return (x + 0.5 * torch.randn_like(x)).relu()


class Centred(GELU):  # says of its forward what another one's class has said
    def __init__(self):
        super().__init__(mu=0.0, sigma=1.0)

    def forward(self, x):
        return super().forward((x - x.mean(0)) * (torch.rand_like(x) if self.training else 0.5))


class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = None

    def forward(self, x):
        if self.a is None:
            self.a = nn.Parameter(torch.full((x.shape[-1],), 0.25))
        return torch.where(x > 0, x, self.a * x)


class PlainState(nn.Module):
    n = 0

    def forward(self, x):
        return x.relu()

    def get_extra_state(self):
        return {"n": self.n}

    def set_extra_state(self, state):
        self.n = state["n"]


class Annealed(ClassificationTask):
    def quantities(self, output, batch):
        return super().quantities(output * (1 + self.current_epoch), batch)


class Net(nn.Sequential):
    def __init__(self, act, num_classes, input_shape, hidden=(8,), dropout=0.5, init="glorot"):
        super().__init__(
            nn.Flatten(), nn.Linear(784, hidden[0]), act(), nn.Linear(hidden[0], num_classes)
        )
        self.got = hidden, dropout, init


class Noisy(MNISTDataModule):
    def load(self, device):
        super().load(device)
        images, labels = self.train.tensors
        generator = torch.Generator().manual_seed(self.seed)  # type: ignore[arg-type]  # fails in a stack
        turned = torch.randint(10, labels.shape, generator=generator)
        self.train.tensors = images, torch.where(torch.arange(len(labels)) % 2 == 0, labels, turned)
