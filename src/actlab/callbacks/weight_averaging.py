"""Callbacks that average weights: evaluate the averages, and reject them in a study."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import StochasticWeightAveraging, WeightAveraging

from actlab.errors import ActlabError


@contextmanager
def averaged_weights(trainer: Trainer, module: LightningModule) -> Iterator[None]:
    """Give the module the averaged weights with which Lightning validates it, for a block."""
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    averaging = [
        callback for callback in callbacks if isinstance(callback, WeightAveraging)
    ]
    for callback in averaging:
        callback.on_validation_epoch_start(trainer, module)
    try:
        yield
    finally:
        for callback in averaging:
            callback.on_validation_epoch_end(trainer, module)


def check_averaging(trainer: Trainer) -> None:
    """Reject callbacks that average weights: a study's checkpoints hold the weights in training."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, StochasticWeightAveraging | WeightAveraging):
            raise ActlabError(
                f"{type(callback).__name__} keeps averaged weights, but the records and "
                "checkpoints of a study would use the weights in training. Remove it, or train "
                "with `actlab fit`."
            )
