"""Batches by one gather against a dataset read sample by sample, in the same loop.

    python benchmarks/data.py [--dataset FOLDER_OR_HUB_ID]

The opponent is the loader of the usual project template: a map-style dataset whose ``__getitem__``
makes a Pillow image and turns it into a float tensor, the default collate function, 0 or 2 worker
processes. Pixels are decoded in memory for both. Repetitions are interleaved; the figures are
medians. ``batches_vs_per_sample`` compares with the faster of the two opponents. One torch thread
throughout: on a computer that others use too, two threads wait milliseconds for each other in
operations of microseconds, and the ratio would measure that.
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
import torch
from figures import show
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from actlab.datamodules import MNISTDataModule
from actlab.runtime.denormals import flush_denormals

BATCH = 128
REPETITIONS = 3


class PerSample(Dataset[tuple[Tensor, int]]):
    """As vision libraries read MNIST: array → Pillow image → float tensor, one sample at a time."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images.squeeze(1), labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self.images[index].numpy())
        pixels = torch.from_numpy(np.array(image, np.uint8, copy=True))
        return pixels.view(1, *pixels.shape).to(torch.float32).div(255), int(self.labels[index])


def bare_loop(loader: DataLoader[Any]) -> float:
    """Batches per second over one epoch."""
    start = time.perf_counter()
    number = sum(1 for _ in loader)
    return number / (time.perf_counter() - start)


def measure(dataset: str | None = None) -> dict[str, float]:
    """All figures of one dataset; of the embedded sample when none is given.

    Returns:
        batches per second by loader, and ``batches_vs_per_sample``.
    """
    flush_denormals()
    options: dict[str, Any] = {"dataset": dataset} if dataset else {"sample": True}
    with tempfile.TemporaryDirectory() as cache:
        data = MNISTDataModule(cache_dir=cache, batch_size=BATCH, **options)
        data.prepare_data()
        data.setup("fit")
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
    rates: dict[str, list[float]] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(REPETITIONS):
        for name, make in loaders.items():
            rates.setdefault(f"batches_per_s_{name}", []).append(bare_loop(make()))
    torch.set_num_threads(threads)
    figures = {name: statistics.median(values) for name, values in rates.items()}
    best = max(figures[f"batches_per_s_per_sample_{workers}_workers"] for workers in (0, 2))
    return {**figures, "batches_vs_per_sample": figures["batches_per_s_gather"] / best}


def main() -> None:
    """Measure and print, one figure a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dataset", help="hub id or folder; by default the embedded sample of MNIST"
    )
    show(measure(parser.parse_args().dataset))


if __name__ == "__main__":
    main()
