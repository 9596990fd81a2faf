"""The ELU paper's networks for CIFAR: layers, parameter counts, dropout that begins late."""

from functools import partial

import pytest
import torch
from torch import nn

from actlab.activations import factory
from actlab.networks import ConvStacks, Dropout
from actlab.optim import Scheduler, Steps
from actlab.tasks import ClassificationTask

STACKS_18 = [
    [[1, 384, 3]],
    [[1, 384, 1], [2, 640, 3]],
    [[1, 640, 3], [3, 768, 3]],
    [[1, 768, 3], [2, 896, 3]],
    [[1, 896, 3], [2, 1024, 3]],
    [[1, 1024, 3], [2, 1152, 3]],
]
LATER_18 = [
    [[1, 384, 3]],
    [[1, 384, 1], [1, 384, 2], [2, 640, 2]],
    [[1, 640, 1], [3, 768, 2]],
    [[1, 768, 1], [2, 896, 2]],
    [[1, 896, 3], [2, 1024, 2]],
    [[1, 1024, 1], [1, 1152, 2]],
    [[1, 1152, 1]],
]
SMALL = [[[1, 4, 5]], [[1, 4, 1], [1, 6, 3]], [[1, 8, 2]], [[1, 8, 1]], [[2, 8, 1]]]
RATES = [0.0, 0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize(
    ("stacks", "layers", "number"),
    [(None, 11, 1_669_028), (STACKS_18, 18, 100_557_028), (LATER_18, 19, 39_330_404)],
    ids=["11 layers", "18 layers", "later text"],
)
def test_parameters_are_those_of_the_paper(stacks, layers, number):
    options = {} if stacks is None else {"stacks": stacks, "dropout": [0.1] * len(stacks)}
    with torch.device("meta"):
        network = ConvStacks(factory("elu"), 100, channels_last=False, **options)
    assert sum(p.numel() for p in network.parameters()) == number
    assert sum(isinstance(layer, nn.Conv2d) for layer in network) == layers


def test_maps_are_those_of_the_paper():
    """Each stack halves the map until it is 1×1; even kernels keep it too."""
    network, seen = ConvStacks(factory("elu"), 100), []
    for layer in network:
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda _, __, out: seen.append(tuple(out.shape[1:])))
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 100)
    assert seen == [
        (192, 32, 32),
        (192, 16, 16),
        (240, 16, 16),
        (240, 8, 8),
        (260, 8, 8),
        (260, 4, 4),
        (280, 4, 4),
        (280, 2, 2),
        (300, 2, 2),
        (300, 1, 1),
        (100, 1, 1),
    ]


def test_batch_norm_stands_before_each_unit_and_not_on_the_logits():
    network = ConvStacks(factory("elu"), 100, stacks=SMALL, dropout=RATES, batch_norm=True)
    kinds = [type(layer).__name__ for layer in network]
    for at, kind in enumerate(kinds):
        if kind == "BatchNorm2d":
            assert (kinds[at - 1], kinds[at + 1]) == ("Conv2d", "ELU")
            assert network[at - 1].bias is None
    assert kinds.count("BatchNorm2d") == kinds.count("ELU") == kinds.count("Conv2d") - 1
    assert kinds[-2:] == ["Conv2d", "Flatten"]
    assert network[-2].bias is not None


def test_dropout_within_the_stacks_begins_late():
    network = ConvStacks(factory("elu"), 10, stacks=SMALL, dropout=RATES, inner_dropout=True)
    dropouts = [layer for layer in network if isinstance(layer, Dropout)]
    assert [(d.setting, d.p) for d in dropouts] == [
        ("inner_dropout", 0.1),
        ("dropout", 0.1),
        ("dropout", 0.2),
        ("dropout", 0.3),
        ("inner_dropout", 0.4),
        ("dropout", 0.4),
    ]
    schedules = {
        "dropout": Steps({7: 1.5}, by="update"),
        "inner_dropout": Steps({0: 0.0, 3: 1.0, 7: 1.5}, by="update"),
    }
    sgd = torch.optim.SGD(network.parameters(), lr=0.1)
    moving = Scheduler(sgd, [schedules], [0], dropouts)
    chances = {}
    for update in (0, 2, 3, 6, 7):
        moving.move(0, update)
        chances[update] = [round(float(d.probability), 3) for d in dropouts]
    assert chances[0] == chances[2] == [0.0, 0.1, 0.2, 0.3, 0.0, 0.4]
    assert chances[3] == chances[6] == [0.1, 0.1, 0.2, 0.3, 0.4, 0.4]
    assert chances[7] == [0.15, 0.15, 0.3, 0.45, 0.6, 0.6]
    moving.move(0, 0)
    x = torch.ones(3, 4)
    assert dropouts[0].train()(x) is x


def test_runs_of_one_number_start_from_the_same_weights():
    """Whatever the activation, without and with batch norm: the paper's pairs."""

    def weights(activation, seed, **options):
        network = partial(ConvStacks, stacks=SMALL, dropout=RATES, **options)
        task = ClassificationTask(10, (3, 32, 32), activation, network, seed=seed)
        return [layer.weight for layer in task.network.modules() if isinstance(layer, nn.Conv2d)]

    first = weights("elu", 3)
    for activation, options in (
        ("relu", {}),
        ("srelu", {"batch_norm": True}),
        ("prelu", {"inner_dropout": True}),
    ):
        assert all(
            torch.equal(a, b) for a, b in zip(first, weights(activation, 3, **options), strict=True)
        )
    assert not torch.equal(first[0], weights("elu", 4)[0])


@pytest.mark.parametrize("epochs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_resumes_in_each_phase(cli, tmp_path, monkeypatch, epochs):
    """Two updates a phase: what is interrupted in the first or second ends as what is not."""
    monkeypatch.chdir(tmp_path)
    words = [
        *("fit", "-c", "cifar10_elu18", "--data.sample", "true", "--trainer.logger", "false"),
        *("--trainer.enable_progress_bar", "false", "--model.network.stacks", str(SMALL)),
        *("--model.network.dropout", str(RATES), "--data.eval_batch_size", "50"),
        *("--data.preprocessing", "[gcn]"),  # whitening takes longer than the six updates
        *("--model.schedules.dropout.init_args.factors", "{4: 1.5}"),
        *("--model.schedules.inner_dropout.init_args.factors", "{0: 0.0, 2: 1.0, 4: 1.5}"),
    ]
    more = ["--trainer.max_epochs", "3", "--trainer.default_root_dir"]
    assert cli(*words, *more, "straight").code == 0
    assert (
        cli(*words, "--trainer.max_epochs", epochs, "--trainer.default_root_dir", "cut").code == 0
    )
    assert cli(*words, *more, "cut", "--ckpt_path", "last").code == 0
    straight, cut = (
        torch.load(next(tmp_path.glob(f"{where}/*/checkpoints/last.ckpt")), weights_only=True)
        for where in ("straight", "cut")
    )
    assert straight["global_step"] == cut["global_step"] == 6
    for name, value in straight["state_dict"].items():
        assert torch.equal(cut["state_dict"][name], value), name
