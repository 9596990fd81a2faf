"""Callbacks of the experiments; they find what they need through public attributes."""

from __future__ import annotations

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback


class TestEveryEpoch(Callback):
    """Log ``test/…`` after each training epoch, for held-out curves.

    The papers plot test curves; nothing is selected by them. The task's ``test_step`` and ``collect`` are used
    as they are in ``trainer.test``, without the cost of a second evaluation loop.
    """

    __test__ = False  # the name opens like a test class
    splits = ("test",)  # whose metrics it records
    stackable = True  # it calls what a stack has as well, and logs nothing itself

    @torch.no_grad()
    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate on the test set and log."""
        loader = trainer.datamodule.test_dataloader()  # type: ignore[attr-defined]
        pl_module.eval()
        with trainer.precision_plugin.forward_context():
            for number, batch in enumerate(loader):
                batch = trainer.precision_plugin.convert_input(batch)
                batch = trainer.strategy.batch_to_device(batch, pl_module.device)
                pl_module.test_step(batch, number)
        pl_module.train()
        pl_module.on_test_epoch_end()
