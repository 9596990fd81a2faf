"""Six runs trained one by one and as one stack: at each step the same batches, losses, errors."""

from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from actlab import experiments
from actlab.activations.stochastic import SOI
from actlab.config.paths import get_dotted
from actlab.stacking import building
from actlab.stacking.task import StackedTask
from actlab.studies import reading

STEPS = 20
STUDY = """\
base: mnist_classifier
set:
  data.sample: true
  trainer.max_steps: 20
  trainer.limit_val_batches: 0
  trainer.precision: 32-true
  model.activation: elu
  model.network.dropout: 0.0
  model.network.hidden: [64, 64, 64]
grid:
  model.optimizer.lr: [1.0e-3, 1.0e-4, 1.0e-5]
seeds: 2
select: {tune: [model.optimizer.lr]}
"""


class Watch(pl.callbacks.Checkpoint):
    """Notes the initial weights, and for each step the batch, the loss and the SOI maps' masks."""

    def __init__(self):
        self.initial: Any = {}  # of a stack: a list of those of members
        self.inputs, self.labels, self.losses, self.masks = [], [], [], []

    def note_masks(self, module, args, output):
        if module.training:
            self.masks.append(output == 0)

    def on_train_start(self, trainer, pl_module):
        network = pl_module.network
        self.initial = {name: value.clone() for name, value in network.state_dict().items()}
        if isinstance(pl_module, StackedTask):
            self.initial = [network.member_state(r) for r in range(network.size)]
        for soi in (m for m in network.modules() if isinstance(m, SOI)):
            soi.register_forward_hook(self.note_masks)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.inputs.append(batch[0].clone())
        self.labels.append(batch[1].clone())
        self.losses.append(outputs["loss"].item())


class SpiedTask(StackedTask):
    """Keeps each step's losses of the members."""

    def __init__(self, members):
        super().__init__(members)
        self.steps = []

    def measured(self, batch, shared, split=None):
        found = super().measured(batch, shared, split)
        if self.training:
            self.steps.append(found["loss"].mean(runs=True).detach())
        return found


def trained(experiment):
    experiment.trainer.fit(experiment.task, datamodule=experiment.data)
    experiment.task.latest = {}
    (results,) = experiment.trainer.test(
        experiment.task, datamodule=experiment.data, verbose=False
    ) or [{}]
    return results.get("test/error")


def both_ways(tmp_path, monkeypatch, overrides):
    """What six runs do alone, and what they do in a stack."""
    path = tmp_path / "six.yaml"
    path.write_text(STUDY)
    runs = reading.load(str(path), overrides=overrides).runs()
    assert (
        len({(r.seed, get_dotted(r.config, "model.optimizer.lr")) for r in runs}) == len(runs) == 6
    )
    alone, errors = [], []
    for run in runs:
        watch = Watch()
        errors.append(
            trained(
                experiments.build(run.config, callbacks=[watch], default_root_dir=str(tmp_path))
            )
        )
        alone.append(watch)
    monkeypatch.setattr(building, "StackedTask", SpiedTask)
    together = Watch()
    experiment: Any = building.assemble([run.config for run in runs], together, tmp_path)
    experiment.trainer.fit(experiment.task, datamodule=experiment.data)
    experiment.task.latest = {}
    experiment.trainer.test(experiment.task, datamodule=experiment.data, verbose=False)
    return alone, torch.tensor(errors), together, experiment.task


@pytest.mark.slow
@pytest.mark.parametrize("override", ["model.network.dropout=0.5", "model.activation=soi"])
def test_six_runs_alone_are_the_members_of_a_stack(tmp_path, monkeypatch, override):
    """In float32; the trial of stacks compares float64 (`test_stack_trial`, `test_engines`)."""
    alone, errors, together, task = both_ways(tmp_path, monkeypatch, [override])
    losses = torch.tensor([watch.losses for watch in alone])
    stack_losses = torch.stack(task.steps, 1).to(losses.dtype)
    assert losses.shape == stack_losses.shape == (6, STEPS)
    for r, watch in enumerate(alone):
        for name, value in watch.initial.items():
            assert torch.equal(together.initial[r][name], value), name
        for step in range(STEPS):
            assert torch.equal(together.inputs[step][r], watch.inputs[step])
            assert torch.equal(together.labels[step][r], watch.labels[step])
    apart = (losses - stack_losses).abs() / losses
    flips = flipped(alone, together)
    if not together.masks:
        assert apart.max() < 1e-4
        assert (
            task.latest["test/error"] - errors
        ).abs().max() <= 0.003  # three images of a thousand
    else:
        # Rounding flips a mask in a hundred thousand, and from there the runs differ.
        together_still = flips.cumsum(1) == 0
        assert apart[together_still].max() < 1e-4
        assert together_still.any(1).all()
        first_flips = flips[(flips > 0) & (flips.cumsum(1) == flips)]
        assert (first_flips <= 3).all()
        noise = (2 * errors * (1 - errors) / 1000).sqrt()
        assert ((task.latest["test/error"] - errors).abs() < 4 * noise).all()


def flipped(alone, together):
    """How many masks differ, of every run at every step."""
    if not together.masks:
        return torch.zeros(len(alone), STEPS, dtype=torch.int64)
    ours = torch.stack([torch.stack(watch.masks) for watch in alone], 1)
    different = (ours != torch.stack(together.masks)).flatten(2).sum(2)  # (steps · sites, runs)
    return different.view(STEPS, -1, len(alone)).sum(1).T
