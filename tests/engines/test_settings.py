"""How a study computes is decided once: processes, threads, compiled masks, the route of products."""

from typing import Any

import pytest
import torch

from actlab.engines import settings
from actlab.errors import ActlabError
from actlab.random import streams
from actlab.runtime import devices, matmul
from actlab.storage.files import DamagedError, write_json
from actlab.tasks import graphs

LONG, SEVERAL = settings.LONG, settings.SEVERAL


@pytest.fixture
def compiled(monkeypatch):
    """Calls of the compiler."""
    calls: list[int] = []
    monkeypatch.setattr(streams, "compile_masks", lambda: calls.append(1))
    return calls


def decide(root, updates, jobs=None, single_device=True, runs=9):
    return settings.decide(root, runs, updates, jobs, single_device)


def test_whether_masks_are_compiled_is_decided_once_and_nothing_is_compiled(tmp_path, compiled):
    assert not decide(tmp_path / "short", LONG - 1).compiled
    assert not decide(tmp_path / "short", LONG).compiled
    chosen = decide(tmp_path / "long", LONG)
    assert chosen.compiled
    assert decide(tmp_path / "long", 1) == chosen
    assert not compiled
    chosen.apply()
    assert len(compiled) == 1


def test_processes_are_for_long_studies_and_threads_stay(tmp_path, compiled, monkeypatch):
    monkeypatch.setattr(settings, "seats", lambda: 4)
    assert decide(tmp_path / "short", SEVERAL - 1) == settings.Settings(1, 0)
    assert decide(tmp_path / "several", SEVERAL) == settings.Settings(4, 1)
    assert decide(tmp_path / "one run", SEVERAL, runs=1) == settings.Settings(1, 0)
    assert decide(tmp_path / "asked", 1, jobs=3) == settings.Settings(3, 1)
    assert decide(tmp_path / "long", LONG) == settings.Settings(4, 1, True, settings.UNTIMED)
    assert decide(tmp_path / "long", 1).jobs == 4
    assert decide(tmp_path / "long", 1, jobs=1) == settings.Settings(1, 1, True, settings.UNTIMED)
    timed = settings.Settings(products="onednn", stacks={"a": {"size": 5, "reason": ""}})
    settings.keep(tmp_path / "long", timed)
    kept = settings.Settings(1, 1, True, timed.products, timed.stacks)
    assert decide(tmp_path / "long", LONG, jobs=1) == kept
    assert decide(tmp_path / "devices", LONG, single_device=False) == settings.Settings(1, 0, True)
    assert decide(tmp_path / "here", 1, jobs=0) == settings.Settings(0, 0)
    with pytest.raises(ActlabError, match="--jobs -1: give a whole number from 1, or 0"):
        settings.check_jobs(-1)


@pytest.mark.parametrize(
    "content", [[], {"jobs": "two"}, {"compiled": 1}], ids=["a list", "a word", "a number"]
)
def test_what_is_no_record_of_settings_is_named(tmp_path, compiled, content):
    write_json(tmp_path / settings.FILE, content)
    with pytest.raises(DamagedError, match=r"engine\.json is damaged .*: delete it"):
        decide(tmp_path, 1)


@pytest.mark.parametrize(
    ("error", "seconds", "route"),
    [(2e-7, 0.5, "onednn"), (1e-3, 0.5, "default"), (2e-7, 0.95, "default")],
)
def test_products_take_the_faster_route_that_is_as_exact(monkeypatch, error, seconds, route):
    monkeypatch.setattr(matmul, "measured", lambda: {"default": (1e-7, 1.0), "onednn": (error, seconds)})
    assert matmul.choose() == route


def test_routes_are_measured_and_float32_stays_float32():
    found = matmul.measured()
    assert all(seconds > 0 for _, seconds in found.values())
    assert found["default"][0] < 1e-5
    mkldnn: Any = torch.backends.mkldnn
    before, on_gpus = mkldnn.matmul.fp32_precision, torch.backends.cuda.matmul.fp32_precision
    try:
        matmul.use(matmul.choose())
        left, right = torch.randn(64, 300), torch.randn(300, 64)
        exact = left.double() @ right.double()
        assert (left @ right - exact).abs().max() / exact.abs().max() < 1e-5
        assert torch.backends.cuda.matmul.fp32_precision == on_gpus
    finally:
        mkldnn.matmul.fp32_precision = before
    with pytest.raises(ActlabError, match="unknown matmul backend 'mkl'"):
        matmul.use("mkl")


def test_with_a_gpu_the_backend_of_the_cpu_stays(monkeypatch):
    """Lightning asks torch for one precision of all backends, which torch rejects where the CPU's is onednn."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    mkldnn: Any = torch.backends.mkldnn
    before = mkldnn.matmul.fp32_precision
    try:
        assert matmul.use("onednn") == "default"
        settings.Settings(products="onednn").apply()
        assert torch.get_float32_matmul_precision() == "highest"
        assert matmul.exact() == ["default"]
    finally:
        mkldnn.matmul.fp32_precision = before


def test_graphs_are_decided_once_unless_an_option_changes_them(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "graphs", None)
    assert not settings.decide(tmp_path, 9, 1, None, True).graphs
    assert settings.decide(tmp_path, 9, 1, None, True, graphs=True).graphs
    kept = settings.decide(tmp_path, 9, LONG, None, True)
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
