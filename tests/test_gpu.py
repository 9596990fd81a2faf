"""What a CUDA device must not change: stacks, precision, checkpoints, random numbers, workers.

``pytest -m gpu`` runs these tests. ACTLAB_GPU_TESTS_ON=cpu runs them without a device, to try them.
"""

import json
import os

import pytest
import torch
from torch import nn

import actlab
from actlab.checks import stack_trial
from actlab.random.masks import compile_masks
from actlab.random.positions import Position, uniform_at
from actlab.random.streams import Stream, Uniform, attach
from actlab.runtime import devices
from actlab.runtime.devices import name_of
from actlab.studies import reading
from actlab.tasks import ClassificationTask
from tiny_study import execute, metrics, result

KIND = os.environ.get("ACTLAB_GPU_TESTS_ON", "cuda")
DEVICE = torch.device(KIND)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        KIND == "cuda" and not torch.cuda.is_available(), reason="torch finds no CUDA device"
    ),
]
STUDIES = {
    "MLP": [
        *("gelu_mnist_classifier", "model.network.dropout=0.3", "model.network.hidden=[32, 32]"),
        "data.batch_size=100",
    ],
    "GPT": ["gpt_plain", "data.batch_size=4", "data.context=16", "data.updates_per_epoch=10"],
}


@pytest.fixture(autouse=True)
def graphs(monkeypatch):
    """Updates are replayed, whatever this device has shown so far."""
    monkeypatch.setattr(devices, "graphs", True)


FIT = ["-c", "mnist_classifier", "--data.sample", "true", "--trainer.max_epochs", "1"]


def three(study, *overrides):
    """Three runs of two epochs that differ in their seed."""
    short = ["data.sample=true", "trainer.max_epochs=2", "trainer.check_val_every_n_epoch=1"]
    fixed = ["model.activation=gelu", "model.optimizer.lr=0.001", "seeds=3"]
    return reading.load(study, overrides=[*fixed, *short, *overrides], staged=False).runs()


@pytest.mark.parametrize("given", STUDIES.values(), ids=STUDIES)
def test_a_stack_of_three_runs_equals_the_runs_alone(tmp_path, given):
    runs = three(*given)
    execute(runs, tmp_path / "stack")
    execute(runs, tmp_path / "alone", stacked=False)
    for run in runs:
        assert result(tmp_path / "stack", run)["stack"]["size"] == 3
        assert "not_replayed" not in result(tmp_path / "stack", run)
        together, alone = (metrics(tmp_path / name, run) for name in ("stack", "alone"))
        assert (together["metric"] == alone["metric"]).all()
        losses = together["metric"].str.endswith("loss")
        assert together["value"][losses].to_numpy() == pytest.approx(
            alone["value"][losses].to_numpy(), rel=1e-3
        )


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("given", STUDIES.values(), ids=STUDIES)
def test_the_trial_of_a_stack_finds_no_difference(given, precision):
    """In float64, and again in reduced precision."""
    assert stack_trial.difference(three(*given, f"trainer.precision={precision}")) is None


@pytest.mark.parametrize("activation", ["gelu", "prelu", "soi", "rrelu"])
def test_a_fit_in_mixed_precision(cli, tmp_path, monkeypatch, activation):
    monkeypatch.chdir(tmp_path)
    cli(
        "fit", *FIT, "--trainer.precision", "bf16-mixed", "--model.activation", activation
    ).succeeded()
    (path,) = tmp_path.rglob("last.ckpt")
    state = torch.load(path, weights_only=False)["state_dict"]
    assert all(value.dtype != torch.bfloat16 and value.isfinite().all() for value in state.values())


def test_a_checkpoint_of_the_device_is_evaluated_on_the_cpu(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("fit", *FIT, "--trainer.accelerator", KIND).code == 0
    (path,) = tmp_path.rglob("last.ckpt")
    task = ClassificationTask.load_from_checkpoint(path).eval()
    assert next(task.parameters()).device.type == "cpu"
    x = torch.rand(64, 1, 28, 28)
    with torch.no_grad():
        expected = task.network(x)
        found = task.to(DEVICE).network(x.to(DEVICE))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)
    for accelerator in ("cpu", KIND):
        out = cli("test", "--ckpt_path", path, "--trainer.accelerator", accelerator).succeeded()
        assert "test/error" in out


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
# torch's compiler uses what torch deprecates
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_random_numbers_are_those_of_the_cpu(monkeypatch, compiled):
    def drawn(device):
        site = nn.Sequential(Uniform())
        stream = Stream([3, 4])
        attach(site, stream)
        stream.move(1, 7)
        return site(torch.zeros(2, 1000, device=device)).cpu()

    expected = drawn("cpu")
    monkeypatch.setattr("actlab.random.masks._compiled", None)
    if compiled:
        compile_masks()
    assert drawn(DEVICE).equal(expected)
    on_cpu, on_device = (
        uniform_at(Position((3,), 2, torch.arange(50, device=device)), "noise", (4,))
        for device in ("cpu", DEVICE)
    )
    assert on_device.cpu().equal(on_cpu)


def test_worker_processes_use_the_device(tmp_path):
    """They are forked, from a process that must not have used it."""
    found = actlab.run_study("demo", runs_dir=tmp_path, jobs=2, smoke=True, seeds=2)
    assert found.failed == 0
    results = [
        json.loads((found.root / run / "result.json").read_text()) for run in found.values["run"]
    ]
    assert {one["hardware"] for one in results} == {name_of(DEVICE)}


@pytest.mark.parametrize("route", ["onednn", "auto"])
def test_a_backend_of_the_cpu_hinders_no_fit(cli, tmp_path, monkeypatch, route):
    """Lightning asks torch for one precision of all backends."""
    monkeypatch.chdir(tmp_path)
    cli("fit", *FIT, "--products", route).succeeded()
