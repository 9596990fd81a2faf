"""The size of stacks is decided by times of updates that are given here."""

import math

import pytest

from actlab.engines import timing
from actlab.engines.timing import chosen
from actlab.tasks import replay
from tiny_study import load


@pytest.mark.parametrize(
    ("seconds", "size"),
    [
        ({15: 3.0, 5: 2.0, 1: 1.0}, 15),
        ({15: 9.0, 5: 2.0, 1: 1.0}, 5),
        ({15: 9.0, 5: 2.9, 1: 1.0}, 15),  # so little may be chance
        ({15: 15.0, 5: 4.9, 1: 1.0}, 15),
        ({15: 16.0, 5: 5.5, 1: 1.0}, 1),
        ({15: math.inf, 5: 2.0, 1: 1.0}, 5),  # too large for the memory
        ({15: math.inf, 5: math.inf, 1: 1.0}, 1),
        ({2: 3.0, 1: math.inf}, 2),
        ({2: math.inf, 1: math.inf}, 2),
    ],
    ids=str,
)
def test_the_best_size_of_stacks(seconds, size):
    assert chosen(seconds) == size


def test_updates_are_timed_when_they_are_no_longer_compared_with_their_graph(tmp_path, monkeypatch):
    """The first ones take up to ten times as long."""
    calls: list[int] = []
    called: list[int] = []  # up to each block since the clock began

    def program(gradients, batch):
        made = replay.traced(gradients, batch)
        return lambda batch: calls.append(1) or made(batch)

    class Clock(timing._Clock):
        def on_train_batch_start(self, trainer, module, batch, number):
            super().on_train_batch_start(trainer, module, batch, number)
            if len(self.starts) > 1:
                called.append(len(calls))

    monkeypatch.setitem(replay.PROGRAMS, "cpu", program)
    long = ["trainer.limit_train_batches=60", "data.batch_size=10", "trainer.val_check_interval=1.0"]
    runs = load(tmp_path, overrides=[*long, "trainer.max_epochs=1", "seeds=1"]).runs()
    with pytest.raises(timing._EnoughError):
        timing._fit(runs[:1], Clock(), True)
    assert called[0] >= replay.CHECKS
