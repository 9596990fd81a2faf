"""Activations whose properties `actlab check` measures."""

import torch
from torch import nn


class Reshapes(nn.Module):
    def forward(self, x):
        return x.flatten()


class Infinite(nn.Module):
    def forward(self, x):
        return 1 / torch.relu(x)


class Constant(nn.Module):
    def forward(self, x):
        return torch.ones_like(x)


class Exponential(nn.Module):
    def forward(self, x):
        return x.exp()


class Mixes(nn.Module):
    elementwise = True
    stochastic = False

    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class Centres(nn.Module):
    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class LearnsATensor(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = torch.ones(1, requires_grad=True)

    def forward(self, x):
        return self.slope * x


class Infinitesimal(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, torch.sqrt(0 * x))


class Untraceable(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum().item() > 0 else x


class WrongGradient(nn.Module):
    def forward(self, x):
        return x**2 + (x - x.detach())


class Raises(nn.Module):
    def forward(self, x):
        raise ValueError("not today")


class Learns(nn.Module):
    calls: torch.Tensor

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.ones(1))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.calls.add_(1)
        return self.slope * torch.tanh(x)
