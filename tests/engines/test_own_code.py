"""Activations, tasks, networks, optimisers of users: a stack equals lone runs, or is rejected."""

from typing import Any

import pytest
import torch
from torch import nn

from actlab import experiments
from actlab.checks import activation_trial
from actlab.engines import packing, training
from actlab.errors import ActlabError
from actlab.studies import reading
from actlab.tasks import ClassificationTask
from tiny_study import execute, metrics, result, study_text
from tolerances import ROUNDED

pytestmark = pytest.mark.tries_stacks

STUDY = study_text(
    "model.activation: [relu], model.optimizer.lr: [1.0e-2]",
    "reference: null\ntable: [{metric: val/loss, at: last}]\n",
    data__batch_size=400,
    trainer__val_check_interval=1.0,
    trainer__precision="64-true",
)


@pytest.fixture
def here(program, tmp_path, monkeypatch):
    program("parts_that_draw")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def trained(here, text):
    """Runs that each engine has trained in a folder of its name, and the reasons against stacks."""
    (here / "s.yaml").write_text(text)
    runs = reading.load("s.yaml").runs()
    plan = packing.pack(runs, here / "stacked")
    assert all(training.work(job, here / "stacked") for job in plan.jobs)
    execute(runs, here / "sequential", stacked=False)
    return runs, plan.reasons


def assert_engines_agree(here, text):
    """In float64, where rounding moves no mask and no error; a lone run has means in float32."""
    runs, reasons = trained(here, text)
    assert len(runs) >= 2
    for run in runs:
        one, other = (metrics(here / engine, run) for engine in ("stacked", "sequential"))
        keys = ["epoch", "step", "split", "metric"]
        assert one[keys].equals(other[keys])
        assert other["value"].to_numpy() == pytest.approx(one["value"].to_numpy(), rel=ROUNDED), (
            run.id
        )
    return runs, reasons


def test_units_that_draw_in_ways_of_their_own(here, cli):
    units = ", ".join(f'"parts_that_draw:{name}"' for name in ("BornRandom", "noisy", "Centred"))
    runs, reasons = assert_engines_agree(here, STUDY.replace("[relu]", f"[{units}]"))
    assert not reasons
    assert {result(here / "stacked", run)["engine"] for run in runs} == {"stacked"}
    # What is random in evaluation as well is so in the same way when it is tested once more.
    noisy = next(run for run in runs if run.id.startswith("noisy"))
    rows = metrics(here / "stacked", noisy)
    last = rows[(rows["split"] == "test") & (rows["metric"] == "loss")]["value"].iloc[-1]
    out = cli(
        "test", "--ckpt_path", here / "stacked" / noisy.id / "checkpoints/last.ckpt", "--trust"
    ).out
    assert float(out.split("test/loss")[1].split()[1]) == pytest.approx(last, abs=1e-4)


RATES = "model.optimizer.lr: [1.0e-2]}\nseeds: 2"
ADAGRAD = "set:\n  model.optimizer.class_path: torch.optim.Adagrad\n  model.optimizer.fused: false"


