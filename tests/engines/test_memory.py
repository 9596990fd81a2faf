"""How many members fit, and what is kept between updates."""

import os
import platform
import subprocess
import sys

import pytest
from torch import nn

from actlab.engines import memory, packing
from actlab.networks import MLP
from actlab.studies import reading


def test_the_bound_counts_what_a_member_holds(monkeypatch):
    network = MLP(nn.ReLU, 10, (1, 28, 28))
    monkeypatch.setattr(memory, "free_memory", lambda: 2**30)
    bound = memory.memory_bound(network, 128)
    weights = 4 * sum(p.numel() for p in network.parameters())
    assert 2**29 / (12 * weights) < bound < 2**29 / (4 * weights)  # four times the weights, and activations
    assert memory.memory_bound(network, 12_800) < bound
    monkeypatch.setattr(memory, "free_memory", lambda: 0)
    assert memory.memory_bound(network, 128) == 1


def test_free_memory_is_some_of_the_machines():
    assert 2**20 < memory.free_memory() < 2**50


def test_little_memory_makes_small_stacks(tmp_path, monkeypatch):
    runs = reading.load("gelu_mnist_classifier", overrides=["model.activation=elu", "data.sample=true"]).runs()
    monkeypatch.setattr(packing, "memory_bound", lambda network, batch: 4)
    parts, alone, _ = packing.plan_stacks(runs, tmp_path)
    assert not alone
    assert {len(part.members) for part in parts} == {3, 4}  # 15 runs of each dropout, in as few parts as fit


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
