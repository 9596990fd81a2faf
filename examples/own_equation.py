"""An own network and an own loss by derivatives: −u_xx − u_yy = 1 on [−1, 1]², u = 0 on the sides.

The shell requires this folder on ``PYTHONPATH``; for a script it is on the path already::

    PYTHONPATH=examples actlab study run examples/own_equation.yaml --smoke
    python examples/own_equation.py
"""

from torch import nn

from actlab import run_study
from actlab.networks import CoordinateMLP
from actlab.tasks import Quantity, Task, laplacian, takes_run_axis

QUICK = True  # False: the whole study, 2,000 updates with 5 seeds


class Bounded(nn.Module):
    """(1 − x²)(1 − y²) times an MLP: 0 on the sides whatever the weights."""

    stochastic = False  # draws no random numbers of its own

    def __init__(self, act, num_outputs, input_shape, hidden=(32, 32)):
        super().__init__()
        self.inner = CoordinateMLP(act, num_outputs, input_shape, hidden)

    def forward(self, x):  # noqa: D102
        return (1 - x.square()).prod(-1, keepdim=True) * self.inner(x)


class Poisson(Task):
    """The loss, and the only metric, is the mean squared residual of the equation."""

    @takes_run_axis  # nothing in it depends on the number of leading axes
    def measure(self, network, batch):  # noqa: D102
        points = batch[0].detach().requires_grad_()
        return {"loss": Quantity((laplacian(network(points), points) + 1).square())}


if __name__ == "__main__":  # training processes import this file
    print(run_study(__file__.replace(".py", ".yaml"), smoke=QUICK))
