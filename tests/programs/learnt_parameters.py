"""Activations that learn: one number, one a channel, several in modules; and a fixed one."""

import torch
from torch import nn


class Swish(nn.Module):
    """x · sigmoid(β·x)."""

    stochastic = False

    def __init__(self, beta=1.0):
        super().__init__()
        self.beta = nn.Parameter(torch.tensor(float(beta)))

    def forward(self, x):
        return x * torch.sigmoid(self.beta * x)


class ChannelSwish(nn.Module):
    """Swish with a β for each channel (dim 1)."""

    stochastic = False

    def __init__(self, width):
        super().__init__()
        self.beta = nn.Parameter(torch.full((width,), 1.5))

    def forward(self, x):
        return x * torch.sigmoid(self.beta.view(-1, *[1] * (x.ndim - 2)) * x)


class Blend(nn.Module):
    """A weighted sum of ReLU and tanh, with two weights and a module; it declares nothing."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.tensor([0.75, 0.25]))
        self.inner = Swish(0.5)

    def forward(self, x):
        return (
            self.weights[0] * torch.relu(x) + self.weights[1] * torch.tanh(x) + 0.1 * self.inner(x)
        )


class Frozen(Swish):
    """Swish whose β is no longer trained."""

    stochastic = False

    def __init__(self):
        super().__init__()
        self.beta.requires_grad_(False)
