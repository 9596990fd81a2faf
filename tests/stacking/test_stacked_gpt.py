"""A stack of GPTs trains what its members train alone, plain and gated, with any activation."""

from functools import partial

import pytest
import torch

from actlab.datamodules import TextDataModule
from actlab.networks import GPT
from actlab.stacking import StackedTask
from actlab.stacking.task import reason_against
from actlab.tasks import LanguageTask
from stacking.equality import assert_trains_as_alone

RUNS = 3


def task(seed, activation="gelu", gated=False):
    return LanguageTask(
        256,
        (6,),
        activation=activation,
        network=partial(GPT, width=16, gated=gated),
        optimizer=partial(torch.optim.AdamW, lr=0.01 * (seed + 1)),
        seed=seed,
    ).double()


def batches():
    data = TextDataModule(sample=True, context=6, windows=4, batch_size=4, updates_per_epoch=4)
    data.seed = list(range(RUNS))
    return list(data.train_dataloader())


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("activation", ["gelu", {"name": "prelu", "per_channel": True}, "soi"])
def test_stacked_equals_alone(activation, gated):
    make = partial(task, activation=activation, gated=gated)
    assert reason_against(make(0)) is None
    assert_trains_as_alone(make, batches)


def test_learnt_values_of_an_activation_are_those_of_channels():
    sites = task(0, {"name": "prelu", "per_channel": True}).sites.values()
    assert {unit.weight.shape for unit in sites} == {(64,)}


def test_metrics_of_a_stack_are_those_of_its_members():
    members = [task(seed) for seed in range(RUNS)]
    stack = StackedTask([task(seed) for seed in range(RUNS)]).double().eval()
    data = TextDataModule(sample=True, context=6, windows=4)
    data.setup("fit")
    (batch,) = data.val_dataloader()
    with torch.no_grad():
        found = {
            name: quantity.mean(runs=True)
            for name, quantity in stack.measured(batch, shared=True).items()
        }
        reported = stack.members[0].reported(found)
        for r, one in enumerate(members):
            alone = {n: quantity.mean() for n, quantity in one.eval().measured(batch).items()}
            for name, value in one.reported(alone).items():
                assert float(reported[name][r]) == pytest.approx(float(value)), name
