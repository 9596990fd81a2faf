"""Accidents are told apart from what a network does, and leave no verdict."""

import pytest
import torch

from actlab.engines import packing, timing
from actlab.engines.settings import UNTIMED, Settings
from actlab.errors import LostDeviceError
from actlab.runtime.accidents import check_device, is_accident, wide
from actlab.studies import reading
from tiny_study import TWO, load, study_text

CUBLAS = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"


def of_compiler():
    from torch._inductor.exc import InductorError

    return InductorError(RuntimeError("C++ compile error"), None)


ACCIDENTS = {
    "cublas": lambda: RuntimeError(CUBLAS),
    "compiler": of_compiler,
    "memory": lambda: torch.OutOfMemoryError("CUDA out of memory"),
    "assert": lambda: torch.AcceleratorError("CUDA error: device-side assert triggered"),
}


@pytest.mark.parametrize("make", ACCIDENTS.values(), ids=ACCIDENTS)
def test_accidents_are_known(make):
    assert is_accident(make())
    assert not is_accident(RuntimeError("vmap: called random operation while in randomness error mode"))


def test_an_assert_on_the_device_ends_the_process():
    with pytest.raises(LostDeviceError, match="AcceleratorError: CUDA error: device-side assert triggered"):
        check_device(ACCIDENTS["assert"]())
    check_device(ACCIDENTS["memory"]())


@pytest.mark.tries_stacks
def test_an_accident_while_a_network_is_mapped_is_no_verdict(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    program("torch_layers")
    text = study_text(model__network={"class_path": "torch_layers.Rows", "init_args": {"middle": "mapped"}})
    (tmp_path / "own.yaml").write_text(text.replace("  model.network.hidden: [8]\n", ""))

    def failing(*_, **__):
        raise RuntimeError(CUBLAS)

    monkeypatch.setattr("actlab.stacking.mapping.vmap", failing)
    found = packing.pack(reading.load("own.yaml").runs(), tmp_path)
    (reason,) = found.reasons
    assert "CUBLAS_STATUS_ALLOC_FAILED" in reason
    assert not (tmp_path / packing.TRIALS).exists()


@pytest.mark.parametrize("make", ACCIDENTS.values(), ids=ACCIDENTS)
def test_an_accident_while_updates_are_timed_is_no_decision(tmp_path, monkeypatch, capsys, make):
    runs = load(tmp_path, overrides=TWO).runs()

    def failing(*_):
        raise make()

    monkeypatch.setattr(timing, "_fit", failing)
    if isinstance(make(), torch.AcceleratorError):
        with pytest.raises(LostDeviceError):
            timing.measure({"key": runs}, Settings(products=UNTIMED))
        return
    found = timing.measure({"key": runs}, Settings(products=UNTIMED))
    assert (found.stacks, found.products) == ({}, "default")
    assert "an update of 1 run could not be timed: " in capsys.readouterr().out


@pytest.mark.tries_stacks
def test_without_float64_runs_are_trained_alone_and_measured_on_the_cpu(tmp_path, monkeypatch):
    for place in ("engines.packing", "runtime.accidents"):
        monkeypatch.setattr(f"actlab.{place}.has_float64", lambda device: False)
    found = packing.pack(load(tmp_path, overrides=TWO).runs(), tmp_path)
    assert [len(job.runs) for job in found.jobs] == [1, 1]
    assert found.reasons == ["the device cpu has no float64, in which stacks are compared with runs alone"]
    assert wide(torch.ones(2)).dtype == torch.float64
