"""The bias shift of trained layers: what a layer sees, and the probe of a study."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from actlab.activations import factory
from actlab.engines.evaluation import UnstackedTasks
from actlab.errors import ActlabError
from actlab.networks import MLP
from actlab.probes import bias_shift
from actlab.tasks import ClassificationTask
from toys import Data

SAMPLES = 600


def task_of(activation, hidden, shape):
    return ClassificationTask(
        activation=activation,
        network=lambda act, k, shape: MLP(act, k, shape, hidden=hidden, init="he"),
        num_classes=4,
        input_shape=shape,
        optimizer=torch.optim.SGD,
    )


@pytest.fixture(scope="module", params=["relu", "elu"])
def trained(request):
    """A classifier of three hidden layers after some updates, with a batch of its data."""
    source = torch.Generator().manual_seed(0)
    labels = torch.arange(SAMPLES) % 4
    images = torch.rand(SAMPLES, 1, 6, 6, generator=source) + 0.3 * labels.view(-1, 1, 1, 1)
    images[..., 0, 0] = 0.5  # a pixel that never changes
    task = task_of(request.param, [12, 12, 12], (1, 6, 6))
    adam = torch.optim.Adam(task.parameters(), lr=0.01)
    for _ in range(60):
        adam.zero_grad()
        nn.functional.cross_entropy(task(images), labels).backward()
        adam.step()
    return task.eval(), (images, labels)


@pytest.fixture(scope="module")
def layers(trained):
    task, batch = trained
    return bias_shift.layers_of(task, batch)


def sums_of(layer, batch=SAMPLES):
    """The sums of a layer, added up in batches."""
    sums = bias_shift.Sums(layer)
    for part in zip(*(x.split(batch) for x in layer), strict=True):
        sums.add(bias_shift.Layer(*part))
    return sums


def measure(layer):
    return bias_shift.measure(sums_of(layer))


def k_distances(weights, biases, act, images, layer):
    """|k − 1| of each moving unit, by numpy: δ by class from differences, direct inverses.

    Args:
        weights: of all linear layers ``(U, I)``, as arrays.
        biases: theirs.
        act: the activation function.
        images: ``(S, D)``.
        layer: number of the hidden layer, from 2.
    """

    def log_p(z):
        for w, b in zip(weights[layer:], biases[layer:], strict=True):
            z = act(z) @ w.T + b
        top = z.max(1, keepdims=True)
        return z - top - np.log(np.exp(z - top).sum(1, keepdims=True))

    a = images
    for w, b in zip(weights[: layer - 1], biases[: layer - 1], strict=True):
        a = act(a @ w.T + b)
    z = a @ weights[layer - 1].T + biases[layer - 1]
    found = []
    for step in 1e-5 * np.eye(z.shape[1]):
        delta = (log_p(z + step) - log_p(z - step)) / 2e-5  # (S, K)
        w = (np.exp(log_p(z)) * delta**2).sum(1)
        if not w.any():
            continue
        x = a[:, np.ptp(a[w > 0], 0) > 0]
        q = w / w.sum()
        mean_q = q @ x
        variance_q = (q[:, None] * x).T @ x - np.outer(mean_q, mean_q)
        found.append(abs((mean_q - x.mean(0)) @ np.linalg.inv(variance_q) @ mean_q))
    return np.array(found)


@pytest.fixture
def untrained():
    """A classifier whose labels are all likely, and data for it."""
    torch.manual_seed(3)
    task = task_of("elu", [7, 6, 5], (1, 3, 3))
    return task.eval(), (torch.rand(SAMPLES, 1, 3, 3), torch.arange(SAMPLES) % 4)


def test_the_probe_gives_what_numpy_gives(untrained):
    task, (images, labels) = untrained
    found = {
        (m.metric, m.condition): m.values.item()
        for m in bias_shift.BiasShift()(UnstackedTasks([task]), Data(images, labels))
    }
    linear = [m for m in task.network.modules() if isinstance(m, nn.Linear)]
    weights, biases = (
        [getattr(m, of).detach().double().numpy() for m in linear] for of in ("weight", "bias")
    )
    elu = lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))  # noqa: E731
    for layer in (2, 3):
        expected = k_distances(weights, biases, elu, images.flatten(1).double().numpy(), layer)
        for q in bias_shift.QUANTILES:
            value = found["k_distance", f"layer={layer},quantile={q}"]
            assert value == pytest.approx(np.quantile(expected, q), rel=1e-4), (layer, q)
    assert {condition for metric, condition in found if metric != "k_distance"} == {
        "layer=2",
        "layer=3",
    }


def test_the_sum_over_classes_is_the_limit_of_drawn_labels(untrained):
    """E(δ²) lies within 5 standard errors of its mean over 4,000 drawn labels an image."""
    task, (images, labels) = untrained
    images, labels = images[:8], labels[:8]
    exact = bias_shift.layers_of(task, (images, labels))[2].weight
    drawn = torch.multinomial(task(images).softmax(-1), 4000, replacement=True)  # (8, 4000)
    of_label = [
        bias_shift.layers_of(task, (images, torch.full_like(labels, c)))[2].observed
        for c in range(4)
    ]
    squares = torch.stack(of_label)[drawn, torch.arange(8).unsqueeze(-1)].square()  # (8, 4000, U)
    error = squares.std(1) / 4000**0.5
    assert exact.min() > 0
    assert ((squares.mean(1) - exact).abs() <= 5 * error).all()


def test_batches_add_up(layers):
    whole, parts = measure(layers[2]), bias_shift.measure(sums_of(layers[2], batch=77))
    # K inverts a matrix, far from well conditioned
    assert parts == pytest.approx(whole, rel=1e-6, nan_ok=True)


def test_a_layer_sees_activations_and_derivatives(trained, layers):
    task, (images, labels) = trained
    assert [tuple(layer.a.shape) for layer in layers.values()] == [(SAMPLES, 12), (SAMPLES, 12)]
    assert [tuple(layer.weight.shape) for layer in layers.values()] == [(SAMPLES, 12)] * 2
    # E(δ a) with the data's labels is minus the gradient of the mean log loss.
    task.zero_grad()
    nn.functional.cross_entropy(task(images), labels).backward()
    linear = [m for m in task.network.modules() if isinstance(m, nn.Linear)]
    for number, layer in layers.items():
        gradient, module = -sums_of(layer).gradient / SAMPLES, linear[number - 1]
        torch.testing.assert_close(
            gradient[:, :-1].float(), module.weight.grad, rtol=1e-3, atol=1e-5
        )
        torch.testing.assert_close(gradient[:, -1].float(), module.bias.grad, rtol=1e-3, atol=1e-5)
    assert all(p.dtype == torch.float32 for p in task.parameters()), "the network is as it was"


def test_constant_incoming_units_are_left_out_and_counted(layers):
    """The others get what they have without them."""
    layer = layers[2]
    still = torch.cat([layer.a[:, :5], torch.full((SAMPLES, 2), 0.3).double(), layer.a[:, 5:]], 1)
    before, found = measure(layer), measure(layer._replace(a=still))
    assert found["constant_inputs", ""] == before["constant_inputs", ""] + 2
    del found["constant_inputs", ""], before["constant_inputs", ""]
    assert found == pytest.approx(before, rel=1e-6, nan_ok=True)


def test_a_unit_that_nothing_moves_has_no_k(layers):
    layer = layers[2]
    dead = layer._replace(weight=layer.weight.clone())
    dead.weight[:, 3] = 0
    before, after = measure(layer), measure(dead)
    assert after["unmoved_units", ""] == pytest.approx(before["unmoved_units", ""] + 1 / 12)
    assert after["singular_units", ""] == before["singular_units", ""]
    nothing = measure(layer._replace(weight=torch.zeros_like(layer.weight)))
    assert nothing["unmoved_units", ""] == 1
    assert nothing["singular_units", ""] == 0
    assert all(
        math.isnan(nothing[key]) for key in nothing if key[0] in ("k_distance", "effective_samples")
    )


def test_units_with_a_singular_covariance_are_counted_beside_k(layers):
    """A unit that five samples move has no k, and the median is that of the others."""
    layer = layers[2]
    few = layer._replace(weight=layer.weight.clone())
    few.weight[5:, :7] = 0
    few.weight[:5, :7] = 1
    others = layer._replace(weight=layer.weight[:, 7:], observed=layer.observed[:, 7:])
    found, of_others = measure(few), measure(others)
    assert found["singular_units", ""] * 12 == pytest.approx(
        7 + 5 * of_others["singular_units", ""]
    )
    for q in bias_shift.QUANTILES:
        key = "k_distance", f",quantile={q}"
        assert found[key] == pytest.approx(of_others[key], rel=1e-9)


def test_linearly_dependent_incoming_units_make_a_unit_singular(layers):
    """What a solver gives there is only rounding, another number for every order of the units."""
    layer = layers[2]
    dependent = layer._replace(a=torch.cat([layer.a, layer.a[:, :6] + layer.a[:, 6:12]], 1))
    found, before = measure(dependent), measure(layer)
    assert found["singular_units", ""] + found["unmoved_units", ""] == 1
    assert math.isnan(found["k_distance", ",quantile=0.25"])
    assert before["singular_units", ""] < 1


def test_as_many_samples_as_determine_a_unit_are_enough():
    """One more than it has incoming ones."""
    source = torch.Generator().manual_seed(0)
    a = torch.rand(40, 3, dtype=torch.float64, generator=source)
    weight = torch.zeros(40, 1, dtype=torch.float64)
    weight[:4] = torch.rand(4, 1, dtype=torch.float64, generator=source) + 0.5
    assert measure(bias_shift.Layer(a, weight, weight))["singular_units", ""] == 0
    weight[3] = 0
    assert measure(bias_shift.Layer(a, weight, weight))["singular_units", ""] == 1


def test_the_effective_sample_is_what_kish_says():
    """Equal weights count in full; of weights 1 and 3, half each, four fifths count."""
    a = torch.rand(40, 2, dtype=torch.float64)
    weight = torch.ones(40, 3, dtype=torch.float64)
    assert measure(bias_shift.Layer(a, weight, weight))["effective_samples", ""] == pytest.approx(
        40
    )
    weight[:20] = 3
    assert measure(bias_shift.Layer(a, weight, weight))["effective_samples", ""] == pytest.approx(
        32
    )


def test_where_units_are_centred_and_uncorrelated_both_gradients_point_one_way():
    """A = 1 and b = 0: nothing is to be corrected."""
    source = torch.Generator().manual_seed(3)
    a = torch.randn(500, 4, generator=source, dtype=torch.float64)
    a = torch.linalg.qr(a - a.mean(0)).Q * 500**0.5
    a -= a.mean(0)
    layer = bias_shift.Layer(
        a, torch.ones(500, 3).double(), torch.randn(500, 3, generator=source).double()
    )
    found = measure(layer)
    assert found["cosine", ""] == pytest.approx(1)
    assert found["correlation", ""] == pytest.approx(0, abs=1e-9)
    assert found["absolute_correlation", ""] == pytest.approx(0, abs=1e-9)
    shifted = measure(layer._replace(a=a + 2))
    assert shifted["cosine", ""] < 0.9
    apart = measure(layer._replace(a=torch.stack([a[:, 0], -a[:, 0] + 0.1 * a[:, 1]], 1)))
    assert apart["correlation", ""] < -0.9 < 0.9 < apart["absolute_correlation", ""]


def test_correlations_are_those_of_numpy(layers):
    a = layers[3].a.numpy()
    expected = np.corrcoef(a[:, np.ptp(a, 0) > 0].T)
    expected = expected[~np.eye(len(expected), dtype=bool)]
    found = measure(layers[3])
    assert found["correlation", ""] == pytest.approx(expected.mean(), rel=1e-9)
    assert found["absolute_correlation", ""] == pytest.approx(abs(expected).mean(), rel=1e-9)


def test_of_what_it_cannot_be_measured():
    with pytest.raises(
        ActlabError, match="samples: expected a number greater than or equal to 2, got 1"
    ):
        bias_shift.BiasShift(1)
    with pytest.raises(ActlabError, match=r"layers of bias shift: .* got \[1, 2\]"):
        bias_shift.BiasShift(layers=[1, 2])


@pytest.mark.parametrize(
    ("last", "asked"), [((), r"logits \(B, K\)"), ((nn.Flatten(),), r"inputs \(B, I\)")]
)
def test_layers_that_act_on_more_than_a_row_a_sample_have_no_k(last, asked):
    """Their units have a δ at each place, and the theorems are about one."""
    unit = factory("relu")
    task = ClassificationTask(
        activation="relu",
        network=lambda act, k, shape: nn.Sequential(
            *(
                nn.Linear(3, 3),
                unit(),
                nn.Linear(3, 3),
                unit(),
                *last,
                nn.Linear(15 if last else 3, 2),
            )
        ),
        num_classes=2,
        input_shape=(5, 3),
        optimizer=torch.optim.SGD,
    )
    batch = torch.zeros(4, 5, 3), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ActlabError, match=f"expected .*{asked}"):
        bias_shift.layers_of(task, batch)


def test_layers_that_a_network_lacks_are_named(trained, layers):
    task, batch = trained
    assert list(bias_shift.layers_of(task, batch, [3])) == [3]
    with pytest.raises(
        ActlabError, match=r"expected numbers up to 3, the last hidden layer, got \[4, 9\]"
    ):
        bias_shift.layers_of(task, batch, [2, 4, 9])
