"""Adam with ε under the root, against its formula in numpy."""

import numpy as np
import pytest
import torch
from torch import nn

from actlab.errors import ActlabError
from actlab.optim import AdamEpsilonInRoot, Scheduler, Steps

SHAPES = ((3, 4), (5,), (2, 3, 2, 2))


def gradients(steps):
    """Of all magnitudes: large ones, and such as ε decides about."""
    generator = torch.Generator().manual_seed(0)
    scales = 10.0 ** torch.arange(0, -8, -1, dtype=torch.float64)
    for step in range(steps):
        yield [
            torch.randn(s, generator=generator, dtype=torch.float64) * scales[step % 8]
            for s in SHAPES
        ]


def in_numpy(weights, lr, beta1s, beta2, eps, decay):
    """Kingma & Ba's update with ε under the root, element by element."""
    first, second = ([np.zeros_like(w) for w in weights] for _ in range(2))
    for t, (gradient, beta1) in enumerate(
        zip(gradients(len(beta1s)), beta1s, strict=True), start=1
    ):
        for i, w in enumerate(weights):
            g = gradient[i].numpy() + decay * w
            first[i] = beta1 * first[i] + (1 - beta1) * g
            second[i] = beta2 * second[i] + (1 - beta2) * g**2
            m, v = first[i] / (1 - beta1**t), second[i] / (1 - beta2**t)
            weights[i] = w - lr * m / np.sqrt(v + eps)
    return weights


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_update_is_the_formula(decay, layout):
    start = [torch.randn(s, dtype=torch.float64) for s in SHAPES]
    parameters = [nn.Parameter(w.clone()) for w in start]
    parameters[2].data = parameters[2].data.contiguous(memory_format=layout)
    optimizer = AdamEpsilonInRoot(
        parameters, lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=decay
    )
    scheduler = Scheduler(optimizer, [{"beta1": Steps({10: 5 / 9})}], [0])
    for step, found in enumerate(gradients(20)):
        scheduler.move(step, step)
        for parameter, gradient in zip(parameters, found, strict=True):
            parameter.grad = gradient
        optimizer.step()
    expected = in_numpy(
        [w.numpy() for w in start], 0.01, [0.9] * 10 + [0.5] * 10, 0.99, 1e-8, decay
    )
    for parameter, value in zip(parameters, expected, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), value, rtol=1e-12)
    assert optimizer.state[parameters[2]]["exp_avg"].is_contiguous(memory_format=layout)


def test_parameters_without_a_gradient_stay_and_count_no_update():
    used, unused = (nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = AdamEpsilonInRoot([used, unused], lr=0.1)
    used.grad = torch.ones(2)
    assert optimizer.step(lambda: 3.0) == 3.0
    assert torch.equal(unused.detach(), torch.ones(2))
    assert optimizer.state[used]["step"] == 1
    assert unused not in optimizer.state


def test_it_is_resumed_as_it_was():
    def trained(optimizer, parameters, steps):
        for found in list(gradients(6))[steps]:
            for parameter, gradient in zip(parameters, found, strict=True):
                parameter.grad = gradient
            optimizer.step()
        return [p.detach().clone() for p in parameters]

    make = lambda: [nn.Parameter(torch.ones(s, dtype=torch.float64)) for s in SHAPES]  # noqa: E731
    whole = make()
    straight = trained(AdamEpsilonInRoot(whole, lr=0.1), whole, slice(None))
    first = make()
    before = AdamEpsilonInRoot(first, lr=0.1)
    trained(before, first, slice(3))
    after = AdamEpsilonInRoot(first, lr=0.1)
    after.load_state_dict(before.state_dict())
    assert all(map(torch.equal, trained(after, first, slice(3, None)), straight))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"lr": -1.0}, "lr: expected a number greater than or equal to 0, got -1.0"),
        ({"eps": 0.0}, "eps: expected a number greater than 0, got 0.0"),
        ({"betas": (0.9, 1.0)}, r"\[0, 1\)"),
        ({"weight_decay": -0.1}, "weight_decay"),
    ],
)
def test_a_setting_out_of_range_is_rejected(setting, message):
    with pytest.raises(ActlabError, match=message):
        AdamEpsilonInRoot([nn.Parameter(torch.zeros(1))], **setting)
