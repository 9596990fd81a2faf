"""Activations with state outside instances: some make runs depend on others, the last do not."""

from functools import cache

import torch
from torch import nn

SLOPE = nn.Parameter(torch.tensor(0.1))
GENERATOR = torch.Generator().manual_seed(0)
WEIGHTS = torch.tensor([0.5, 1.5])


class Defaulted(nn.Module):
    def __init__(self, inner=nn.PReLU()):  # noqa: B008
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return torch.tanh(x) + self.inner(x)


class OfFile(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = SLOPE

    def forward(self, x):
        return torch.where(x > 0, x, self.slope * x)


class Unregistered(nn.Module):
    def forward(self, x):
        return torch.where(x > 0, x, SLOPE * x)


class Running(nn.Module):
    mean = torch.zeros(())

    def forward(self, x):
        if self.training:
            Running.mean = 0.9 * Running.mean + 0.1 * x.detach().mean()
        return torch.relu(x - Running.mean)


class Drawing(nn.Module):
    def forward(self, x):
        noise = torch.rand(x.shape, generator=GENERATOR) if self.training else 0.5
        return x.relu() * (0.5 + noise)


class Ageing(nn.Module):
    """Computes something else after some calls of all instances, more than a trial makes."""

    calls = 0

    def forward(self, x):
        Ageing.calls += 1
        return x.relu() * (0.5 if Ageing.calls > 10 else 1)


class Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weights", WEIGHTS)
        self.fixed = nn.Parameter(WEIGHTS, requires_grad=False)

    def forward(self, x):
        return self.weights[1] * x.relu() + self.fixed[0] * x.tanh()


@cache
def ramp(width):
    return torch.linspace(0.5, 1.5, width)


class Cached(nn.Module):
    calls = 0

    def forward(self, x):
        Cached.calls += 1
        return x.relu() * ramp(x.shape[1])


class Noisy(nn.Module):
    def forward(self, x):
        return (x + 0.1 * torch.randn_like(x)).relu() if self.training else x.relu()