@pytest.mark.parametrize(
    "changes",
    [
        # A task that asks for the epoch
        {"set:": "set:\n  model.class_path: parts_that_draw.Annealed"},
        pytest.param(  # state outside the groups of an optimiser
            {
                RATES: "model.optimizer.initial_accumulator_value: [0.1, 0.5]}\nseeds: 1",
                "set:": ADAGRAD,
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=["epoch", "state outside the groups of an optimiser"],
)
def test_parts_that_a_stack_keeps(here, changes):
    text = STUDY
    for old, new in changes.items():
        text = text.replace(old, new)
    _, reasons = assert_engines_agree(here, text)
    assert not reasons


def test_a_file_that_is_changed_while_the_study_runs_ends_it(here):
    text = STUDY.replace("[relu]", '["./parts_that_draw.py:noisy"]')
    (here / "s.yaml").write_text(text)
    runs = reading.load("s.yaml").runs()
    file = here / "parts_that_draw.py"
    file.write_text(file.read_text().replace("0.5 * torch.randn_like(x)", "torch.randn_like(x)"))
    with pytest.raises(ActlabError, match=r"\.py:noisy has been changed since"):
        execute(runs, here / "runs")
    assert not list(here.glob("runs/*/result.json"))


def test_a_users_data_may_depend_on_the_seed(here):
    text = STUDY.replace("set:", "set:\n  data.class_path: parts_that_draw.Noisy")
    _, (reason,) = assert_engines_agree(here, text)
    assert "a trial of a stack failed" in reason


def config_of(**model):
    arguments = {"activation": "relu", "network": {"class_path": "actlab.networks.MLP"}, **model}
    return {
        "model": {"class_path": "actlab.tasks.ClassificationTask", "init_args": arguments},
        "data": {"class_path": "actlab.datamodules.MNISTDataModule", "init_args": {"sample": True}},
        "trainer": {"max_epochs": 1},
    }


def test_a_class_that_a_config_names_has_its_own_defaults(here):
    network = {"class_path": "parts_that_draw.Net"}
    task = experiments.build(
        config_of(network=network, optimizer={"class_path": "torch.optim.AdamW"})
    ).task
    assert task.network.got == ((8,), 0.5, "glorot")
    assert task.optimizer(task.parameters()).defaults["weight_decay"] == 0.01
    other = experiments.build(config_of(optimizer={"class_path": "torch.optim.Adadelta"})).task
    assert other.optimizer(other.parameters()).defaults["lr"] == 1.0


def test_a_parameter_that_is_created_in_the_first_call_is_rejected(here):
    name = "parts_that_draw:Late"
    fault = activation_trial.fault_of(experiments.build(config_of(activation=name)), name)
    assert "creates a parameter in its first call" in fault
    assert "UninitializedParameter" in fault


def test_an_extra_state_may_be_anything(here, succeed):
    words = ["--data.sample", "true", "--trainer.max_epochs", "1", "--trainer.logger", "false"]
    words += [
        "--trainer.limit_train_batches",
        "2",
        "--model.activation",
        "parts_that_draw:PlainState",
    ]
    succeed("fit", "-c", "mnist_classifier", *words)
    (last,) = here.glob("runs/**/last.ckpt")
    succeed("test", "--ckpt_path", last, "--trust")


class Shared(nn.Module):
    """One dropout at two places."""

    def __init__(self, act, num_classes, input_shape):
        super().__init__()
        self.first, self.last, self.drop, self.act = (
            nn.Linear(784, 8),
            nn.Linear(8, 10),
            nn.Dropout(0.5),
            act(),
        )

    def forward(self, x):
        ones = torch.ones(4, 64)
        self.masks = [self.drop(ones), self.drop(ones)]
        return self.last(self.act(self.first(x.flatten(1))))


def test_a_layer_that_drops_at_two_places_draws_two_masks():
    task: Any = ClassificationTask(network=Shared, activation="relu").train()
    batch = torch.zeros(4, 1, 28, 28), torch.zeros(4, dtype=torch.long)
    drawn = []
    for _ in range(2):
        task.stream.steps = True  # as in training
        task.stream.move(0, 3)
        task.loss(batch)
        drawn.append(task.network.masks)
    assert not torch.equal(*drawn[0])
    assert all(torch.equal(a, b) for a, b in zip(*drawn, strict=True))


def test_epochs_are_whole_where_updates_do_not_divide_them(here):
    text = STUDY.replace("batches: 2", "batches: 5\n  trainer.accumulate_grad_batches: 3")
    runs, _ = trained(here, text)
    for engine in ("stacked", "sequential"):
        rows = metrics(here / engine, runs[0])
        assert set(rows[rows["split"] == "test"]["epoch"]) == {1.0, 2.0}
        assert rows["step"].max() == 4  # two updates an epoch, the second of two batches
