"""Activations whose properties `actlab check` measures."""

import multiprocessing
import os
import signal
import time

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


class Root(nn.Module):
    """Has no finite second derivative at 0."""

    def forward(self, x):
        return torch.where(x == 0, x + x.abs() ** 1.5, x)


class Overflows(nn.Module):
    """The identity, which is NaN at large inputs."""

    def forward(self, x):
        return torch.exp(x**2) / torch.exp(x**2) * x


class InPlaceInTraining(nn.Module):
    def forward(self, x):
        return x.relu_() if self.training else x.relu()


class HiddenInPlace(nn.Module):
    """Changes its input where autograd does not count it."""

    def forward(self, x):
        x.data.mul_(0.5)
        return x.tanh()


class Ends(nn.Module):
    """Ends its process, as ``how`` says."""

    def __init__(self, how="exit 0"):
        super().__init__()
        self.how = how

    def forward(self, x):
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(int(self.how[-1]))


class EndsInBfloat16(nn.Module):
    def forward(self, x):
        if x.dtype == torch.bfloat16:
            os._exit(0)
        return x.tanh()


class Stops(nn.Module):
    """Sends Ctrl-C to the command that measures it."""

    def forward(self, x):
        parent = multiprocessing.parent_process()
        assert parent
        assert parent.pid
        os.kill(parent.pid, signal.SIGINT)
        time.sleep(100)


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


class MakesAParameter(nn.Module):
    def forward(self, x):
        if not hasattr(self, "slope"):
            self.slope = nn.Parameter(torch.ones(1))
        return self.slope * torch.tanh(x)


class Drawn(nn.Module):
    """A slope that is drawn when the module is built."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(1))

    def forward(self, x):
        return torch.where(x > 0, x, self.slope * x)


class Powers(nn.Module):
    """A cubic with four learnt coefficients: a function of one number."""

    def __init__(self):
        super().__init__()
        self.c = nn.Parameter(torch.tensor([0.0, 1.0, 0.2, 0.1]))

    def forward(self, x):
        return self.c[0] + self.c[1] * x + self.c[2] * x**2 + self.c[3] * x**3


class Low(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([0.8], dtype=torch.bfloat16))

    def forward(self, x):
        return torch.where(x > 0, self.slope * x, torch.tanh(x))


class Noisy(nn.Module):
    """Random in training and in evaluation."""

    def forward(self, x):
        return x + 0.1 * torch.rand_like(x)
