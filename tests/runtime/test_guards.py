"""An epoch that ends before its planned number of batches is an error, unless asked for."""

from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from actlab.errors import RunError
from actlab.runtime.guards import PlannedLength


class Line(pl.LightningModule):
    """A straight line; ``skips`` says from which batch on it skips the rest of an epoch."""

    def __init__(self, skips=None):
        super().__init__()
        self.line, self.skips = torch.nn.Linear(1, 1), skips

    def on_train_batch_start(self, batch, batch_idx):
        return -1 if batch_idx == self.skips else None

    def training_step(self, batch, batch_idx):
        return self.line(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Raises(pl.Callback):
    """Raises StopIteration in a hook of the second epoch."""

    def on_train_batch_start(self, trainer, *_):
        if trainer.current_epoch == 1:
            raise StopIteration


class Stops(pl.Callback):
    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = True


class TooLong:
    """A sampler that yields fewer batches than its length."""

    def __len__(self):
        return 4

    def __iter__(self):
        return iter([[0], [1], [2]])


def fitted(*callbacks, module=None, sampler=None, **options):
    trainer = pl.Trainer(
        callbacks=[PlannedLength(), *callbacks],
        **{"max_epochs": 3, "logger": False, "accelerator": "cpu", **options},
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data: Any = torch.zeros(4, 1)
    trainer.fit(module or Line(), DataLoader(data, batch_sampler=sampler))
    return trainer


def test_stop_iteration_and_too_few_batches_are_errors():
    with pytest.raises(RunError, match="epoch 2 ended after 0 of 4 training batches"):
        fitted(Raises())
    with pytest.raises(RunError, match="after 3 of 4 training batches"):
        fitted(sampler=TooLong())


@pytest.mark.parametrize(
    ("options", "updates"),
    [
        ({"max_steps": 5}, 5),
        ({"max_epochs": -1, "max_steps": 9}, 9),
        ({"limit_train_batches": 2}, 6),
        ({"max_time": {"seconds": 0}}, 0),
        ({"module": Line(skips=2)}, 6),
    ],
)
def test_training_may_end_by_its_plan(options, updates):
    assert fitted(**options).global_step == updates


def test_a_callback_may_stop_training():
    assert fitted(Stops()).global_step == 1
