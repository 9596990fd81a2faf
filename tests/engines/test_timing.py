"""The size of stacks is decided by times of updates that are given here."""

import math
from types import SimpleNamespace

import pytest
import torch

from actlab.checks.facts import BuiltFacts
from actlab.engines import packing, timing
from actlab.engines import settings as execution
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
            if self.start is not None:
                called.append(len(calls))

    monkeypatch.setitem(replay.PROGRAMS, "cpu", program)
    long = [
        "trainer.limit_train_batches=60",
        "data.batch_size=10",
        "trainer.val_check_interval=1.0",
    ]
    runs = load(tmp_path, overrides=[*long, "trainer.max_epochs=1", "seeds=1"]).runs()
    with pytest.raises(timing._EnoughError):
        timing._fit(runs[:1], Clock(), True)
    assert called[0] >= replay.CHECKS


@pytest.mark.parametrize(
    ("jobs", "devices", "sizes"),
    [(1, ["0"], [3, 3]), (2, ["0", "1"], [3, 3]), (2, ["0"], [1] * 6)],
)
def test_stacks_of_all_processes_fit_into_the_memory_of_a_gpu(
    jobs, devices, sizes, tmp_path, monkeypatch
):
    """Here five runs take nine tenths of it, and a stack of six would be the fastest."""
    peak = SimpleNamespace(bytes=0)

    def fit(runs, clock, _):
        peak.bytes = 14 * len(runs)
        clock.fastest = 1.0

    monkeypatch.setattr(timing, "_fit", fit)
    monkeypatch.setattr(timing, "WORTH", 0.0)
    monkeypatch.setattr(execution, "LONG", 1)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (70, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 10)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: peak.bytes)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    runs = load(
        tmp_path, overrides=["model.network.dropout=0.0", "model.activation=relu", "seeds=3"]
    ).runs()
    arranged = packing.arrange(runs, runs, tmp_path, 15, jobs, None, BuiltFacts(), devices=devices)
    assert [len(job.runs) for job in arranged.jobs] == sizes
