"""Costs of an update, by a clock of the test: which updates count, and what actlab adds."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor, nn

from actlab import experiments, load_study
from actlab.checks import cost
from actlab.datamodules.base import Batch
from actlab.random.seeding_hooks import seeded
from actlab.studies import reading
from actlab.tasks import ClassificationTask

STUDY = """\
title: Two activations
base: mnist_classifier
set: {data.sample: true, data.batch_size: 8}
grid: {model.activation: [relu, elu]}
reference: relu
seeds: 1
table: [{metric: test/error, at: last, percent: true}]
"""
SECONDS = {nn.ReLU: 1.0, nn.ELU: 1.5}


class Clock:
    """An update takes what its activation takes; other programs hold up some of them."""

    def __init__(self, disturbed: Callable[[int], float]) -> None:
        self.disturbed, self.updates = disturbed, 0
        self.now = self.got = 0.0

    def update(self, activation: type) -> None:
        """Let one pass."""
        self.got += SECONDS[activation]
        self.now += SECONDS[activation] + self.disturbed(self.updates)
        self.updates += 1


@pytest.fixture
def measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[dict[str, Any]]]:
    """The costs of two activations by a clock, in three rounds on two cores with some load."""
    (tmp_path / "two.yaml").write_text(STUDY)
    runs = reading.load(str(tmp_path / "two.yaml")).runs()
    loss = ClassificationTask.loss

    def measure(clock: Clock, load: float, **options: Any) -> list[dict[str, Any]]:
        def timed(task: ClassificationTask, batch: Batch) -> Tensor:
            clock.update(next(type(m) for m in task.modules() if type(m) in SECONDS))
            return loss(task, batch)

        monkeypatch.setattr(ClassificationTask, "loss", timed)
        times = {
            "perf_counter": lambda: clock.now,
            "process_time": lambda: clock.got,
            "monotonic": float,
        }
        monkeypatch.setattr(cost, "time", SimpleNamespace(**times))
        machine = SimpleNamespace(getloadavg=lambda: (load, 0, 0), cpu_count=lambda: 2)
        monkeypatch.setattr(cost, "os", machine, raising=False)
        return cost.measure(runs, "model.activation", rounds=3, **options)

    return measure


def test_costs_are_those_of_undisturbed_updates(measured):
    """Where one of three updates is let alone, so that no four in a row are."""
    relu, elu = measured(Clock(lambda update: 7.0 * (update % 3 > 0)), load=9.5)
    assert (relu["seconds_per_update"], elu["seconds_per_update"]) == (1.0, 1.5)
    assert elu["seconds_in_parts"] == [1.5] * 3
    assert elu["rounds"] == 3
    assert elu["machine"]["load"] == 9.5
    assert elu["machine"]["cpu_per_second"] < 0.5


def test_activations_share_one_build(measured, monkeypatch):
    built, build = [], experiments.build
    monkeypatch.setattr(experiments, "build", lambda config: built.append(config) or build(config))
    assert len(measured(Clock(lambda update: 0.0), 0.0)) == 2
    assert len(built) == 1


def test_in_processor_time_other_programs_add_nothing(measured):
    """Every update is held up, as on a machine with more programs than cores."""
    wall = [entry["seconds_per_update"] for entry in measured(Clock(lambda update: 7.0), load=9.5)]
    assert wall == [8.0, 8.5]
    estimated = measured(Clock(lambda update: 7.0), load=9.5, processor=True)
    assert [entry["seconds_per_update"] for entry in estimated] == [1.0, 1.5]


def test_parts_of_the_rounds_show_how_far_a_timing_moves(measured):
    """Every update of the last round takes 0.1 s longer; 3 + 4 + 4 of each come before."""
    relu, elu = measured(Clock(lambda update: 0.1 * (update >= 22)), load=1.0)
    assert relu["seconds_in_parts"] == pytest.approx([1.0, 1.0, 1.1])
    assert elu["seconds_in_parts"] == pytest.approx([1.5, 1.5, 1.6])
    assert elu["machine"] == {
        "load": 1.0,
        "cores": 2,
        "cpu_per_second": pytest.approx(0.97, abs=0.01),
    }


@pytest.mark.parametrize(
    ("dropout", "passes"), [(0.0, 2), (0.5, 1)], ids=["clean pass", "no other pass"]
)
def test_an_activation_costs_the_same_under_any_declaration(
    program, tmp_path, monkeypatch, dropout, passes
):
    """A forward pass takes 1 s, and 6 s where actlab seeds; the clean loss has its own pass."""
    file, clock = program("declared_gelus"), SimpleNamespace(now=0.0)
    forms = {
        name: f"{file}:{name}" for name in ("undeclared", "Undeclared", "drawing", "deterministic")
    }
    changes = {"model.activation": ["gelu", *forms.values()], "model.network.dropout": dropout}
    (tmp_path / "gelus.yaml").write_text(STUDY)
    runs = load_study(tmp_path / "gelus.yaml", reference="gelu", settings=changes).runs()
    loss = ClassificationTask.loss

    def timed(task: ClassificationTask, batch: Batch) -> Tensor:
        clock.now += 6.0 if seeded(task) else 1.0
        return loss(task, batch)

    monkeypatch.setattr(ClassificationTask, "loss", timed)
    times = {
        "perf_counter": lambda: clock.now,
        "process_time": lambda: clock.now,
        "monotonic": float,
    }
    monkeypatch.setattr(cost, "time", SimpleNamespace(**times))
    found = dict(
        zip(["gelu", *forms], cost.measure(runs, "model.activation", rounds=2), strict=True)
    )
    assert len({entry["seconds_per_update"] for entry in found.values()}) == 1
    added = {name: entry.get("seconds_added_in_parts") for name, entry in found.items()}
    by_seeding = [6.0 * passes - 1.0] * 2
    assert added == dict.fromkeys(found, by_seeding) | {"gelu": None, "deterministic": None}


def test_what_actlab_adds_is_a_note(cli, program, tmp_path, monkeypatch):
    program("declared_gelus")
    monkeypatch.chdir(tmp_path)
    forms = ",".join(
        f"./declared_gelus.py:{name}" for name in ("undeclared", "Undeclared", "deterministic")
    )
    Path("gelus.yaml").write_text(STUDY)
    words = ["--reference", "gelu", "--smoke"]  # one round of timing
    compared = ["--set", f"model.activation=[gelu,{forms}]"]
    cli("study", "run", "gelus.yaml", *words, *compared).succeeded()
    out = cli("study", "show", "gelus.yaml", *words, *compared).succeeded()
    (note,) = [line for line in out.splitlines() if line.startswith("These times leave out")]
    of_each = re.findall(r"(?:[\d.]+ to [\d.]+ ms|nothing measurable) for (\w+)", note)
    assert of_each == ["undeclared", "Undeclared"]
    outcome = cli("study", "show", "gelus.yaml", *words, "--set", "model.activation=[gelu]")
    assert "These times leave out" not in outcome.out
