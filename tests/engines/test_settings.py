"""How a study computes: processes, compiled masks, the matmul backend."""

from typing import Any

import pytest
import torch

from actlab import experiments
from actlab.engines import settings
from actlab.errors import ActlabError
from actlab.random import masks
from actlab.runtime import devices, matmul
from actlab.stacking.task import matmul_of
from actlab.studies.reading import load
from actlab.tasks import ClassificationTask, graphs

LONG, SEVERAL = settings.LONG, settings.SEVERAL


@pytest.fixture
def compiled(monkeypatch):
    """Calls of the compiler."""
    calls: list[int] = []
    monkeypatch.setattr(masks, "compile_masks", lambda: calls.append(1))
    return calls


def test_masks_of_long_studies_are_compiled(compiled, tmp_path):
    assert not settings.decide(tmp_path, 9, LONG - 1, None, True).compiled
    assert not compiled
    settings.decide(tmp_path, 9, LONG, None, True).apply()
    assert len(compiled) == 1


def test_processes_are_for_long_studies(monkeypatch, tmp_path):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert settings.decide(tmp_path, 9, SEVERAL - 1, None, True).jobs == 1
    assert settings.decide(tmp_path, 9, SEVERAL, None, True).jobs == 4
    assert settings.decide(tmp_path, 9, SEVERAL, None, True, devices=["1", "0"]).jobs == 2
    assert settings.decide(tmp_path, 1, SEVERAL, None, True).jobs == 1
    assert settings.decide(tmp_path, 9, 1, 3, True).jobs == 3
    assert settings.decide(tmp_path, 9, LONG, 3, False).jobs == 1
    assert settings.decide(tmp_path, 9, LONG, 0, True).jobs == 0
    with pytest.raises(
        ActlabError, match=r"--jobs: expected 0 \(.*\) or a positive whole number, got -1"
    ):
        settings.check_jobs(-1)


@pytest.mark.parametrize(
    ("processor", "capability", "exact", "route"),
    [
        ("AMD EPYC 9B14", "AVX512", True, "onednn"),
        ("AMD EPYC 9B14", "AVX512", False, "default"),
        ("AMD EPYC 7B13", "AVX2", True, "default"),
        ("Intel(R) Xeon(R)", "AVX512", True, "default"),
    ],
)
def test_the_backend_depends_on_the_processor_and_the_network(
    tmp_path, monkeypatch, processor, capability, exact, route
):
    monkeypatch.setattr(matmul, "hardware", lambda: processor)
    monkeypatch.setattr(matmul, "is_exact", lambda: exact)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert matmul_of(ClassificationTask()) == route
    assert (
        matmul_of(experiments.build(load("gpt_plain", smoke=True).runs()[0].config).task)
        == "default"
    )


def test_float32_stays_float32():
    mkldnn: Any = torch.backends.mkldnn
    before, on_gpus = mkldnn.matmul.fp32_precision, torch.backends.cuda.matmul.fp32_precision
    try:
        matmul.use(matmul.for_mlps())
        left, right = torch.randn(64, 300), torch.randn(300, 64)
        exact = left.double() @ right.double()
        assert (left @ right - exact).abs().max() / exact.abs().max() < 1e-5
        assert torch.backends.cuda.matmul.fp32_precision == on_gpus
    finally:
        mkldnn.matmul.fp32_precision = before
    with pytest.raises(ActlabError, match="unknown matmul backend 'mkl'"):
        matmul.use("mkl")


def test_with_a_gpu_the_backend_of_the_cpu_stays(monkeypatch):
    """Lightning sets one precision of all backends, which torch rejects if the CPU's is onednn."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    mkldnn: Any = torch.backends.mkldnn
    before = mkldnn.matmul.fp32_precision
    try:
        assert matmul.use("onednn") == "default"
        assert torch.get_float32_matmul_precision() == "highest"
        assert matmul.for_mlps() == "default"
    finally:
        mkldnn.matmul.fp32_precision = before


def test_graphs_are_decided_once_unless_an_option_changes_them(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "graphs", None)
    assert not settings.decide(tmp_path, 9, 1, None, True).graphs
    assert settings.decide(tmp_path, 9, 1, None, True, graphs=True).graphs
    kept = settings.decide(tmp_path, 9, 1, None, True)
    assert kept == settings.Settings(graphs=True)
    kept.apply()
    assert devices.graphs is True
    assert not settings.decide(tmp_path, 9, 1, None, True, graphs=False).graphs
    assert not settings.decide(tmp_path, 9, 1, None, True).graphs


def test_graphs_are_the_default_of_a_device_that_has_shown_them(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices, "name_of", lambda device: f"an {device.type} device")
    monkeypatch.setattr(graphs, "are_shown", lambda name: name == "an cuda device")
    assert settings.decide(tmp_path, 9, 1, None, True).graphs
