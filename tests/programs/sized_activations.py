"""Activations that take the number of features at their site, and functions that only seem to."""

import torch
from torch import nn


class Bend(nn.Module):
    """One slope for each channel of pictures."""

    def __init__(self, channels):
        super().__init__()
        self.slope = nn.Parameter(torch.full((1, channels, 1, 1), 0.3))

    def forward(self, x):
        return torch.where(x > 0, x, self.slope * x)


class Wide(nn.Module):
    def __init__(self, n, axis="height"):
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(n))
        assert axis in ("height", "width")


class Optional(nn.PReLU):
    def __init__(self, channels=1):
        super().__init__(channels)


def made_of(features):
    return nn.PReLU(features)


def curried(slope=0.5):
    return lambda channels: nn.PReLU(channels, slope)


def of_features(features):
    return 2 * features


def of_pictures(x):
    return x - x.mean((2, 3), keepdim=True)


def scaled_by(x, channels):
    return channels * x
