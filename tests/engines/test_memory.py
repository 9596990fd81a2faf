"""How many members fit, and what is kept between updates."""

import gc
import os
import platform
import subprocess
import sys

import pytest
import torch

from actlab.engines import memory, packing, sizing
from actlab.studies import reading


def test_a_members_memory_is_what_its_tensors_take():
    """Weights, gradients, two moments and what is kept for the backward pass, of 8 × 128 hidden units."""
    runs = reading.load("gelu_mnist_classifier", overrides=["model.activation=elu", "data.sample=true"]).runs()
    numbers, batch = 217_354, 128
    weights = 4 * numbers
    activations = 4 * batch * (784 + 8 * 128 + 10)  # inputs and outputs of the layers, kept once
    measured = sizing.bytes_a_member(runs[:2])
    assert 4 * weights + activations < measured < 5 * weights + 4 * activations
    assert measured < sizing.bytes_a_member(runs[:2], enough=2**30) < 2**25  # two members, and the data
    big = reading.load("gelu_mnist_classifier", overrides=["data.sample=true", "data.batch_size=1024"]).runs()
    assert sizing.bytes_a_member(big[:2]) > measured + 7 * activations


def test_a_members_memory_does_not_depend_on_when_python_collects(monkeypatch):
    """Garbage of the assembly is there in one of the two measurements and not in the other."""
    runs = reading.load("gelu_mnist_classifier", overrides=["model.activation=elu", "data.sample=true"]).runs()[
        :2
    ]
    expected, assemble = sizing.bytes_a_member(runs), sizing.assemble

    def collecting(members, *args):
        parts = assemble(members, *args)
        if len(members) == 1:
            gc.collect()
        return parts

    monkeypatch.setattr(sizing, "assemble", collecting)
    gc.disable()
    try:
        assert sizing.bytes_a_member(runs[:2]) == expected
    finally:
        gc.enable()


def test_peak_memory_counts_what_lives_at_a_time():
    with memory.PeakMemory() as peak:
        one = torch.zeros(1000)
        two = one.view(10, 100)
        del one
        assert peak.now == 4000
        del two
        assert peak.now == 0
        torch.zeros(500)
    assert peak.peak == 4000


def test_free_memory_is_some_of_the_machines():
    assert 2**20 < memory.free_memory() < 2**50


def test_little_memory_makes_small_stacks(tmp_path, monkeypatch):
    runs = reading.load("gelu_mnist_classifier", overrides=["model.activation=elu", "data.sample=true"]).runs()
    each = sizing.bytes_a_member(runs)
    assert 2**20 < each < 2**25
    monkeypatch.setattr(sizing, "bytes_a_member", lambda *_, **__: each)  # measured anew it is another
    monkeypatch.setattr(sizing, "free_memory", lambda: 9.8 * each)
    jobs = packing.pack(runs, tmp_path, sizing.size_of).jobs
    assert {len(job.runs) for job in jobs} == {3, 4}  # 15 runs of each dropout, in as few parts as fit
    monkeypatch.setattr(sizing, "free_memory", lambda: 0)
    assert sizing.size_of(runs) == 1


def test_a_like_network_is_measured_again_where_room_is_scarce(monkeypatch):
    measured = []
    monkeypatch.setattr(sizing, "bytes_a_member", lambda runs, enough: measured.append(runs[0].point) or 2**20)
    words = ["data.sample=true", "model.optimizer.lr=1e-3"]
    runs = reading.load("gelu_mnist_classifier", overrides=words).runs()
    groups = [runs[i : i + 5] for i in range(0, len(runs), 5)]  # a unit, without and with dropout
    for room, expected in ((1000, 1), (100, 6)):
        measured.clear()
        monkeypatch.setattr(sizing, "free_memory", lambda room=room: room * 2**20)
        known = {}
        assert [sizing.size_of(group, known=known) for group in groups] == [5] * 6
        assert len(measured) == expected


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc keeps or trims")
def test_freed_memory_is_kept_for_the_next_update():
    """Faults of pages, counted: the second tensor of a size finds the memory of the first."""
    script = """
import resource, torch
from actlab.engines.memory import keep_freed
kept = keep_freed()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(4_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(kept, [faults() for _ in range(40)][-1])
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}

    def run(**settings):
        words = [sys.executable, "-c", script]
        done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment | settings)
        kept, number = done.stdout.split()
        return kept == "True", int(number)

    kept, few = run()
    trimmed, many = run(MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072")
    assert (kept, trimmed) == (True, False)
    assert few < 100 < many
