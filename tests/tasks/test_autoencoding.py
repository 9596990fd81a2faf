"""The autoencoder's task: its loss by hand, and stacks that are the runs alone."""

from functools import partial

import numpy as np
import pytest
import torch

from actlab.datamodules.base import TensorDataModule, TensorDataset
from actlab.experiments import build
from actlab.networks import Autoencoder
from actlab.stacking import StackedTask
from actlab.stacking.task import reason_against
from actlab.tasks import AutoencoderTask
from toys import assert_members, fitted

SHAPE = (2, 3, 4)


class Images(TensorDataModule):
    """Random images with labels that no one needs; the last, partial batch is dropped."""

    num_classes, input_shape = 10, SHAPE

    def __init__(self, seed=0):
        super().__init__(8, 16, 0)
        self.seed = seed

    def load(self, device):
        x = torch.rand(30, *SHAPE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        self.train = self.val = self.test = TensorDataset(
            x.to(device), torch.zeros(30, dtype=torch.int64)
        )


def task(r, activation="gelu_tanh"):
    optimizer = partial(torch.optim.Adam, lr=0.01 / (r + 1))
    return AutoencoderTask(
        SHAPE, activation, partial(Autoencoder, encoder=(9, 5, 2)), optimizer, seed=r
    )


def trained(one, data, tmp_path):
    trainer = fitted(one, data, tmp_path, log_every_n_steps=1)
    assert trainer.global_step == 3 * (30 // 8)
    return one


def test_the_loss_is_the_mean_over_batch_and_pixels():
    one = task(0).double()
    x = torch.rand(7, *SHAPE, dtype=torch.float64)
    with torch.no_grad():
        found = one.measured((x, torch.zeros(7)))
    output = one(x).detach().numpy()
    assert output.shape == (7, 24)
    assert found.keys() == {"loss"}
    assert found["loss"].weight() == 7 * 24
    expected = np.mean((output - x.numpy().reshape(7, 24)) ** 2)
    assert found["loss"].mean().item() == pytest.approx(expected)


def test_the_code_has_a_unit_and_the_output_none():
    one = task(0, "relu")
    assert len(one.activations) == 5
    assert isinstance(one.network[-1], torch.nn.Linear)
    code = torch.nn.Sequential(*list(one.network)[:7])(torch.randn(50, *SHAPE))
    assert code.shape == (50, 2)
    assert (code >= 0).all()
    assert (one(torch.randn(50, *SHAPE)) < 0).any()


@pytest.mark.parametrize("activation", ["soi", "prelu"])
def test_a_stack_is_the_runs_alone(tmp_path, activation):
    assert reason_against(task(0, activation)) is None
    singles = [trained(task(r, activation), Images(seed=r), tmp_path) for r in range(2)]
    stack = trained(
        StackedTask([task(r, activation) for r in range(2)]), Images(seed=[0, 1]), tmp_path
    )
    for r, one in enumerate(singles):
        logged = {name: value.item() for name, value in one.trainer.callback_metrics.items()}
        losses = {name for name in logged if not name.startswith("activation/")}
        assert losses == {"train/loss", "train/clean_loss", "val/loss"}
        assert logged == pytest.approx(
            {name: stack.latest[name][r].item() for name in logged}, rel=1e-6
        )
    assert_members(stack, singles)


def test_a_config_links_the_shape_of_the_data(tmp_path):
    config = {
        "model": {"class_path": "actlab.tasks.AutoencoderTask"},
        "data": {
            "class_path": "actlab.datamodules.MNISTDataModule",
            "init_args": {"sample": True, "train_on_all": True},
        },
        "trainer": {"default_root_dir": str(tmp_path)},
    }
    experiment = build(config)
    assert experiment.task.config["model"]["init_args"]["input_shape"] == [1, 28, 28]
