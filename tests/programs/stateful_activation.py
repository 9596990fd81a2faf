"""Activations with state that no checkpoint keeps: it changes no value, or the slope."""

import torch


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.seen, self.table = 0, [], {"a": 1}
        self.register_buffer("last", torch.zeros(()), persistent=False)
        self.register_buffer("kept", torch.zeros(()))
        self.act = lambda x: x.relu()

    def forward(self, x):
        self.calls += 1
        self.seen.append(float(x.detach().mean()))
        self.last.fill_(x.detach().mean())
        self.kept.fill_(x.detach().mean())
        return self.act(x)


class Annealed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        return torch.where(x > 0, x, x / (1 + self.calls))
