"""Losses that see the network, and metrics of means: alone, in stacks and in evaluations."""

import math

import pytest
import pytorch_lightning as pl
import torch
from torch import nn

from actlab.activations import names
from actlab.checks.activation_trial import fault_of
from actlab.datamodules import SquareDataModule
from actlab.experiments import Experiment
from actlab.networks import CoordinateMLP
from actlab.stacking import StackedTask
from actlab.stacking.task import reason_against
from actlab.tasks import (
    HelmholtzTask,
    HillsTask,
    PixelTask,
    Quantity,
    RegressionTask,
    laplacian,
    takes_run_axis,
)
from actlab.tasks.helmholtz import hills, on_sides, waves
from toys import QUIET, assert_members, fitted


def small(act, num_outputs, input_shape):
    return CoordinateMLP(act, num_outputs, input_shape, hidden=(8, 8))


def equation(seed, lr=1e-2, activation="tanh", kind=HelmholtzTask):
    optimizer = lambda parameters: torch.optim.Adam(parameters, lr)  # noqa: E731
    return kind(activation, small, 1, (2,), optimizer, clean_training_loss=False, seed=seed)


def square(seed):
    return SquareDataModule(
        batch_size=16, updates_per_epoch=3, side=7, eval_batch_size=10, seed=seed
    )


def test_a_laplacian_is_that_of_calculus():
    points = torch.rand(5, 2, dtype=torch.float64).requires_grad_()
    expected = -(1 + 16) * math.pi**2 * waves(points.detach())[0]
    torch.testing.assert_close(laplacian(waves(points)[0], points).detach(), expected)
    quadratic = (points.square() * points.new_tensor([3.0, 5.0])).sum(-1, keepdim=True)
    torch.testing.assert_close(
        laplacian(quadratic, points).detach(), torch.full((5, 1), 16.0).double()
    )
    linear = points.sum(-1, keepdim=True)  # autograd finds no path to its second derivative
    assert not laplacian(linear, points).any()


@pytest.mark.parametrize("known", [waves, hills])
def test_the_right_side_of_an_equation_is_that_of_its_solution(known):
    points = (2 * torch.rand(50, 2, dtype=torch.float64) - 1).requires_grad_()
    u, right = known(points)
    torch.testing.assert_close((laplacian(u, points) + u).detach(), right.detach())
    assert known(on_sides(points.detach()))[0].abs().max() < 1e-12


def test_points_are_moved_to_the_nearest_side_in_turns():
    points = torch.tensor([[0.2, 0.5], [-0.3, -0.4], [-0.1, 0.9]])
    expected = torch.tensor([[1.0, 0.5], [-0.3, -1.0], [-1.0, 0.9]])
    torch.testing.assert_close(on_sides(points), expected)


@pytest.mark.parametrize("kind", [HelmholtzTask, HillsTask])
def test_the_solution_has_no_loss_and_no_error_and_nothing_has_error_1(kind):
    task = equation(0, kind=kind)

    def solution(points):
        return kind.exact_solution(points)[0]

    def nothing(points):
        return 0 * points.sum(-1, keepdim=True)

    inside, sides = (part.double() for part in next(iter(square(0).train_dataloader())))
    assert float(task.measure(solution, (inside, sides))["loss"].mean().detach()) < 1e-20
    means = {name: of.mean() for name, of in task.measure(nothing, (inside,)).items()}
    assert (
        float(
            task.reported({**means, "squared_error": means["squared_solution"]})["relative_error"]
        )
        == 1
    )
    exact = {name: of.mean() for name, of in task.measure(solution, (inside,)).items()}
    assert float(task.reported(exact)["relative_error"]) == 0
    assert float(task.reported(exact)["loss"].detach()) < 1e-20


@pytest.mark.parametrize("activation", ["identity", "relu", "soi", "rrelu", "prelu", "gelu"])
def test_each_activation_can_be_trained_on_an_equation(activation, tmp_path):
    trainer = fitted(equation(0, activation=activation), square(0), tmp_path, max_epochs=1)
    assert all(torch.isfinite(value) for value in trainer.callback_metrics.values())


def test_seeds_in_a_stack_are_trained_as_alone(tmp_path):
    settings = [(0, 1e-2), (1, 1e-2), (1, 3e-3)]
    alone = [fitted(equation(seed, lr), square(seed), tmp_path) for seed, lr in settings]
    stack = StackedTask([equation(seed, lr) for seed, lr in settings])
    data = square(0)
    data.seed = [seed for seed, _ in settings]
    fitted(stack, data, tmp_path)
    for r, trainer in enumerate(alone):
        for name, value in trainer.callback_metrics.items():
            assert float(stack.latest[name][r]) == pytest.approx(float(value), rel=1e-9), name
    assert_members(stack, [trainer.lightning_module for trainer in alone], 1e-7, 1e-7)


class Contrast(HelmholtzTask):
    """Calls the network twice, and differentiates by no input."""

    derivatives = 1

    def measure(self, network, batch):
        return {"loss": Quantity((network(batch[0]) - network(batch[1]) - 1).square())}


