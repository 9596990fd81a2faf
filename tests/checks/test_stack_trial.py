"""The trial before stacking finds whatever would make a stack's numbers differ from lone runs."""

import contextlib
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.nn.utils import parametrizations

from actlab.checks import stack_trial
from actlab.engines import packing, trials
from actlab.networks import Dropout, initialise
from actlab.storage.json_files import read_json
from actlab.studies import reading
from actlab.tasks import ClassificationTask
from actlab.tasks.quantities import Quantity, takes_run_axis

pytestmark = pytest.mark.tries_stacks

STUDY = """\
base: ./base.yaml
grid:
  model.activation: [relu]
  model.optimizer.lr: [1.0e-2]
seeds: 2
"""
BASE = f"""\
model:
  class_path: actlab.tasks.ClassificationTask
  init_args:
    network: {{class_path: {__name__}.Net}}
    optimizer: {{class_path: torch.optim.Adam, init_args: {{lr: 1.0e-3}}}}
data: {{class_path: actlab.datamodules.MNISTDataModule, init_args: {{sample: true}}}}
trainer: {{max_epochs: 1, accelerator: cpu}}
"""
RATES = "model.optimizer.lr=[1e-2, 1e-3]"
FAULTS: dict[str, Any] = {}


def fault(make):
    """Enter the layers between the first and the last of `Net`, by the function's name."""
    FAULTS[make.__name__] = make
    return make


class Net(nn.Sequential):
    """With a layer of each kind, and maybe a fault in the middle."""

    def __init__(self, act, num_classes, input_shape, middle: str = "sound", dropout: float = 0.3):
        layers = (
            nn.Linear(784, 8),
            act(),
            Dropout(dropout),
            *FAULTS[middle](act),
            nn.Linear(8, num_classes),
        )
        super().__init__(nn.Flatten(), *layers)
        initialise(self, "he")


@fault
def sound(act):
    return [nn.Linear(8, 8), nn.BatchNorm1d(8), act()]


@fault
def sound_twice(act):
    layer, unit = nn.Linear(8, 8), OwnGenerator()
    return [layer, unit, layer, unit]


@fault
def frozen(act):
    return [nn.Linear(8, 8).requires_grad_(False), act()]


@fault
def asleep(act):
    return [nn.Linear(8, 8), Dropout(0.5).eval(), act()]


@fault
def tied(act):
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    second.weight = first.weight
    return [first, act(), second]


@fault
def parametrized(act):
    return [parametrizations.weight_norm(nn.Linear(8, 8)), act()]


@fault
def hooked_gradient(act):
    layer = nn.Linear(8, 8)
    layer.weight.register_hook(lambda gradient: gradient * 0.5)
    return [layer, act()]


@fault
def own_forward(act):
    layer: Any = nn.Linear(8, 8)
    layer.forward = lambda x: 2 * nn.Linear.forward(layer, x)
    return [layer, act()]


@fault
def one_buffer_more(act):
    layer = nn.Linear(8, 8)
    layer.register_buffer("calls", torch.zeros(()))
    return [layer, act()]


@fault
def norm_of_all(act):
    return [MeanOverRuns(), act()]


class MeanOverRuns(nn.Module):
    """Says that it acts elementwise, but looks at the whole tensor: in a stack, at all runs."""

    elementwise = True
    stochastic = False

    def forward(self, x):
        return x - x.mean()


@fault
def remembering(act):
    return [Remembering(), act()]


class Remembering(nn.Module):
    """Keeps a mean of its inputs in a Python attribute; one instance serves all runs of a stack."""

    elementwise = True
    stochastic = False

    def __init__(self):
        super().__init__()
        self.seen = 0.0

    def forward(self, x):
        if self.training:
            self.seen = 0.9 * self.seen + float(x.detach().flatten()[0])
        return x - self.seen


class OwnGenerator(nn.Module):
    """Draws from a generator of its own: each run's has a module of its own then."""

    elementwise = True

    def __init__(self):
        super().__init__()
        self.source = torch.Generator().manual_seed(0)

    def forward(self, x):
        return x * torch.rand(x.shape, generator=self.source) if self.training else x / 2


class Penalised(ClassificationTask):
    """Its loss has the parameters in it, those that it has itself."""

    def quantities(self, output, batch):
        found = super().quantities(output, batch)
        weights = sum(p.square().sum() for p in self.network.parameters())
        return {**found, "loss": Quantity(found["loss"].values + weights)}


class Jittered(ClassificationTask):
    """Draws random numbers for its inputs."""

    def inputs(self, batch):
        return (batch[0] + 0.1 * torch.randn_like(batch[0]),)


class Pooled(ClassificationTask):
    """Says that it takes a run axis, and divides by the mean over all runs."""

    @takes_run_axis
    def quantities(self, output, batch):
        found = super().quantities(output, batch)
        return {
            **found,
            "loss": Quantity(found["loss"].values / found["loss"].values.detach().mean()),
        }


class FifthEpoch(ClassificationTask):
    """Does something in a hook after more epochs than a trial has."""

    def on_train_epoch_start(self):
        super().on_train_epoch_start()
        if self.current_epoch == 4:
            self.network[1].weight.data.mul_(0.5)


