"""Opponents of stacks: a loop by hand, a project template, bare products, ``torch.func``.

All return milliseconds an update.
"""

from __future__ import annotations

import actlab  # noqa: F401  (first, for torchvision: see actlab.runtime.operators)

# isort: split
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, pairwise, repeat
from typing import Any

import pytorch_lightning as pl
import torch
from timing import DEVICE, WARM_UP, Clock, synchronise, threads_of, updates_of
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassAccuracy

from actlab.random import streams
from actlab.runtime.quiet import quiet
from actlab.stacking import StackedNetwork


def mlp(dropout: float) -> nn.Sequential:
    """The MNIST classifier of torch's own modules."""
    layers: list[nn.Module] = [nn.Flatten()]
    for width in (784, *[128] * 7):
        layers += [nn.Linear(width, 128), nn.GELU(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers, nn.Linear(128, 10))


def looped(
    loader: DataLoader[tuple[Tensor, Tensor]], now: Callable[[], float] = time.perf_counter
) -> float:
    """Milliseconds an update of a loop written by hand, epoch after epoch."""
    network = mlp(0.0).to(DEVICE)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
    start, updates = 0.0, updates_of()
    with threads_of(1):
        batches = chain.from_iterable(repeat(loader))
        for step, (x, y) in zip(range(updates), batches, strict=False):
            if step == WARM_UP:
                start = now()
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x.to(DEVICE)), y.to(DEVICE)).backward()
            optimizer.step()
        synchronise()
    return (now() - start) / (updates - WARM_UP) * 1e3


class Template(pl.LightningModule):
    """As a project template has it."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.network = mlp(dropout)
        self.accuracy = MulticlassAccuracy(10)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Loss and accuracy, logged every step."""
        x, y = batch
        logits = self.network(x)
        loss = nn.functional.cross_entropy(logits, y)
        self.accuracy(logits, y)
        self.log("train/loss", loss, on_step=True, on_epoch=True)
        self.log("train/accuracy", self.accuracy, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def template(dropouts: Sequence[float], loader: DataLoader[Any]) -> float:
    """Milliseconds an update of the template: mean over some dropouts."""
    taken = []
    for dropout in dropouts:
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder, quiet():
            pl.Trainer(
                max_steps=updates_of(),
                logger=pl.loggers.CSVLogger(folder),
                callbacks=[clock],
                enable_progress_bar=False,
                enable_model_summary=False,
            ).fit(Template(dropout), loader)
        taken.append(clock.milliseconds)
    return statistics.mean(taken)


def products(size: int) -> float:
    """Milliseconds of the matrix products of one update of a stack: forward, then backward."""
    widths = (784, *[128] * 8, 10)
    weights = [torch.randn(size, *shape, device=DEVICE) for shape in pairwise(widths)]
    values = [torch.randn(size, 128, width, device=DEVICE) for width in widths]
    start, updates = 0.0, updates_of(size)
    with threads_of(size):
        for step in range(updates):
            if step == WARM_UP:
                start = time.perf_counter()
            kept = [torch.bmm(x, w) for x, w in zip(values, weights, strict=False)]
            for number in reversed(range(len(weights))):
                kept.append(torch.bmm(values[number].mT, values[number + 1]))
                if number:  # the images need no gradient
                    torch.bmm(values[number + 1], weights[number].mT)
        synchronise()
    return (time.perf_counter() - start) / (updates - WARM_UP) * 1e3


def forward_and_backward(
    run: Callable[[Tensor], Tensor], parameters: Sequence[Tensor], x: Tensor
) -> float:
    """Milliseconds of the sum of all outputs and its gradient."""
    start, updates = 0.0, updates_of()
    for step in range(updates):
        if step == WARM_UP:
            start = time.perf_counter()
        torch.autograd.grad(run(x).sum(), parameters)
    synchronise()
    return (time.perf_counter() - start) / (updates - WARM_UP) * 1e3


def explicit_and_func(size: int = 15) -> tuple[Callable[[], float], Callable[[], float]]:
    """The same networks by our batched layers, and by ``vmap`` over ``functional_call``."""
    networks = [mlp(0.0).to(DEVICE) for _ in range(size)]
    x = torch.randn(size, 128, 784, device=DEVICE)
    batched = StackedNetwork(networks, streams.Stream(0))
    parameters, _ = torch.func.stack_module_state(networks)

    def mapped(inputs: Tensor) -> Tensor:
        return torch.func.vmap(partial(torch.func.functional_call, networks[0]))(
            parameters, (inputs,)
        )

    torch.testing.assert_close(mapped(x), batched(x), rtol=1e-3, atol=1e-5)
    return (
        partial(forward_and_backward, batched, list(batched.parameters()), x),
        partial(forward_and_backward, mapped, list(parameters.values()), x),
    )
