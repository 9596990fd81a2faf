"""GELU in several forms that differ in what they declare."""

import torch
from torch.nn import functional as F


def undeclared(x):
    return F.gelu(x)


def deterministic(x):
    return F.gelu(x)


def drawing(x):
    return F.gelu(x)


deterministic.stochastic = False  # type: ignore[attr-defined]
drawing.stochastic = True  # type: ignore[attr-defined]


class Undeclared(torch.nn.Module):
    def forward(self, x):
        return F.gelu(x)
