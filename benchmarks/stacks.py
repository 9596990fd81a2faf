"""What stacking saves: time of one update of one run, one by one and in stacks, against its products alone.

    python benchmarks/stacks.py [--dataset FOLDER_OR_HUB_ID]

The network is the MNIST classifier with GELU, Adam and batches of 128, without dropout. Sides take turns;
the figures are medians over the rounds, in milliseconds an update and run. The template is Lightning as project
templates use it: a dataset read sample by sample, metrics logged every step.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial

import data as batches
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassAccuracy

from actlab.datamodules import MNISTDataModule
from actlab.stacking import StackedTask
from actlab.studies import command
from actlab.tasks import ClassificationTask

ROUNDS, UPDATES = 5, 25
SIZES = (1, 2, 5, 15, 45)


def task(seed: int, lr: float = 1e-3) -> ClassificationTask:
    """The MNIST classifier, as the study trains it."""
    return ClassificationTask(
        activation="gelu", optimizer=partial(torch.optim.Adam, lr=lr, fused=True), seed=seed
    )


class Clock(pl.Callback):
    """Seconds from the first to the last update of a fit, the first few left out."""

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        """Note the time after the warm-up and after each further update."""
        if trainer.global_step == 5:
            self.start, self.first = time.perf_counter(), 5
        self.end, self.last = time.perf_counter(), trainer.global_step

    @property
    def milliseconds(self) -> float:
        """Per update."""
        return (self.end - self.start) / (self.last - self.first) * 1e3


def trained(module: pl.LightningModule, loader: DataLoader[object]) -> float:
    """Milliseconds an update under a Trainer, metrics logged."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, command.quiet():
        pl.Trainer(
            max_steps=UPDATES + 5, logger=pl.loggers.CSVLogger(folder), callbacks=[clock], barebones=False,
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
            use_distributed_sampler=False, accelerator="cpu", num_sanity_val_steps=0, limit_val_batches=0,
        ).fit(module, loader)  # fmt: skip
    return clock.milliseconds


def looped(loader: DataLoader[tuple[Tensor, Tensor]]) -> float:
    """Milliseconds an update of a loop written by hand."""
    network = task(0).network.train()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
    start = 0.0
    for step, (x, y) in enumerate(loader):
        if step == 5:
            start = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
        if step == UPDATES + 5 - 1:
            break
    return (time.perf_counter() - start) / UPDATES * 1e3


def products(size: int) -> float:
    """Milliseconds of the matrix products of one update of a stack: forward, weights' and inputs' gradients."""
    layers = [m for m in StackedTask([task(seed) for seed in range(size)]).network if hasattr(m, "weight")]
    shapes = [tuple(layer.weight.shape[1:]) for layer in layers]
    weights = [torch.randn(size, *shape) for shape in shapes]
    inputs = [torch.randn(size, 128, fan_in) for fan_in, _ in shapes]
    outputs = [torch.randn(size, 128, fan_out) for _, fan_out in shapes]
    start = 0.0
    for step in range(UPDATES + 5):
        if step == 5:
            start = time.perf_counter()
        for number, (w, x, y) in enumerate(zip(weights, inputs, outputs, strict=True)):
            torch.bmm(x, w)
            torch.bmm(x.transpose(1, 2), y)
            if number:  # the images need no gradient
                torch.bmm(y, w.transpose(1, 2))
    return (time.perf_counter() - start) / UPDATES * 1e3


class Template(pl.LightningModule):
    """As a project template has it."""

    def __init__(self) -> None:
        super().__init__()
        self.network = task(0).network
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


def stacked(data: MNISTDataModule, size: int) -> float:
    """Milliseconds an update and run in a stack of three learning rates."""
    rates = (1e-3, 1e-4, 1e-5)
    members = [task(r, rates[r * 3 // size] if size > 2 else 1e-3) for r in range(size)]
    data.seed = list(range(size))
    milliseconds = trained(StackedTask(members), data.train_dataloader()) / size
    data.seed = 0
    return milliseconds


def measure(dataset: str | None = None) -> dict[str, float]:
    """All figures: milliseconds an update and run, and the ratios.

    Returns:
        ``trainer_vs_loop``, ``template_vs_stacked``, ``sequential_vs_stacked``, ``stacked_vs_products``, and
        ``stacked_R_ms`` for each size R.
    """
    data = MNISTDataModule(dataset=dataset) if dataset else MNISTDataModule(sample=True)
    data.setup("fit")
    assert data.train is not None
    template = DataLoader(
        batches.PerSample(*data.train.tensors), batch_size=128, shuffle=True, drop_last=True, num_workers=0
    )
    sides: dict[str, Callable[[], float]] = {
        "loop_ms": lambda: looped(data.train_dataloader()),
        "trainer_ms": lambda: trained(task(0), data.train_dataloader()),
        "template_ms": lambda: trained(Template(), template),
        **{f"stacked_{size}_ms": partial(stacked, data, size) for size in SIZES},
        **{f"products_{size}_ms": lambda size=size: products(size) / size for size in SIZES[2:]},
    }
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            taken[name].append(side())
    figures = {name: statistics.median(values) for name, values in taken.items()}
    best = min(SIZES[2:], key=lambda size: figures[f"stacked_{size}_ms"])
    return figures | {
        "best_size": float(best),
        "trainer_vs_loop": figures["trainer_ms"] / figures["loop_ms"],
        "template_vs_stacked": figures["template_ms"] / figures[f"stacked_{best}_ms"],
        "sequential_vs_stacked": figures["trainer_ms"] / figures[f"stacked_{best}_ms"],
        "stacked_vs_products": figures[f"stacked_{best}_ms"] / figures[f"products_{best}_ms"],
    }


def main() -> None:
    """Measure and print, one figure a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", help="MNIST as a hub id or folder; by default the embedded sample")
    for name, value in measure(parser.parse_args().dataset).items():
        print(f"{name:36} {value:12.4g}")


if __name__ == "__main__":
    main()
