"""The bias shift of trained layers: what a layer sees, the theorems on it, and the probe of a study."""

import math

import pandas as pd
import pytest
import torch
from torch import nn

from actlab import bias_shift, theory
from actlab.activations import factory
from actlab.draws import Position
from actlab.networks import MLP
from actlab.tasks import ClassificationTask

SAMPLES = 600


@pytest.fixture(scope="module", params=["relu", "elu"])
def trained(request):
    """A classifier of three hidden layers after some updates, with a batch of its data."""
    source = torch.Generator().manual_seed(0)
    labels = torch.arange(SAMPLES) % 4
    images = torch.rand(SAMPLES, 1, 6, 6, generator=source) + 0.3 * labels.view(-1, 1, 1, 1)
    images[..., 0, 0] = 0.5  # a pixel that never changes
    task = ClassificationTask(
        activation=request.param,
        network=lambda act, k, shape: MLP(act, k, shape, hidden=[12, 12, 12], init="he"),
        num_classes=4,
        input_shape=(1, 6, 6),
        optimizer=torch.optim.Adam,
    )
    adam = torch.optim.Adam(task.parameters(), lr=0.01)
    for _ in range(60):
        adam.zero_grad()
        nn.functional.cross_entropy(task(images), labels).backward()
        adam.step()
    return task.eval(), (images, labels)


@pytest.fixture(scope="module")
def layers(trained):
    task, batch = trained
    return bias_shift.layers_of(task, batch, Position((0,), 0, torch.arange(SAMPLES)))


