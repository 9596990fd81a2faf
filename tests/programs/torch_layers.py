"""A user's networks of torch's modules on images: by stacked forms, by vmap, or one by one."""

import torch
from torch import nn

WIDTH = 8


class Encoded(nn.Module):
    """A transformer's layer with positions of its own: no stacked form."""

    def __init__(self, act):
        super().__init__()
        self.position = nn.Parameter(0.1 * torch.randn(28, WIDTH))
        self.layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 16, dropout=0.0, activation=act(), batch_first=True
        )

    def forward(self, x):
        return self.layer(x + self.position)


class Recurrent(nn.Module):
    """A recurrent layer, which vmap cannot map."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]


class Branching(nn.Module):
    """Does one thing or another, as the values are."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.linear(x) if x.sum() > 0 else x


MIDDLES = {
    "forms": lambda act: [
        nn.LayerNorm(WIDTH),
        act(),
        nn.Linear(WIDTH, WIDTH),
        nn.RMSNorm((28, WIDTH)),
    ],
    "mapped": lambda act: [Encoded(act)],
    "dropped": lambda act: [Encoded(act), nn.Dropout(0.1)],
    "recurrent": lambda act: [Recurrent(), act()],
    "branching": lambda act: [Branching(), act()],
}


class Rows(nn.Sequential):
    """The 28 rows of an image as a sequence."""

    def __init__(self, act, num_classes, input_shape, middle: str = "forms"):
        last = nn.Flatten(), nn.Linear(28 * WIDTH, num_classes)
        super().__init__(nn.Flatten(1, 2), nn.Linear(28, WIDTH), *MIDDLES[middle](act), *last)
