"""Activations that cannot be trained, each for a reason of its own."""

import os
import sys

import torch
from torch import nn


class Wider(nn.Module):
    def forward(self, x):
        return torch.cat([x, x], -1) if x.shape != (2, 4) else x


class Infinite(nn.Module):
    def forward(self, x):
        return x / 0


class Overwrites(nn.Module):
    def forward(self, x):
        return x.mul_(0.5).tanh()


class Cut(nn.Module):
    def forward(self, x):
        return x.detach().relu()


class Double(nn.Module):
    def forward(self, x):
        return x.double().relu()


class Steep(nn.Module):
    """The derivative of the square root is infinite at 0."""

    def forward(self, x):
        return torch.where(x > 0, x, torch.sqrt(0 * x))


class Needs(nn.Module):
    def __init__(self, slope):
        super().__init__()


class Raises(nn.Module):
    def forward(self, x):
        raise KeyError("no such thing")


class Jumpy(nn.Module):
    """Random in training, which it denies."""

    stochastic = False

    def forward(self, x):
        return x.relu() * (torch.rand_like(x) if self.training else 0.5)


class Listed(nn.Module):
    """Has a parameter in a list, which is not one of the module's."""

    def __init__(self):
        super().__init__()
        self.slopes = [nn.Parameter(torch.full((), 0.1))]

    def forward(self, x):
        return torch.where(x > 0, x, self.slopes[0] * x)


class Late(nn.Module):
    """Creates its parameter in the first call."""

    def forward(self, x):
        if not hasattr(self, "a"):
            self.a = nn.Parameter(torch.full((), 0.1))
        return torch.where(x > 0, x, self.a * x)


class Single(nn.Module):
    """Can be created once, so not in a network after it was tried alone."""

    created = 0

    def __init__(self):
        super().__init__()
        Single.created += 1
        assert Single.created == 1, "one is enough"

    def forward(self, x):
        return x.relu()


class Centred(nn.Module):
    """Declares to be elementwise, which it is not."""

    elementwise = True
    stochastic = False

    def forward(self, x):
        return (x - x.mean(0)).relu()


class Exits(nn.Module):
    def forward(self, x):
        sys.exit(0)


class Ending(torch.autograd.Function):
    calls = 0

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        Ending.calls += 1
        if Ending.calls > 6:
            raise StopIteration
        return gradient


class EndsBackward(nn.Module):
    def forward(self, x):
        return Ending.apply(x).relu()


class Doubles(nn.Module):
    def forward(self, x):
        torch.set_default_dtype(torch.float64)
        return x.relu()


class DoublesFirst(nn.ReLU):
    def __init__(self):
        super().__init__()
        torch.set_default_dtype(torch.float64)


class Breaks(nn.Module):
    def forward(self, x):
        raise BrokenPipeError


class Strange(Exception):  # noqa: N818, a name as users choose it
    def __str__(self):
        raise KeyError("no text")


class Obscure(nn.Module):
    def forward(self, x):
        raise Strange


class Touchy(nn.Module):
    """Fails in the probe of `strict_probe.py` alone."""

    def forward(self, x):
        if "IN_PROBE" in os.environ:
            raise KeyError("not here")
        return x.relu()
