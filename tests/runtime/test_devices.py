"""Stacks that do not fit into memory, and what is kept between updates."""

import pandas as pd
import pytest
import torch

from actlab.runtime import devices
from actlab.runtime.accidents import is_out_of_memory
from actlab.stacking import StackedTask
from tiny_study import TWO, KilledError, execute, kill_after, load, metrics, result
from tolerances import EXACT

BRIEF = ["trainer.max_epochs=1", "trainer.limit_train_batches=2", "trainer.val_check_interval=1.0"]


def test_errors_of_short_memory_are_known():
    for error in (MemoryError(), torch.OutOfMemoryError("CUDA out of memory")):
        assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("a memory of it"))


def test_a_stack_that_does_not_fit_is_halved(tmp_path, monkeypatch, capsys):
    """As often as it takes: 7 become 4 and 3, then 2, 2 and 3."""
    runs = load(tmp_path, overrides=[*TWO, *BRIEF, "seeds=7"]).runs()
    baddbmm, kill = torch.baddbmm, []

    def scarce(bias, x, y):
        if len(x) > 3:
            kill.append(len(x))
            torch.empty(2**50)
        return baddbmm(bias, x, y)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "baddbmm", scarce)
        execute(runs, tmp_path / "halved")
    assert set(kill) == {7, 4}
    assert "7 runs in one stack do not fit into memory" in capsys.readouterr().out
    assert sorted(result(tmp_path / "halved", run)["stack"]["size"] for run in runs) == [
        2,
        2,
        2,
        2,
        3,
        3,
        3,
    ]
    execute(runs[:1], tmp_path / "alone", stacked=False)
    for run in runs:
        assert result(tmp_path / "halved", run)["status"] == "finished"
        assert metrics(tmp_path / "halved", run).shape == metrics(tmp_path / "alone", runs[0]).shape


def test_halves_start_anew_where_the_stack_ran_out_of_memory(tmp_path, monkeypatch):
    """In the second epoch, also after a kill: as without the lack of memory."""
    change = [
        "model.activation=prelu",
        "trainer.callbacks=[{class_path: actlab.callbacks.UnitStatistics}]",
    ]
    options = [
        "model.activation=relu",
        "model.network.dropout=0.1",
        *BRIEF,
        "trainer.max_epochs=3",
        EXACT,
    ]
    runs = load(tmp_path, overrides=[*options, *change]).runs()
    execute(runs, tmp_path / "straight")
    epochs = []

    def scarce(self, *args):
        epochs.append((len(self.members), self.trainer.current_epoch))
        if len(self.members) > 2 and self.trainer.current_epoch == 1:
            raise MemoryError

    monkeypatch.setattr(StackedTask, "on_before_optimizer_step", called_before(scarce, StackedTask))
    with pytest.raises(KilledError):  # in the last epoch of the first half
        execute(runs, tmp_path / "halved", progress=kill_after(len(runs) + 5))
    execute(runs, tmp_path / "halved")
    assert {size for size, _ in epochs} == {4, 2}
    assert min(epoch for size, epoch in epochs if size == 2) == 0
    for run in runs:
        assert result(tmp_path / "halved", run)["stack"]["size"] == 2
        pd.testing.assert_frame_equal(
            metrics(tmp_path / "straight", run), metrics(tmp_path / "halved", run)
        )


def called_before(first, kind):
    original = kind.on_before_optimizer_step

    def both(self, *args):
        first(self, *args)
        return original(self, *args)

    return both


@pytest.mark.parametrize("stacked", [True, False], ids=["stack", "alone"])
def test_a_run_records_the_device_that_trained_it(tmp_path, monkeypatch, stacked):
    monkeypatch.setattr("actlab.engines.run_facts.name_of", lambda device: f"a {device} of ours")
    runs = load(tmp_path, overrides=[*TWO, *BRIEF]).runs()
    execute(runs, tmp_path / "runs", stacked)
    assert {result(tmp_path / "runs", run)["hardware"] for run in runs} == {"a cpu of ours"}


def test_slices_of_a_gpu_are_named_by_the_variable(monkeypatch):
    """CUDA counts only the first, and asking it would start it."""

    def count():
        raise AssertionError

    monkeypatch.setenv(devices.VISIBLE, "MIG-a,MIG-b")
    monkeypatch.setattr(torch.accelerator, "device_count", count)
    assert devices.accelerators() == ["MIG-a", "MIG-b"]


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("", ["2", "0", "1"]),
        ("5,6,7,8,9", ["7", "5", "6"]),
        ("GPU-a,GPU-b,7,GPU-c,GPU-d", ["7", "GPU-a", "GPU-b"]),
    ],
)
def test_devices_with_most_free_memory_come_first(monkeypatch, visible, names):
    """Small differences change no order. One left out is full, one is used by one process only."""
    free = [20 * 2**30 + 5, 20 * 2**30 + 9, 70 * 2**30, 2**29]

    def memory(device):
        if device == 4:
            raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable")
        return free[device], 80 * 2**30

    monkeypatch.setenv(devices.VISIBLE, visible)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 5)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", memory)
    assert devices.accelerators() == names


def test_a_cpu_has_no_accelerators():
    assert devices.accelerators() == []
