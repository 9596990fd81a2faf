"""What a user's unit holds outside parameters and buffers goes on with the run, alone and in a stack."""

import pytest
import torch
from tiny_study import KilledError, execute, metrics

from actlab import networks, tasks
from actlab.engines import packing
from actlab.studies import reading
from actlab.tasks import plain_state

UNITS = """\
import random
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field, replace
from enum import Enum
from types import SimpleNamespace

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


@dataclass
class State:
    calls: int = 0
    mean: torch.Tensor = field(default_factory=lambda: torch.zeros(()))
    rng: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(5))
    act: object = torch.relu  # a checkpoint cannot hold it
    above: object = None


@dataclass(slots=True)
class Slotted:
    calls: int = 0


@dataclass(frozen=True)
class Frozen:
    calls: int = 0


class Kind(Enum):
    ONE = 1


BUILT_WITH = Frozen()  # of all units


class Inside(nn.Module):  # what it counts is in objects, and beside what a checkpoint cannot hold
    def __init__(self):
        super().__init__()
        self.state = State()
        self.state.above = self.also = [SimpleNamespace(state=self.state, calls=0)]
        self.same = self.state
        self.slotted, self.frozen = Slotted(), BUILT_WITH
        self.grown = [Slotted()]
        self.space = SimpleNamespace(calls=0, act=torch.tanh)
        self.seen, self.order = Counter(), OrderedDict(first=1, last=2)
        self.nested = defaultdict(lambda: defaultdict(int))
        self.mixed = {"calls": 0, "act": torch.relu, "last": None, Kind.ONE: 1, "gone": 1}

    def forward(self, x):
        if self.training:
            self.state.calls += 1
            self.state.mean = x.detach().mean()
            self.also[0].calls += 3
            self.slotted.calls += 1
            self.frozen = replace(self.frozen, calls=self.frozen.calls + 1)
            self.space.calls += 1
            self.space.new = 2
            self.seen[np.int64(3)] += 1
            self.order.move_to_end("first")
            self.nested["calls"]["deep"] += 1
            self.mixed["calls"] += 1
            self.mixed["last"] = x.detach().clone().requires_grad_()
            self.mixed.pop("gone", None)
            x = x + 0.1 * torch.rand(x.shape, generator=self.state.rng)
        x = x / (1 + self.same.calls + self.slotted.calls + self.frozen.calls + self.space.calls)
        x = x / (1 + self.seen[3] + self.nested["calls"]["deep"] + self.also[0].calls)
        return self.mixed["act"](x - self.state.mean) / (1 + self.mixed["calls"]) + list(self.order.values())[0]
"""
NAMES = ("Holding", "Annealed", "Extra", "Inside")
STUDY = """\
base: mnist_classifier
set:
  data.sample: true
  data.batch_size: 400
  trainer.max_epochs: 3
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
    jobs = packing.pack(runs, tmp_path, stacked=stacked).jobs
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
    if isinstance(one, dict):
        assert list(one) == list(other)
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    else:
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def task_with(unit):
    return tasks.ClassificationTask(
        activation=unit,
        network=lambda act, outputs, shape: networks.MLP(act, outputs, shape, hidden=[4]),
        num_classes=3,
        input_shape=(1, 2, 2),
        optimizer=torch.optim.SGD,
    )


@pytest.fixture
def resumed(units, tmp_path):
    """A unit that was trained for three calls, and one that was loaded from its checkpoint."""
    x = torch.rand(5, 1, 2, 2)
    task, another = task_with(units["Inside"]), task_with(units["Inside"])
    fresh = task.state_dict()
    assert not any("plain" in name for name in fresh)
    for _ in range(3):
        task.train()(x)
    (one,), (other,) = (
        [m for m in t.network.modules() if type(m).__name__ == "Inside"] for t in (task, another)
    )
    one.grown = [type(one.slotted)(4), *one.grown]
    torch.save(task.state_dict(), tmp_path / "w.pt")
    another.load_state_dict(torch.load(tmp_path / "w.pt", weights_only=True))
    assert torch.equal(another.eval()(x), task.eval()(x))
    yield one, other
    another.load_state_dict(fresh)  # back at what it was built with
    assert another.state_dict().keys() == fresh.keys()


def test_objects_are_filled_where_they_are(resumed):
    _, unit = resumed
    assert unit.same is unit.state is unit.also[0].state
    assert unit.also is unit.state.above
    assert (unit.state.calls, unit.also[0].calls) == (3, 9)
    assert type(unit).__init__.__globals__["BUILT_WITH"].calls == 0  # which is every unit's
    assert [part.calls for part in unit.grown] == [0]  # as it was built: nobody knows what to make the new of
    assert unit.frozen.calls == unit.slotted.calls == 3


def test_of_a_mapping_all_is_kept_that_can_be(resumed):
    trained, unit = resumed
    kept = ("calls", "act")
    assert {key: unit.mixed[key] for key in kept} == {key: trained.mixed[key] for key in kept}
    assert len(unit.mixed) == len(trained.mixed) == 4
    assert unit.mixed["last"] is None  # as it was built: a tensor that asks for gradients is not kept
    assert list(unit.order) == list(trained.order) == ["last", "first"]
    assert unit.nested == trained.nested
    assert unit.nested["another"]["deep"] == 0
    assert unit.seen == trained.seen
    assert vars(unit.space) == vars(trained.space)


def test_outputs_that_a_unit_remembers_are_kept_without_their_graph():
    class Remembers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.last = []

        def forward(self, x):
            self.last = [*self.last, x.mean(0)][-2:]
            return x

    one, other = (torch.nn.Sequential(torch.nn.Linear(3, 2), Remembers()) for _ in range(2))
    for network in (one, other):
        plain_state.keep(network)
    one(torch.ones(4, 3))
    other.load_state_dict(one.state_dict())
    assert torch.equal(other[1].last[0], one[1].last[0].detach())


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
