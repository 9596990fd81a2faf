"""An activation with state that no checkpoint keeps."""

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
