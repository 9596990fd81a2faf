"""Gradient clipping in stacks: each member by its own norm, as Lightning clips a lone run."""

import math
from functools import partial

import pytest
import pytorch_lightning as pl
import torch

from actlab.optim import L2
from actlab.stacking import StackedTask
from toys import Frames, FrameTask, assert_members, fitted
from updates_in_blocks import check_equal

LIMIT = 0.3
# Of the initial weights: norms of gradients below the limit and far above
SCALES = (
    1.0,
    30.0,
    0.01,
    30.0,
)
RATES = (0.1, 0.1, 0.1, 0.02)  # in a stack two slices of each parameter


class Norms(pl.Callback):
    """The norm of the gradient of each update, before and after clipping."""

    def __init__(self):
        self.before, self.after = [], []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.before.append(self.norm(pl_module))

    def on_before_zero_grad(self, trainer, pl_module, optimizer):
        if pl_module.network[0].weight.grad is not None:
            self.after.append(self.norm(pl_module))

    def norm(self, task):
        return math.sqrt(sum(float(p.grad.square().sum()) for p in task.parameters()))


def member(r, activation="prelu", optimizer=torch.optim.SGD, **options):
    task = FrameTask(r, partial(optimizer, lr=RATES[r]), activation, l2=L2(0.01), **options)
    with torch.no_grad():
        for parameter in task.network.parameters():
            parameter.mul_(SCALES[r])
    return task


@pytest.mark.parametrize(
    ("activation", "options"),
    [
        ("elu", {}),
        ("prelu", {}),
        ("prelu", {"gradient_clip_algorithm": "norm", "accumulate_grad_batches": 2}),
        ("prelu", {"gradient_clip_algorithm": "value", "accumulate_grad_batches": 2}),
    ],
    ids=lambda given: (
        "-".join(map(str, given.values())) or "default" if isinstance(given, dict) else None
    ),
)
def test_members_are_clipped_as_runs_alone(tmp_path, activation, options):
    """PReLU belongs to one run each, linear layers are slices of one parameter."""
    options = {"gradient_clip_val": LIMIT, "max_epochs": 2, **options}
    stack = StackedTask([member(r, activation) for r in range(4)])
    fitted(stack, Frames(seed=[*range(4)]), tmp_path, **options)
    alone = [member(r, activation) for r in range(4)]
    largest, smallest = 0.0, math.inf
    for r, task in enumerate(alone):
        fitted(task, Frames(seed=r), tmp_path, norms := Norms(), **options)
        largest, smallest = max([largest, *norms.before]), min([smallest, *norms.before])
        if options.get("gradient_clip_algorithm") != "value":
            assert max(norms.after) < LIMIT * (1 + 1e-9)
    assert_members(stack, alone, 1e-9, 1e-12)
    assert smallest < LIMIT < 10 * LIMIT < largest


def test_a_gradient_that_is_not_finite_leaves_the_other_members_unchanged(tmp_path):
    def broken(r):
        task = member(r)
        if r == 1:
            with torch.no_grad():
                task.network[0].weight[0, 0] = math.nan
        return task

    stack = StackedTask([broken(r) for r in range(3)])
    fitted(stack, Frames(seed=[*range(3)]), tmp_path, gradient_clip_val=LIMIT, max_epochs=1)
    for r in (0, 2):
        alone = member(r)
        fitted(alone, Frames(seed=r), tmp_path, gradient_clip_val=LIMIT, max_epochs=1)
        torch.testing.assert_close(
            stack.network.member_state(r), dict(alone.network.state_dict()), rtol=1e-9, atol=1e-12
        )
    assert stack.network.member_state(1)["0.weight"].isnan().all()


def test_without_a_limit_that_counts_nothing_changes(tmp_path):
    stacks = []
    for limit in (None, 0, 1e9):
        stacks.append(StackedTask([member(r) for r in (0, 2)]))
        fitted(stacks[-1], Frames(seed=[0, 2]), tmp_path, gradient_clip_val=limit, max_epochs=1)
    for stack in stacks[1:]:
        check_equal(stack.state_dict(), stacks[0].state_dict())


def test_clipping_in_mixed_precision(tmp_path):
    """Updates of SGD are at most lr · limit long, whatever the precision of the products."""
    tasks = [member(r, optimizer=torch.optim.SGD) for r in range(4)]
    for task in tasks:
        task.l2 = None
    before = [
        torch.cat([p.detach().flatten() for p in task.network.parameters()]) for task in tasks
    ]
    stack = StackedTask(tasks)
    frames = Frames(seed=[*range(4)])
    frames.dtype = torch.float32
    trainer = fitted(
        stack, frames, tmp_path, gradient_clip_val=LIMIT, precision="bf16-mixed", max_epochs=1
    )
    for r, task in enumerate(tasks):
        stack.network.share(r, task.network)
        after = torch.cat([p.detach().flatten() for p in task.network.parameters()])
        length = float((after - before[r]).norm())
        assert 0 < length <= RATES[r] * LIMIT * trainer.global_step * 1.001
