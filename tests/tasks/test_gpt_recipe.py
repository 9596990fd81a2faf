"""The recipe of a GPT, alone and in a stack, against a loop of plain torch."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from actlab.optim import L2, Cosine, Warmup
from actlab.stacking import StackedTask
from toys import Frames, FrameTask, fitted

RATES, EPOCHS, UPDATES = (0.1, 0.02), 5, 20  # 4 updates an epoch
LIMIT = 0.3  # of gradient norms, which cross it
WARM = 2  # updates: a tenth


class Normed(nn.Sequential):
    """A LayerNorm between linear layers."""

    def __init__(self, act, num_classes, input_shape):
        layers = (
            nn.Linear(input_shape[-1], 8),
            nn.LayerNorm(8),
            act(),
            nn.Linear(8, num_classes, bias=False),
        )
        super().__init__(*layers)


def task(r):
    return FrameTask(
        r,
        partial(torch.optim.AdamW, lr=RATES[r], betas=(0.9, 0.95)),
        "gelu",
        network=Normed,
        l2=L2(0.1),
        schedules={"lr": Warmup(0.1, then=Cosine(final=0.1))},
    )


def by_hand(r):
    """The weights after training without actlab's Trainer, schedules, groups and clipping."""
    network, data = task(r).network.double(), Frames(seed=r, augment=False)
    matrices = [p for p in network.parameters() if p.dim() > 1]
    others = [p for p in network.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATES[r], betas=(0.9, 0.95))
    loader, norms = data.train_dataloader(), []
    for k in range(UPDATES):
        if k % 4 == 0:
            loader.batch_sampler.set_epoch(k // 4)
            batches = iter(loader)
        x, labels, mask = next(batches)
        cosine = 0.1 + 0.45 * (1 + math.cos(math.pi * (k - WARM) / (UPDATES - WARM)))
        for group in optimizer.param_groups:
            group["lr"] = RATES[r] * ((k + 1) / WARM if k < WARM else cosine)
        losses = nn.functional.cross_entropy(
            network(x).flatten(0, 1), labels.flatten(), reduction="none"
        )
        optimizer.zero_grad()
        ((losses * mask.flatten()).sum() / mask.sum()).backward()
        norms.append(float(nn.utils.clip_grad_norm_(network.parameters(), LIMIT)))
        optimizer.step()
    assert min(norms) < LIMIT < max(norms)
    return network.state_dict()


@pytest.mark.parametrize("stacked", [False, True])
def test_the_recipe_is_that_of_a_plain_loop(tmp_path, stacked):
    if stacked:
        data = Frames(augment=False)
        data.seed = [0, 1]
        stack = StackedTask([task(r) for r in range(2)])
        fitted(stack, data, tmp_path, max_epochs=EPOCHS, gradient_clip_val=LIMIT)
        found = [stack.network.member_state(r) for r in range(2)]
    else:
        tasks = [task(r) for r in range(2)]
        for r, one in enumerate(tasks):
            fitted(
                one,
                Frames(seed=r, augment=False),
                tmp_path,
                max_epochs=EPOCHS,
                gradient_clip_val=LIMIT,
            )
        found = [one.network.state_dict() for one in tasks]
    for r, state in enumerate(found):
        for name, value in by_hand(r).items():
            torch.testing.assert_close(state[name], value, rtol=1e-8, atol=1e-10)
