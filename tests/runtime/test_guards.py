"""Training that ends before its plan is an error, unless something asked for that; the result records which."""

from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from actlab.errors import RunError
from actlab.runtime.guards import PLANNED, STOPPED, TIME, PlannedLength, ended


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

    def __init__(self, hook):
        setattr(self, hook, self.act)

    def act(self, trainer, *_):
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


@pytest.mark.parametrize(
    ("hook", "numbers"),
    [
        ("on_train_batch_start", "epoch 2 ended after 0 of 4 training batches"),
        ("on_train_epoch_start", "after 1 epochs and 4 updates of 3 epochs"),
        ("on_train_epoch_end", "after 1 epochs and 8 updates of 3 epochs"),
    ],
)
def test_a_hook_that_raises_stop_iteration_is_an_error(hook, numbers):
    with pytest.raises(RunError, match=numbers):
        fitted(Raises(hook))


def test_a_loader_that_yields_too_few_batches_is_an_error():
    with pytest.raises(RunError, match="after 3 of 4 training batches"):
        fitted(sampler=TooLong())


@pytest.mark.parametrize(
    ("options", "how", "updates"),
    [
        ({}, PLANNED, 12),
        ({"max_steps": 5}, PLANNED, 5),
        ({"max_epochs": -1, "max_steps": 9}, PLANNED, 9),
        ({"limit_train_batches": 2}, PLANNED, 6),
        ({"max_time": {"seconds": 0}}, TIME, 0),
        ({"module": Line(skips=2)}, PLANNED, 6),
    ],
)
def test_what_ends_training_by_plan_is_recorded(options, how, updates):
    trainer = fitted(**options)
    assert ended(trainer) == how
    assert trainer.global_step == updates


def test_a_callback_may_stop_training():
    trainer = fitted(Stops())
    assert ended(trainer) == STOPPED
    assert trainer.global_step == 1
