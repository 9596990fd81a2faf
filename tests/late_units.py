"""A unit that acts once it has been tried and is being trained, as text that tests write to a file."""

COUNTING = '''\
from torch import nn


class Counting(nn.Module):
    """Does `act` in its calls in training, but for the first ones."""

    first = 6

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        if self.calls > self.first:
            self.act()
        return x.relu()
'''
