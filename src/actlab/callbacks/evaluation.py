"""Evaluate within training: in evaluation mode, with batches placed as the Trainer places them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.trainer.states import RunningStage
from torch import nn

from actlab.runtime.modules import evaluating, unchanged


@contextmanager
def evaluation_mode(
    trainer: Trainer, module: LightningModule
) -> Iterator[Callable[[Any], Any]]:
    """Enter evaluation mode in the Trainer's precision; yield what moves a batch to the device.

    The network of a task or a stack is left as it was.
    """
    precision = trainer.precision_plugin

    def place(batch: Any) -> Any:
        # In the testing stage users' hooks do not augment a batch.
        stage = trainer.state.stage
        trainer.state.stage = RunningStage.TESTING
        try:
            converted = precision.convert_input(batch)
            return trainer.strategy.batch_to_device(converted, module.device)
        finally:
            trainer.state.stage = stage

    network = getattr(module, "network", None)  # of a task or a stack
    parts: Iterable[nn.Module] = ()
    if isinstance(network, nn.Module):
        parts = network.modules()
    with evaluating(module), unchanged(parts), precision.forward_context():
        yield place


def reduce_logged(trainer: Trainer) -> None:
    """Reduce on every device what was logged so far.

    Lightning reduces a metric where it is read, and a progress bar reads it on one device alone.
    """
    if trainer.world_size > 1:
        _ = trainer.progress_bar_metrics
