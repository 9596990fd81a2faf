"""Accidents are distinguished from what a network does, and leave no verdict."""

import json

import pytest
import torch

from actlab.checks import cost
from actlab.engines import packing, timing, trials
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
    "full disk": lambda: OSError(28, "No space left on device"),
    "timeout": lambda: TimeoutError("timed out"),
    "loader": lambda: RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."),
}


@pytest.mark.parametrize("make", ACCIDENTS.values(), ids=ACCIDENTS)
def test_accidents_are_known(make):
    assert is_accident(make())
    assert not is_accident(
        RuntimeError("vmap: called random operation while in randomness error mode")
    )
    assert not is_accident(RuntimeError("Caught KeyError in DataLoader worker process 0."))


def test_an_assert_on_the_device_ends_the_process():
    with pytest.raises(
        LostDeviceError, match="AcceleratorError: CUDA error: device-side assert triggered"
    ):
        check_device(ACCIDENTS["assert"]())
    check_device(ACCIDENTS["memory"]())


@pytest.mark.tries_stacks
def test_an_accident_while_a_network_is_mapped_is_no_verdict(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    program("torch_layers")
    text = study_text(
        model__network={"class_path": "torch_layers.Rows", "init_args": {"middle": "mapped"}}
    )
    (tmp_path / "own.yaml").write_text(text.replace("  model.network.hidden: [8]\n", ""))

    def failing(*_, **__):
        raise RuntimeError(CUBLAS)

    monkeypatch.setattr("actlab.stacking.mapping.vmap", failing)
    found = packing.pack(reading.load("own.yaml").runs(), tmp_path)
    (reason,) = found.reasons
    assert "CUBLAS_STATUS_ALLOC_FAILED" in reason
    assert not (tmp_path / trials.FILE).exists()


@pytest.mark.parametrize("make", ACCIDENTS.values(), ids=ACCIDENTS)
def test_after_an_accident_while_updates_are_timed_stacks_have_the_usual_size(
    tmp_path, monkeypatch, make
):
    runs = load(tmp_path, overrides=TWO).runs()

    def failing(*_):
        raise make()

    monkeypatch.setattr(timing, "_fit", failing)
    if isinstance(make(), torch.AcceleratorError):
        with pytest.raises(LostDeviceError):
            timing.best_size(runs, 1, 2, True)
    else:
        assert timing.best_size(runs, 1, 2, True) == 2


@pytest.mark.tries_stacks
def test_without_float64_runs_are_trained_alone_and_measured_on_the_cpu(tmp_path, monkeypatch):
    for place in ("checks.forms", "runtime.accidents"):
        monkeypatch.setattr(f"actlab.{place}.has_float64", lambda device: False)
    found = packing.pack(load(tmp_path, overrides=TWO).runs(), tmp_path)
    assert [len(job.runs) for job in found.jobs] == [1, 1]
    assert found.reasons == [
        "the device cpu has no float64, in which stacks are compared with runs alone"
    ]
    assert wide(torch.ones(2)).dtype == torch.float64


@pytest.fixture
def costs_of(cli, tmp_path, monkeypatch):
    """Start a study of ReLU, ELU and Mish whose updates raise an error; return costs and output."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(
        study_text("model.activation: [relu, elu, mish]", seeds=1, epochs=1)
    )
    plain = cost.TimedTask.time

    def start(**raising):
        def time(trial):
            for name, make in raising.items():
                if name in {type(part).__name__ for part in trial.task.modules()}:
                    raise make()
            plain(trial)

        monkeypatch.setattr(cost.TimedTask, "time", time)
        outcome = cli("study", "run", "s.yaml", "--jobs", "0")
        assert outcome.code < 2, outcome.err
        file = tmp_path / "runs/s/cost.json"
        found = json.loads(file.read_text()) if file.exists() else []
        return (
            outcome.code,
            [(one["compared"], one.get("failed", False)) for one in found],
            outcome.out,
        )

    return start


def test_an_accident_while_costs_are_measured_is_stored_nowhere(costs_of):
    full = OSError(28, "No space left on device")
    assert costs_of(ReLU=lambda: full)[:2] == (0, [("elu", False), ("mish", False)])
    lost = {"ELU": ACCIDENTS["cublas"], "Mish": lambda: ValueError("no such number")}
    code, stored, out = costs_of(**lost)
    assert (code, stored[2:]) == (0, [("relu", False), ("mish", True)])
    (line,) = [line for line in out.splitlines() if "not measured" in line]
    assert line.startswith(f"the cost of elu is not measured: RuntimeError: {CUBLAS}")
    # Measured again, together
    assert costs_of()[1][4:] == [
        ("relu", False),
        ("elu", False),
        ("mish", False),
    ]
    assert len(costs_of()[1]) == 7


def test_an_assert_on_the_device_ends_the_measurement(costs_of):
    code, stored, out = costs_of(ELU=ACCIDENTS["assert"])
    assert (code, stored) == (1, [])
    assert "costs were not measured: AcceleratorError: CUDA error: device-side assert" in out
