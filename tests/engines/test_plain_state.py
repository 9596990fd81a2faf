"""What a user's unit holds outside parameters and buffers goes on with the run, alone and in a stack."""

import pytest
import torch
from tiny_study import KilledError, execute, metrics, packed

from actlab import networks, tasks
from actlab.studies import reading

UNITS = """\
import random
from collections import deque

import numpy as np
import torch
from torch import nn


class Holding(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()), persistent=False)
        self.scale = None
        self.seen = []
        self.torch = torch.Generator().manual_seed(1)
        self.python = random.Random(2)
        self.numpy = np.random.default_rng(3)
        self.older = np.random.RandomState(4)
        self.last, self.sums, self.signs = deque([0.0], maxlen=2), np.zeros(2), set()

    def forward(self, x):
        noise = 0
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
            self.scale = x.detach().std()
            self.seen.append(float(x.detach().mean()))
            self.last.append(self.older.random_sample() + np.float64(x.detach().max()))
            self.sums = self.sums + np.array([float(x.detach().sum()), 1.0])
            self.signs.add(int(x.sum() > 0))
            noise = torch.rand(x.shape, generator=self.torch) + self.python.random() + self.numpy.random()
            noise = noise + self.last[0] + 0.01 * float(np.tanh(self.sums[0])) + len(self.signs)
        return (x - self.mean + 0.1 * sum(self.seen[-3:]) + noise).relu() / (1 + (self.scale or 0))


class Annealed(nn.Module):  # its slope falls with every call in training; it serves all members of a stack
    elementwise = True
    stochastic = False

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        return torch.where(x > 0, x, x / (1 + self.calls))


class Extra(nn.Module):  # as torch's documentation has it
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.count = 0

    def forward(self, x):
        self.count += self.training
        return x.relu() * self.weight / (1 + self.count)

    def get_extra_state(self):
        return {"count": self.count}

    def set_extra_state(self, state):
        self.count = state["count"]
"""
NAMES = ("Holding", "Annealed", "Extra")
STUDY = """\
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 400
  trainer.max_epochs: 2
  trainer.limit_train_batches: 3
  model.network.hidden: [8]
grid:
  model.activation: [{units}]
seeds: 2
reference: null
"""


@pytest.fixture
def units(tmp_path, monkeypatch):
    (tmp_path / "plain.py").write_text(UNITS)
    monkeypatch.chdir(tmp_path)
    return {name: f"./plain.py:{name}" for name in NAMES}


def kill_in_the_second_epoch(run, fraction):
    if fraction > 0.6:
        raise KilledError


@pytest.mark.parametrize("stacked", [True, False])
def test_a_killed_run_goes_on_with_what_its_units_held(units, tmp_path, stacked):
    (tmp_path / "s.yaml").write_text(STUDY.format(units=", ".join(f'"{unit}"' for unit in units.values())))
    runs = [run for run in reading.load("s.yaml").runs() if stacked or run.seed == 0]
    jobs = packed(runs, tmp_path, stacked=stacked).jobs
    assert len(jobs) == (len(units) if stacked else len(runs))
    execute(runs, tmp_path / "straight", stacked)
    for job in jobs:
        with pytest.raises(KilledError):
            execute(job.runs, tmp_path / "killed", stacked, kill_in_the_second_epoch)
        execute(job.runs, tmp_path / "killed", stacked)
    for run in runs:
        one, other = (metrics(tmp_path / name, run) for name in ("straight", "killed"))
        assert one.equals(other), run.id
        weights = [tmp_path / name / run.id / "checkpoints/last.ckpt" for name in ("straight", "killed")]
        assert_same(*(torch.load(path, weights_only=True)["state_dict"] for path in weights))


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, dict):
            assert_same(value, other[name])
        else:
            equal = torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name]
            assert equal, name


def task_with(unit):
    return tasks.ClassificationTask(
        activation=unit,
        network=lambda act, outputs, shape: networks.MLP(act, outputs, shape, hidden=[4]),
        num_classes=3,
        input_shape=(1, 2, 2),
        optimizer=torch.optim.SGD,
    )


def test_a_state_dict_holds_what_has_changed_and_no_more(units):
    task = task_with(units["Holding"])
    fresh = task.state_dict()
    assert not any("plain" in name for name in fresh)  # a unit that holds nothing leaves torch's own keys
    x = torch.rand(5, 1, 2, 2)
    task.train()(x)
    state = task.state_dict()
    (held,) = (value for name, value in state.items() if name.endswith("_plain_state"))
    generators = {"torch", "python", "numpy", "older"}
    assert held.keys() == {"mean", "scale", "seen", "last", "sums", "signs"} | generators
    another = task_with(units["Holding"])
    another.load_state_dict(state)
    assert torch.equal(another.eval()(x), task.eval()(x))
    another.load_state_dict(fresh)  # back at what it was built with
    assert another.state_dict().keys() == fresh.keys()
