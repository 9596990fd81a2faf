"""Batches by one gather against a dataset read sample by sample, under the same loop and the same Trainer.

    python benchmarks/data.py [--dataset FOLDER_OR_HUB_ID]

The opponent is the loader of the usual project template: a map-style dataset whose ``__getitem__`` makes a
Pillow image and turns it into a float tensor, the default collate function, 0 or 2 worker processes. Pixels
are decoded in memory for both. Repetitions are interleaved; the figures are medians. ``batches_vs_per_sample``
compares with the faster of the two opponents in the bare loop, ``trainer_vs_per_sample`` likewise with a small
module trained by Lightning. One torch thread throughout: on a computer that others use too, two threads wait
milliseconds for each other in operations of microseconds, and the ratio would measure that.
"""

from __future__ import annotations

import actlab  # noqa: F401  (first, for torchvision: see actlab.runtime.operators)

# isort: split
import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from figures import show
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from actlab.datamodules import MNISTDataModule
from actlab.engines import settings
from actlab.runtime.denormals import flush_denormals

BATCH = 128
REPETITIONS = 3


class PerSample(Dataset[tuple[Tensor, int]]):
    """As the vision libraries read MNIST: array → Pillow image → float tensor, one sample at a time."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images.squeeze(1), labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.images[index].numpy())
        pixels = torch.from_numpy(np.array(image, np.uint8, copy=True))
        return pixels.view(1, *pixels.shape).to(torch.float32).div(255), int(self.labels[index])


class Linear(pl.LightningModule):
    """A module that costs little beside the loader."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Cross-entropy."""
        return nn.functional.cross_entropy(self.network(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), 0.01)


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that an action takes, and what it returns."""
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def bare_loop(loader: DataLoader[Any]) -> float:
    """Batches per second over one epoch."""
    seconds, number = timed(lambda: sum(1 for _ in loader))
    return number / seconds


def trainer_loop(loader: DataLoader[Any], module: Linear) -> float:
    """Batches per second of one epoch of training, Lightning's setup left out."""
    start = 0.0

    class Clock(pl.Callback):
        def on_train_epoch_start(self, *_: Any) -> None:
            nonlocal start
            start = time.perf_counter()

    off = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    options: dict[str, Any] = dict.fromkeys(off, False)
    trainer = pl.Trainer(accelerator="cpu", max_epochs=1, callbacks=[Clock()], **options)
    before = time.perf_counter()
    trainer.fit(module, loader)
    return trainer.global_step / (time.perf_counter() - (start or before))


def load_seconds(options: dict[str, Any]) -> tuple[float, float, MNISTDataModule]:
    """Seconds of a first and of a cached load, and the datamodule."""
    import datasets  # noqa: F401  (imported on first use: its second is no part of the loading)

    with tempfile.TemporaryDirectory() as cache:
        first, _ = timed(lambda: MNISTDataModule(cache_dir=cache, **options).prepare_data())
        data = MNISTDataModule(cache_dir=cache, batch_size=BATCH, **options)
        cached, _ = timed(lambda: data.setup("fit"))
    return first, cached, data


@settings.quiet()
def measure(dataset: str | None = None) -> dict[str, float]:
    """All figures of one dataset; of the embedded sample when none is given.

    Returns:
        seconds of loading, batches per second by loader and loop, and the two ratios.
    """
    flush_denormals()
    first, cached, data = load_seconds({"dataset": dataset} if dataset else {"sample": True})
    assert data.train is not None
    samples = PerSample(*data.train.tensors)
    loaders: dict[str, Callable[[], DataLoader[Any]]] = {
        "gather": data.train_dataloader,
        **{
            f"per_sample_{workers}_workers": lambda workers=workers: DataLoader(
                samples, BATCH, shuffle=True, drop_last=True, num_workers=workers
            )
            for workers in (0, 2)
        },
    }
    loops: dict[str, Callable[[DataLoader[Any]], float]] = {
        "batches": bare_loop,
        "trainer": lambda loader: trainer_loop(loader, Linear(samples.images[0].numel(), data.num_classes)),
    }
    rates: dict[str, list[float]] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(REPETITIONS):
        for loop, run in loops.items():
            for name, make in loaders.items():
                rates.setdefault(f"{loop}_per_s_{name}", []).append(run(make()))
    torch.set_num_threads(threads)
    figures = {name: statistics.median(values) for name, values in rates.items()}
    for loop in loops:
        best = max(figures[f"{loop}_per_s_per_sample_{workers}_workers"] for workers in (0, 2))
        figures[f"{loop}_vs_per_sample"] = figures[f"{loop}_per_s_gather"] / best
    return {"first_load_s": first, "cached_load_s": cached, **figures}


def main() -> None:
    """Measure and print, one figure a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", help="hub id or folder; by default the embedded sample of MNIST")
    show(measure(parser.parse_args().dataset))


if __name__ == "__main__":
    main()