def test_a_layer_sees_activations_and_derivatives(trained, layers):
    task, (images, labels) = trained
    assert [tuple(layer.a.shape) for layer in layers] == [(SAMPLES, 36), (SAMPLES, 12), (SAMPLES, 12)]
    assert [tuple(layer.delta.shape) for layer in layers] == [(SAMPLES, 12)] * 3
    # E(δ a) with the data's labels is minus the gradient of the mean log loss.
    task.zero_grad()
    nn.functional.cross_entropy(task(images), labels).backward()
    linear = [m for m in task.network.modules() if isinstance(m, nn.Linear)]
    for layer, module in zip(layers, linear, strict=False):
        gradient = -layer.observed.T @ layer.a / SAMPLES
        torch.testing.assert_close(gradient.float(), module.weight.grad, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(-layer.observed.mean(0).float(), module.bias.grad, rtol=1e-3, atol=1e-5)
    assert all(p.dtype == torch.float32 for p in task.parameters()), "the network is as it was"


def test_labels_are_drawn_from_the_model(trained):
    """The mean of δ over draws is 0, the score's expectation; the data's labels give another."""
    task, batch = trained
    torch.manual_seed(0)
    sums = [
        bias_shift.layers_of(task, batch, Position((seed,), 0, torch.arange(SAMPLES)))[2].delta.mean(0)
        for seed in range(20)
    ]
    drawn = torch.stack(sums)
    assert (drawn.mean(0).abs() < 5 * drawn.std(0) / math.sqrt(20) + 1e-6).all()


def test_the_theorems_hold_on_trained_layers(layers):
    """Within rounding times the condition number; what is constant is left out and counted."""
    checked = 0
    for layer in layers:
        for unit in range(layer.delta.shape[1]):
            if (one := bias_shift.of_unit(layer, unit)) is None:
                continue
            a, of, g, g0, left_out = one
            assert a.shape[1] + left_out == layer.a.shape[1]
            condition = float(torch.linalg.cond(of.fisher[0]))
            if condition > 1e12:
                continue
            tolerance = {"rtol": 1e-13 * condition, "atol": 1e-13 * condition * float(g.norm() / of.c)}
            update, bias = theory.natural_update(of, g, g0)
            direct = torch.linalg.inv(of.fisher) @ torch.cat((g, g0.unsqueeze(-1)), -1).unsqueeze(-1)
            together = torch.cat((update, bias.unsqueeze(-1)), -1)
            torch.testing.assert_close(together, direct.squeeze(-1), **tolerance)
            shift = theory.bias_shift(of.mean, update, bias)
            torch.testing.assert_close(theory.corrected_shift(of, g, g0), shift, **tolerance)
            checked += 1
    assert checked > 20
    assert bias_shift.measure(layers[0])["constant_inputs", ""] >= 1


def test_a_unit_that_nothing_moves_is_left_out(layers):
    layer = layers[1]
    dead = layer._replace(delta=layer.delta.clone())
    dead.delta[:, 3] = 0
    assert bias_shift.of_unit(dead, 3) is None
    before, after = (bias_shift.measure(one)["units_left_out", ""] for one in (layer, dead))
    assert after == pytest.approx(before + 1 / 12)
    nothing = bias_shift.measure(layer._replace(delta=torch.zeros_like(layer.delta)))
    assert nothing["units_left_out", ""] == 1
    assert math.isnan(nothing["k_distance", ",quantile=0.5"])


def test_a_unit_that_too_few_samples_move_counts_with_an_infinite_k(layers):
    """To leave such units out would let a layer look the nearer to k = 1 the more of them it has."""
    layer = layers[1]
    few = layer._replace(delta=layer.delta.clone())
    few.delta[5:, :7] = 0
    few.delta[:5, :7] = 1
    found = bias_shift.measure(few)
    assert found["units_left_out", ""] > 0.58  # seven of twelve
    assert found["k_distance", ",quantile=0.5"] == found["k_distance", ",quantile=0.75"] == math.inf
    assert found["k_distance", ",quantile=0.25"] < math.inf
    assert math.isfinite(found["cosine", ""])


def test_a_unit_whose_incoming_ones_are_linearly_dependent_counts_with_an_infinite_k(layers):
    """What a solver gives there is rounding alone, and another number for every order of the units."""
    layer = layers[1]
    dependent = layer._replace(a=torch.cat([layer.a, layer.a[:, :6] + layer.a[:, 6:12]], 1))
    found, before = bias_shift.measure(dependent), bias_shift.measure(layer)
    assert found["units_left_out", ""] == 1
    assert math.isinf(found["k_distance", ",quantile=0.25"]) or math.isnan(found["cosine", ""])
    assert before["units_left_out", ""] < 1


def test_as_many_samples_as_determine_a_unit_are_enough():
    """One more than it has incoming ones."""
    source = torch.Generator().manual_seed(0)
    a = torch.rand(40, 3, dtype=torch.float64, generator=source)
    delta = torch.zeros(40, 1, dtype=torch.float64)
    delta[:4] = torch.rand(4, 1, dtype=torch.float64, generator=source) + 0.5
    assert bias_shift.of_unit(bias_shift.Layer(a, delta, delta), 0) is not None
    delta[3] = 0
    assert bias_shift.of_unit(bias_shift.Layer(a, delta, delta), 0) is None


STUDY = """\
base: mnist_elu_units
set: {data.sample: true, trainer.max_epochs: 1, trainer.limit_train_batches: 4, model.network.hidden: [8, 8, 8]}
grid: {model.activation: [relu, elu]}
seeds: 2
keep: [0, 1]
probes:
  - {name: shift, class_path: actlab.bias_shift.BiasShift, init_args: {samples: 300}, at: [0, 1]}
table:
  - {metric: shift/k_distance, condition: "layer=2,quantile=0.5", at: last}
"""


@pytest.mark.parametrize("engine", ["auto", "sequential"])
def test_a_study_probes_it(cli, tmp_path, engine):
    (tmp_path / "shift.yaml").write_text(STUDY)
    words = ["study", "run", tmp_path / "shift.yaml", "--runs-dir", tmp_path / "runs", "--engine", engine]
    outcome = cli(*words)
    assert outcome.code == 0, outcome.err
    assert "shift k distance (layer=2,quantile=0.5, last)" in outcome.out
    for path in tmp_path.glob("runs/shift/*/probes/shift.parquet"):
        rows = pd.read_parquet(path)
        assert set(rows["epoch"]) == {0, 1}
        assert set(rows["condition"]) == {
            *(f"layer={n}" for n in (2, 3)),
            *(f"layer={n},quantile={q}" for n in (2, 3) for q in (0.25, 0.5, 0.75)),
        }
        by_quantile = rows[rows["metric"] == "k_distance"].pivot_table(
            index=["epoch"], columns="condition", values="value"
        )
        assert (by_quantile["layer=2,quantile=0.25"] <= by_quantile["layer=2,quantile=0.75"]).all()


def test_where_units_are_centred_and_uncorrelated_both_gradients_point_one_way():
    """A = 1 and b = 0: nothing is to be corrected."""
    source = torch.Generator().manual_seed(3)
    a = torch.randn(500, 4, generator=source, dtype=torch.float64)
    a = torch.linalg.qr(a - a.mean(0)).Q * 500**0.5
    a -= a.mean(0)
    layer = bias_shift.Layer(a, torch.ones(500, 3).double(), torch.randn(500, 3, generator=source).double())
    found = bias_shift.measure(layer)
    assert found["cosine", ""] == pytest.approx(1)
    assert found["correlation", ""] == pytest.approx(0, abs=1e-9)
    assert found["absolute_correlation", ""] == pytest.approx(0, abs=1e-9)
    shifted = bias_shift.measure(layer._replace(a=a + 2))
    assert shifted["cosine", ""] < 0.9
    apart = bias_shift.measure(layer._replace(a=torch.stack([a[:, 0], -a[:, 0] + 0.1 * a[:, 1]], 1)))
    assert apart["correlation", ""] < -0.9 < 0.9 < apart["absolute_correlation", ""]


def test_of_what_it_cannot_be_measured():
    with pytest.raises(Exception, match="samples 1 of bias shift"):
        bias_shift.BiasShift(1)
    task = ClassificationTask(
        activation="relu",
        network=lambda act, k, shape: nn.Sequential(nn.Linear(3, k), factory("relu")(), nn.Linear(k, k)),
        num_classes=2,
        input_shape=(5, 3),
        optimizer=torch.optim.SGD,
    )
    batch = torch.zeros(4, 5, 3), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(Exception, match=r"asks for logits \(B, K\)"):
        bias_shift.layers_of(task, batch, Position((0,), 0, torch.arange(4)))
