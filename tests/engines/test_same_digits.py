"""A run's digits depend on its config, its code and the kind of processor, not on packing."""

import contextlib

import pandas as pd
import pytest
import torch
from torch import nn

from actlab.checks import stack_trial
from actlab.engines import packing
from actlab.networks import initialise
from actlab.runtime import matmul
from actlab.stacking import building
from actlab.stacking.layers import product
from actlab.studies import reading
from tiny_study import KilledError, execute, kill_after, study_text

pytestmark = pytest.mark.tries_stacks

DEMO = {"model__network__hidden": [128] * 8, "data__batch_size": 128, "epochs": 2, "batches": 3}
ODD = {
    "epochs": 1,
    "model__network__hidden": [50, 63],
    "data__batch_size": 63,
    "trainer__gradient_clip_val": 0.1,
}


class Tied(nn.Module):
    """A network of a third party, without stacked forms."""

    def __init__(self, act, num_classes, input_shape):
        super().__init__()
        self.first, self.middle, self.act = nn.Linear(784, 64), nn.Linear(64, 64), act()
        self.scale, self.last = nn.Parameter(torch.ones(64)), nn.Linear(64, num_classes)
        initialise(self, "he")

    def forward(self, x):
        h = self.act(self.first(x.flatten(1)))
        return self.last(self.scale * self.middle(self.act(self.middle(h))))


def digits(root):
    """All rows and the final weights of each run, by its id."""
    found = {}
    for path in root.glob("*/*/metrics.parquet"):
        weights = torch.load(path.parent / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
        found[path.parent.name] = pd.read_parquet(path), weights
    return found


def assert_equal(here, there):
    assert here.keys() <= there.keys()
    assert here
    for name, (rows, weights) in here.items():
        assert rows.equals(there[name][0]), name
        assert all(torch.equal(value, there[name][1][key]) for key, value in weights.items()), name


def test_a_run_has_the_same_digits_in_every_study_that_has_it(succeed, tmp_path):
    def trained(name, seeds, *words):
        text = study_text("model.activation: [gelu, soi]", seeds=seeds, **DEMO)
        (tmp_path / "demo.yaml").write_text(text)
        succeed("study", "run", tmp_path / "demo.yaml", "--runs-dir", tmp_path / name, *words)
        return digits(tmp_path / name)

    all_three = trained("three", 3)
    assert len(all_three) == 6
    for name, seeds, words in (
        ("alone", 1, ()),
        ("in twos", 3, ("--max-stack", 2)),
        ("one by one", 1, ("--max-stack", 1)),
        ("two processes", 3, ("--jobs", 2)),
    ):
        assert_equal(trained(name, seeds, *words), all_three)


def runs_of(folder, *overrides, grid="model.activation: [elu]", seeds=3, **settings):
    (folder / "tiny.yaml").write_text(study_text(grid, seeds=seeds, **settings))
    return reading.load(str(folder / "tiny.yaml"), overrides=overrides).runs()


RATES = {
    "grid": "model.optimizer.lr: [1.0e-2, 1.0e-3], model.network.dropout: [0.0, 0.3]",
    "seeds": 2,
}


@pytest.mark.parametrize("route", [matmul.DEFAULT, matmul.ONEDNN])
@pytest.mark.parametrize(
    ("overrides", "settings"),
    [
        (["model.activation=elu"], RATES | ODD),
        (
            [
                "model.activation=soi",
                "model.l2={class_path: actlab.optim.L2, init_args: {strength: 0.1}}",
            ],
            ODD,
        ),
        (["model.activation=prelu"], ODD),
        (["model.activation=gelu_tanh", "model.optimizer.class_path=torch.optim.SGD"], ODD),
    ],
    ids=["settings", "penalty", "learnt", "sgd"],
)
def test_odd_shapes_are_equal_in_stacks_of_any_size(
    tmp_path, monkeypatch, route, overrides, settings
):
    monkeypatch.setattr(building, "matmul_of", lambda task: route)
    monkeypatch.setattr(stack_trial, "dependence", lambda *_: None)
    monkeypatch.setattr(stack_trial, "difference", lambda run: None)
    runs = runs_of(tmp_path, *overrides, **settings)
    for most in (1, 2, len(runs)):
        execute(runs, tmp_path / str(most) / "study", most=most)
    reference = digits(tmp_path / "1")
    assert len(reference) == len(runs)
    assert_equal(digits(tmp_path / "2"), reference)
    assert_equal(digits(tmp_path / str(len(runs))), reference)


def test_a_killed_stack_is_resumed_and_the_rest_packed_again(tmp_path):
    runs = runs_of(tmp_path, **DEMO)
    execute(runs, tmp_path / "whole" / "study")
    root = tmp_path / "killed" / "study"
    with contextlib.suppress(KilledError):
        execute(runs[:2], root, progress=kill_after(1))
    jobs = packing.pack(runs, root, max_stack=1).jobs
    assert [job.names for job in jobs] == [[run.id for run in runs[:2]], [runs[2].id]]
    execute(runs, root, most=1)
    assert_equal(digits(tmp_path / "killed"), digits(tmp_path / "whole"))


def test_a_network_without_forms_equals_itself_alone_or_is_trained_alone(tmp_path):
    network = f"{{class_path: {__name__}.Tied}}"
    runs = runs_of(tmp_path, f"model.network={network}", "model.activation=relu", epochs=1)
    execute(runs, tmp_path / "together" / "study")
    execute(runs, tmp_path / "alone" / "study", most=1)
    assert_equal(digits(tmp_path / "together"), digits(tmp_path / "alone"))


@pytest.mark.parametrize("route", [matmul.DEFAULT, matmul.ONEDNN])
def test_no_bit_of_a_product_depends_on_the_number_of_runs(monkeypatch, route):
    before = matmul.backend()
    source = torch.Generator().manual_seed(0)

    def derived(*tensors):
        x, weight, bias, gradient = (tensor.clone().requires_grad_() for tensor in tensors)
        y = product(x, weight, bias)
        return y, *torch.autograd.grad(y, (x, weight, bias), gradient)

    try:
        matmul.use(route)
        for samples, features, width in (
            (63, 10, 10),
            (63, 63, 50),
            (100, 784, 1),
            (1, 2, 64),
            (7, 1, 5),
        ):
            shapes = (samples, features), (features, width), (1, width), (samples, width)
            given = [torch.randn(6, *shape, generator=source) for shape in shapes]
            together = derived(*given)
            for runs in (slice(0, 1), slice(3, 4), slice(1, 3)):
                alone = derived(*(tensor[runs] for tensor in given))
                assert all(torch.equal(a, b[runs]) for a, b in zip(alone, together, strict=True))
    finally:
        matmul.use(before)