class OnlyInTraining(ClassificationTask):
    """Takes another step in training than a stack does."""

    def training_step(self, batch, batch_idx):
        return 2 * super().training_step(batch, batch_idx)


class ClippedSGD(torch.optim.SGD):
    """Divides gradients by the norm of a whole parameter."""

    def step(self, closure=None):
        loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = p.grad / p.grad.norm()
        super().step()
        return loss


@pytest.fixture
def runs(tmp_path):
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "s.yaml").write_text(STUDY)

    def of(*overrides):
        return reading.load(str(tmp_path / "s.yaml"), overrides=list(overrides)).runs()

    return of


def found_in(runs):
    return stack_trial.difference(runs[0]) or stack_trial.dependence(runs, exact=True)


@pytest.fixture(params=[name for name in sorted(FAULTS) if "sound" not in name])
def faulty(request):
    return request.param


@pytest.mark.filterwarnings(
    "ignore:The following modules:UserWarning", "ignore:Found .* module.s. in eval mode"
)
def test_faulty_layers_are_found(runs, faulty):
    with contextlib.suppress(stack_trial.TrialError):
        assert found_in(runs(f"model.network.middle={faulty}"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (f"model.class_path={__name__}.Penalised", "differ"),
        (f"model.class_path={__name__}.Jittered", "differ"),
        (f"model.class_path={__name__}.Pooled", "differ"),
        (f"model.optimizer.class_path={__name__}.ClippedSGD", "differ"),
    ],
)
def test_what_is_found_is_said(runs, change, what):
    assert what in found_in(runs(change))


def test_nothing_else_is_found(runs):
    changes = ["model.optimizer.class_path=torch.optim.NAdam", "model.network.middle=sound_twice"]
    changes += ["model.network.dropout=0.5", "trainer.accumulate_grad_batches=2", RATES]
    callbacks = "trainer.callbacks=[{class_path: actlab.callbacks.UnitStatistics}]"
    assert found_in(runs(*changes, callbacks)) is None
    assert found_in(runs("trainer.precision=bf16-mixed")) is None


@pytest.mark.parametrize(
    ("task", "hook"),
    [
        ("FifthEpoch", "on_train_epoch_start"),
        ("OnlyInTraining", "training_step"),
    ],
)
def test_a_task_with_a_hook_of_its_own_is_trained_alone(runs, tmp_path, task, hook):
    """A stack would not call it, and it may act later than a trial ends."""
    found = packing.pack(runs(f"model.class_path={__name__}.{task}"), tmp_path)
    assert [len(job.runs) for job in found.jobs] == [1] * 2
    assert found.reasons == [f"{task} overrides {hook!r}, which a stack does not call"]


def test_a_trial_that_takes_too_long_ends(runs, monkeypatch):
    monkeypatch.setattr(stack_trial, "PATIENCE", -1.0)
    with pytest.raises(stack_trial.TrialError, match="its updates take more than -1 s"):
        stack_trial.difference(runs()[0])


def test_runs_that_differ_are_trained_one_by_one_and_tried_once(runs, tmp_path, monkeypatch):
    tried = []
    difference = stack_trial.difference
    monkeypatch.setattr(stack_trial, "difference", lambda run: tried.append(run) or difference(run))
    wanted = runs(f"model.class_path={__name__}.Penalised")
    first = packing.pack(wanted, tmp_path)
    assert [len(job.runs) for job in first.jobs] == [1] * 2
    (kept,) = read_json(tmp_path / "trials.json", dict, "").values()
    assert (kept["verdict"], [kept["reason"]]) == ("differ", first.reasons)
    assert packing.pack(wanted, tmp_path) == first
    assert len(tried) == 1
    monkeypatch.setattr(trials, "versions", lambda: {"torch": "another"})
    assert packing.pack(wanted, tmp_path) == first
    assert len(tried) == 2, "a verdict counts under the versions that it was found under"


def test_an_accident_in_a_trial_is_forgotten(runs, tmp_path, monkeypatch):
    """It once unstacked the study for ever."""
    fit, once = pl.Trainer.fit, [OSError(28, "No space left on device")]

    def failing(self, *args, **options):
        if once:
            raise once.pop()
        return fit(self, *args, **options)

    monkeypatch.setattr(pl.Trainer, "fit", failing)
    first = packing.pack(runs(), tmp_path)
    assert [len(job.runs) for job in first.jobs] == [1] * 2
    assert "failed" in first.reasons[0]
    again = packing.pack(runs(), tmp_path)
    assert ([len(job.runs) for job in again.jobs], again.reasons) == ([2], [])


def test_reduced_precision_is_tried_in_that_precision(runs, monkeypatch):
    """A unit that differs only there: in float64 it is what it is alone."""
    monkeypatch.setitem(FAULTS, "rough", lambda act: [Rough()])
    assert found_in(runs("model.network.middle=rough")) is None
    assert "alone" in found_in(runs("model.network.middle=rough", "trainer.precision=bf16-true"))


class Rough(nn.Module):
    elementwise = True
    stochastic = False

    def forward(self, x):
        return x * len(x) if x.dtype is torch.bfloat16 else x