@pytest.mark.parametrize("kind", [HelmholtzTask, Contrast])
@pytest.mark.parametrize(
    ("name", "order"), [("KeptSlope", "second"), ("KeptCurvature", "third"), ("Right", None)]
)
def test_an_equation_rejects_a_wrong_derivative_before_training(programs, kind, name, order):
    task = equation(0, activation=f"{programs / 'hand_written_gradients.py'}:{name}", kind=kind)
    fault = fault_of(Experiment(pl.Trainer(**QUIET), task, square(0)), name)
    if order is None or kind is Contrast:
        assert fault is None
    else:
        said = (
            f"activation {name} has a {order} derivative that differs from the "
            "difference quotient at "
        )
        assert fault.startswith(said)


class OwnMish(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mish = torch.nn.Mish()

    def forward(self, x):
        return self.mish(x) / 2


@pytest.mark.parametrize("activation", [*names(), "torch.nn:Mish", f"{__name__}:OwnMish"])
def test_the_loss_of_an_equation_has_a_finite_gradient_where_inputs_of_activations_are_large(
    activation,
):
    """Torch's kernels: nan in Mish's second derivative above 88, in tanh GELU's third beyond 13."""
    task = equation(0, activation=activation)
    batch = next(iter(square(0).train_dataloader()))
    with torch.no_grad():
        task.network.get_parameter("0.weight").mul_(1000)
    task.loss(batch).backward()
    assert all(p.grad.isfinite().all() for p in task.parameters() if p.grad is not None)


class OwnLoss(HelmholtzTask):
    """Differentiates in evaluations too, and calls one run's network."""

    metric_names = ("loss",)
    derived = {}  # noqa: RUF012

    def measure(self, network, batch):
        points = batch[0].detach().requires_grad_()
        return {"loss": Quantity(laplacian(network(points), points).square())}


@pytest.mark.parametrize("evaluate", ["validate", "test"])
def test_an_evaluation_has_gradients_within_inference_mode(evaluate):
    task = equation(0, kind=OwnLoss)
    ((found,),) = [getattr(pl.Trainer(**QUIET), evaluate)(task, square(0), verbose=False)]
    data = square(0)
    data.setup("fit")
    (points,) = (data.val if evaluate == "validate" else data.test).tensors
    expected = task.measure(task.network, (points,))["loss"].mean().detach()
    assert found[f"{evaluate.removesuffix('idate')}/loss"] == pytest.approx(
        float(expected), rel=1e-5
    )


def test_an_own_measure_is_stacked_only_if_it_says_that_it_takes_a_run_axis():
    assert "'measure' of OwnLoss may not accept a run axis" in reason_against(
        equation(0, kind=OwnLoss)
    )
    assert reason_against(equation(0)) is None


def test_a_metric_of_a_mean_is_computed_once_from_the_mean_of_all_batches(tmp_path):
    generator = torch.Generator().manual_seed(0)
    inputs, targets = (
        torch.rand(30, size, generator=generator, dtype=torch.float64) for size in (2, 3)
    )
    task = PixelTask("relu", small, 3, (2,), torch.optim.SGD, seed=0).double()
    loaders = [
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), n)
        for n in (7, 30)
    ]
    for loader in loaders:
        (found,) = pl.Trainer(**QUIET, precision="64-true").test(task, loader, verbose=False)
        error = (task(inputs) - targets).square().mean().item()
        assert found["test/loss"] == pytest.approx(error)
        assert found["test/psnr"] == pytest.approx(-10 * math.log10(error))


def test_a_derived_metric_is_no_training_metric():
    with pytest.raises(Exception, match=r"unknown training metric 'psnr'\. Allowed: loss"):
        PixelTask("relu", small, 3, (2,), torch.optim.SGD, training_metrics=["psnr"])


class Doubled(RegressionTask):
    """Adds to the quantities of its base class."""

    metric_names = ("loss", "twice")

    @takes_run_axis
    def quantities(self, output, batch):
        found = super().quantities(output, batch)
        return {**found, "twice": Quantity(2 * found["loss"].values)}


def test_quantities_of_a_subclass_are_measured():
    task = Doubled("relu", small, 3, (2,), torch.optim.SGD)
    with torch.no_grad():
        found = task.measured((torch.rand(4, 2), torch.rand(4, 3)))
    assert float(found["twice"].mean()) == pytest.approx(2 * float(found["loss"].mean()))


class Holding(nn.Module):
    """Learns a tensor that it holds in a list, which no optimiser sees."""

    def __init__(self, act, num_outputs, input_shape):
        super().__init__()
        self.layers, self.held = (
            small(act, num_outputs, input_shape),
            [torch.ones(1, requires_grad=True)],
        )

    def forward(self, x):
        return self.layers(x) * self.held[0]


def test_a_tensor_that_the_network_holds_is_still_found_beside_differentiated_inputs(tmp_path):
    task = HelmholtzTask("tanh", Holding, 1, (2,), torch.optim.SGD, clean_training_loss=False)
    with pytest.raises(
        Exception, match=r"learns a tensor of shape \(1,\) that is not in the optimiser"
    ):
        fitted(task, square(0), tmp_path, precision="32-true")
