"""Time of a fit with the loss of single batches (``train/loss_step``) in the logger, and without.

    python benchmarks/step_loss.py [--epochs 100] [--every 50] [--batch 32]

One fit of the MNIST classifier on the sample, with a logger on disk; every second epoch logs the
loss of single batches. Printed are the ratio of the fastest epochs, by the processor time of their
updates on one thread, and the quartiles of the ratio of neighbouring epochs.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import CSVLogger

from actlab.experiments import build
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file


class Turns(pl.Callback):
    """Log in every second epoch, and time the updates of each."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.seconds: tuple[list[float], list[float]] = [], []  # without, with

    def on_train_epoch_start(self, trainer: pl.Trainer, *_: object) -> None:
        """Switch sides."""
        trainer.log_every_n_steps = self.every * (trainer.current_epoch % 2)
        self.start = time.process_time()

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        """Note the time of the last update of the epoch."""
        self.end = time.process_time()

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: object) -> None:
        """Keep the epoch's seconds; the first two are for warming up."""
        if trainer.current_epoch > 1:
            self.seconds[trainer.current_epoch % 2].append(self.end - self.start)


def measure(epochs: int, every: int, batch: int) -> Turns:
    """Return the seconds of the updates of each epoch."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    config = read_mapping(config_file("mnist_classifier"))
    config["data"]["init_args"] |= {"dataset": None, "sample": True, "batch_size": batch}
    torch.set_num_threads(1)
    turns = Turns(every)
    with tempfile.TemporaryDirectory() as folder:
        config["trainer"] = {
            "max_epochs": epochs,
            "limit_val_batches": 0,
            "enable_checkpointing": False,
        }
        run = build(config, logger=CSVLogger(folder), callbacks=[turns], default_root_dir=folder)
        run.trainer.fit(run.task, datamodule=run.data)
    return turns


def main() -> None:
    """Measure and print the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("epochs", 100), ("every", 50), ("batch", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    without, with_ = measure(**vars(parser.parse_args())).seconds
    ratios = [after / before for before, after in zip(without, with_, strict=False)]
    low, _, high = statistics.quantiles(ratios, n=4)
    ratio = min(with_) / min(without)
    print(
        f"train/loss_step against none: {ratio:.3f} ({low:.3f} to {high:.3f}), {len(ratios)} "
        f"pairs of epochs, {min(without):.3f} s of updates an epoch"
    )


if __name__ == "__main__":
    main()
