"""Seed the global generators at the start of each epoch."""

from __future__ import annotations

from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback

from actlab.random.hashing import seed_for
from actlab.random.seeding import seed_generators
from actlab.validation import validated


class SeedEveryEpoch(Callback):
    """Seed torch's, NumPy's and Python's generators at the start of each epoch.

    They are seeded by the run's seed and the epoch. Dropout, shuffling and workers of data loaders
    then draw the same numbers after a resume as without a stop, and shuffles do not depend on what
    an activation draws. `actlab fit` and studies add this callback where the module or the
    datamodule is not actlab's, and seed before both are built and before training. The same in a
    script::

        pl.seed_everything(7, workers=True)
        data = Data()
        pl.seed_everything(7, workers=True)
        module = Module()
        trainer = pl.Trainer(callbacks=[SeedEveryEpoch(7)])
        pl.seed_everything(7, workers=True)
        trainer.fit(module, datamodule=data)

    Batches that are augmented in the main process still depend on what was drawn before in their
    epoch. Workers that persist over epochs keep generators of their own, which no resume restores:
    a line says so.

    Args:
        seed: the seed of the run.
    """

    stackable = True

    @validated
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._starts = True

    def on_train_epoch_start(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> None:
        """Seed the generators; have the batches of the epoch drawn after that."""
        loop: Any = trainer.fit_loop
        epoch = trainer.current_epoch
        if epoch and self._starts and trainer.is_global_zero:
            self._note_persistent_workers(loop)
        seed_generators(seed_for(self.seed, "epoch", epoch))

        # Draw the batches again: Lightning made their iterator earlier.
        if epoch == 0:
            iter(loop._data_fetcher)
        # With True, Lightning would keep that iterator.
        loop._resuming_from_checkpoint = False
        self._starts = False

    @staticmethod
    def _note_persistent_workers(loop: Any) -> None:
        """Print that a resume does not restore the generators of persistent workers, if any."""
        loaders = loop._combined_loader.flattened
        if any(getattr(loader, "persistent_workers", False) for loader in loaders):
            print(
                "note: no resume restores the random numbers of persistent workers. Set "
                "persistent_workers=False for the numbers of a training without a stop.",
                flush=True,
            )
