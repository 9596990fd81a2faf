"""Small tasks and data of a user's own, for tests: sequences with padding, and an augmentation."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn

from actlab.datamodules.base import TensorDataModule, TensorDataset
from actlab.datamodules.samplers import SeededBatches
from actlab.networks import Dropout, initialise
from actlab.random.positions import Position, normal_at, uniform_at
from actlab.stacking import StackedTask
from actlab.tasks import Quantity, Task, takes_run_axis

N, T, D, K = 48, 5, 6, 3
SIZE, BATCH = 50, 8  # of numbered samples
OFF = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "num_sanity_val_steps": 0,
    **dict.fromkeys(OFF, False),
}
SIX = {"Partials": "Halves", "GAN": "Ring", "Segmenter": "Squares", "VAE": "Halves"}
SIX |= {"Forecaster": "Windows", "Tagger": "Corpus"}
ADAM = {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.01}}


def six(name: str, **data: Any) -> tuple[dict[str, Any], str]:
    """Model and data, in a config, of one of ``programs/six_modules.py``; its activation's key."""
    arguments: dict[str, Any] = {"activation": "relu"}
    key = "model.activation"
    if name == "Partials":
        key = "model.net.activation"
        schedule = {"class_path": "torch.optim.lr_scheduler.StepLR", "init_args": {"step_size": 1}}
        net = {"class_path": "six_modules.Perceptron"}
        arguments = {"net": net, "optimizer": ADAM, "scheduler": schedule}
    model = {"class_path": f"six_modules.{name}", "init_args": arguments}
    return {
        "model": model,
        "data": {"class_path": f"six_modules.{SIX[name]}", "init_args": data},
    }, key


def positions_of(seed: Any = 3, epoch: int = 0, **options: Any) -> list[Position]:
    """The positions of an epoch's batches of the numbered samples."""
    sampler = SeededBatches(SIZE, BATCH, seed, **options)
    sampler.set_epoch(epoch)
    return list(sampler)


def batches_of(seed: Any = 3, epoch: int = 0, **options: Any) -> list[torch.Tensor]:
    """Their indices."""
    return [position.index for position in positions_of(seed, epoch, **options)]


def same(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


class Data:
    """Training samples in memory."""

    def __init__(self, *tensors):
        self.tensors, self.train = tensors, self

    def __getitems__(self, position):
        return tuple(x[position.index] for x in self.tensors)

    def __len__(self):
        return len(self.tensors[0])


def fitted(task, data, folder, *callbacks, resumed=None, **options):
    """Return the Trainer of a trained task, by default three epochs in float64, without output."""
    settings = {
        **QUIET,
        "max_epochs": 3,
        "precision": "64-true",
        "default_root_dir": folder,
        **options,
    }
    trainer = pl.Trainer(**settings, callbacks=list(callbacks))
    trainer.fit(task, datamodule=data, ckpt_path=resumed)
    return trainer


def trained_alone(tasks, batches):
    """Train each task alone on its part of batches ``(R, B, *)``; return the losses."""
    batches = list(batches)
    losses = torch.zeros(len(tasks), len(batches), dtype=torch.float64)
    for r, task in enumerate(tasks):
        optimizer = task.train().configure_optimizers()
        for step, (x, y) in enumerate(batches):
            task.stream.move(0, step)
            optimizer.zero_grad()
            loss = task.loss((x[r], y[r]))
            loss.backward()
            optimizer.step()
            losses[r, step] = loss.item()
    return losses


def trained_together(tasks, batches, steps=False):
    """Train tasks as a stack, and return it with the losses ``(R, batches)``."""
    stack = StackedTask(tasks).double().train()
    stack.stream.steps = steps
    optimizer, losses = stack.configure_optimizers(), []
    for step, batch in enumerate(batches):
        stack.stream.move(0, step)
        loss = stack.measured(batch, shared=False)["loss"].mean(runs=True)
        loss.sum().backward()
        stack.on_before_optimizer_step(optimizer)
        optimizer.step()
        stack.optimizer_zero_grad(0, step, optimizer)
        losses.append(loss.tolist())
    return stack, torch.tensor(losses, dtype=torch.float64).T


def assert_members(stack, alone, rtol=1e-8, atol=1e-11):
    """The weights and buffers of a stack's members equal those of tasks trained alone."""
    for r, one in enumerate(alone):
        expected = dict(one.network.state_dict())
        torch.testing.assert_close(stack.network.member_state(r), expected, rtol=rtol, atol=atol)


class FrameNetwork(nn.Sequential):
    """Linear layers on every frame: ``(B, T, D)`` → ``(B, T, K)``."""

    stackable = ("dropout",)

    def __init__(self, act, num_classes, input_shape, width=8, dropout=0.0, init="he"):
        layers = [nn.Linear(input_shape[-1], width), act()]
        if dropout:
            layers.append(Dropout(dropout))
        super().__init__(*layers, nn.Linear(width, num_classes))
        initialise(self, init)


class FrameTask(Task):
    """Classification of frames; padding has weight 0."""

    metric_names = ("loss", "error")

    def __init__(self, seed=0, optimizer=None, activation="elu", network=FrameNetwork, **options):
        optimizer = optimizer or partial(torch.optim.SGD, lr=0.1)
        super().__init__(activation, network, K, (T, D), optimizer, seed=seed, **options)

    @takes_run_axis
    def quantities(self, output, batch):
        _, labels, mask = batch
        labels, mask = (t.expand(output.shape[:-1]) for t in (labels, mask))
        loss = nn.functional.cross_entropy(
            output.flatten(0, -2), labels.flatten(), reduction="none"
        )
        wrong = (output.argmax(-1) != labels).to(output.dtype)
        return {"loss": Quantity(loss.view_as(labels), mask), "error": Quantity(wrong, mask)}


class PlainFrameTask(FrameTask):
    """The same without a word about run axes: stacks call its methods run by run."""

    def inputs(self, batch):
        return (batch[0].flatten(0, 1).view(*batch[0].shape),)  # right for one run only

    def quantities(self, output, batch):
        assert output.dim() == 3
        return super().quantities(output, batch)


def augmented(batch, position):
    """Noise on every feature, and half of the samples with their sign turned."""
    x, *rest = batch
    x = x + 0.1 * normal_at(position, "noise", x.shape[position.index.dim() :]).to(x.dtype)
    turned = uniform_at(position, "sign") < 0.5
    return torch.where(turned[..., None, None], -x, x), *rest


class Frames(TensorDataModule):
    """Random sequences of different lengths, padded with numbers that must not count."""

    num_classes, input_shape = K, (T, D)
    stackable = True

    def __init__(self, batch_size=12, seed=0, dtype=torch.float64, augment=True):
        super().__init__(batch_size, 16, 0)
        self.seed = seed  # of a run, or a list of those of a stack
        self.dtype, self.augment = dtype, augment

    def load(self, device):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(N, T, D, generator=generator, dtype=self.dtype)
        y = torch.randint(K, (N, T), generator=generator)
        lengths = torch.randint(1, T + 1, (N,), generator=generator)
        mask = (torch.arange(T) < lengths[:, None]).to(self.dtype)
        x = torch.where(mask[..., None] > 0, x, 1e3)
        tensors = [t.to(device) for t in (x, y, mask)]
        self.train = TensorDataset(*tensors, transform=augmented if self.augment else None)
        self.val = self.test = TensorDataset(*tensors)
