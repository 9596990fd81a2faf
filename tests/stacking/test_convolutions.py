"""Convolutional networks and stacks: rejected as they are, right if layers are called alone."""

from functools import partial

import pytest
import torch
from torch import nn

from actlab import experiments, networks
from actlab.checks import forms
from actlab.errors import ActlabError
from actlab.networks import ConvNet, WideResNet
from actlab.networks.wide_resnet import WideBlock
from actlab.optim import L2, AdamEpsilonInRoot
from actlab.stacking import StackedTask, layers, stacked_form, walked
from actlab.storage.mappings import read_mapping
from actlab.storage.resources import config_file
from actlab.tasks import ClassificationTask
from stacking.equality import assert_trains_as_alone

RUNS, STEPS, SHAPE = 3, 3, (2, 12, 12)
CONVNET = partial(ConvNet, widths=(3, 4))
WIDE = {
    block: partial(WideResNet, depth=10, widen=1, block=block)
    for block in ("paper", "paper_without_norm", "original")
}
NETWORKS = {"convnet": CONVNET, **WIDE}
OPTIMIZERS = {
    "adam": partial(AdamEpsilonInRoot, lr=1e-3),
    "sgd": partial(torch.optim.SGD, lr=0.01, momentum=0.9, nesterov=True),
}


@pytest.fixture
def one_by_one(monkeypatch):
    """Convolutions may be called member by member."""
    monkeypatch.setattr(layers, "_FORMS", dict(layers._FORMS))
    stacked_form(nn.Conv2d)(layers.PerMember)
    stacked_form(WideBlock)(walked)


def task(seed, network=CONVNET, optimizer=OPTIMIZERS["adam"], activation="gelu_tanh"):
    decay = L2(0.01 * seed, half=False, of=["weights", "gains"])
    return ClassificationTask(
        4, SHAPE, activation, network, optimizer, l2=decay, seed=seed
    ).double()


def batches():
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        x = torch.randn(RUNS, 8, *SHAPE, generator=generator, dtype=torch.float64)
        yield x, torch.randint(4, (RUNS, 8), generator=generator)


@pytest.mark.parametrize(
    ("network", "reason"),
    [(CONVNET, "Conv2d"), *((wide, "WideResNet|Conv2d") for wide in WIDE.values())],
)
def test_as_they_are_they_are_trained_one_by_one(network, reason):
    with pytest.raises(ActlabError, match=f"cannot be stacked: ({reason}) has no stacked form"):
        StackedTask([task(seed, network) for seed in range(2)])


def test_the_reason_on_a_cpu_advises_no_stacked_form():
    """It would not help there."""
    config = read_mapping(config_file("cifar10_convnet"))
    config["data"]["init_args"]["sample"] = True
    reason = forms.reason_against(experiments.build(config, accelerator="cpu"))
    assert (
        reason
        == "a CPU computes convolutions of several runs in another way, whatever their stacked form"
    )


def test_only_networks_that_can_be_stacked_declare_what_members_may_differ_in():
    every = [getattr(networks, name) for name in networks.__all__]
    declared = [network for network in every if hasattr(network, "stackable")]
    assert declared
    for network in declared:
        members = [
            ClassificationTask(
                4, SHAPE, "elu", partial(network, **dict.fromkeys(network.stackable, rate))
            )
            for rate in (0.25, 0.5)
        ]
        assert StackedTask(members).network is not None


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize(
    ("network", "optimizer"), [*((network, "adam") for network in NETWORKS), ("convnet", "sgd")]
)
def test_called_one_by_one_they_are_the_runs_alone(network, optimizer):
    """Weights, gains, running means and counts of batch norm, in training and in evaluation."""
    stack = assert_trains_as_alone(
        partial(task, network=NETWORKS[network], optimizer=OPTIMIZERS[optimizer]), batches
    )
    assert any(name.endswith("running_var") for name in stack.network.member_state(0))
