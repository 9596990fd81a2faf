"""Tasks: a batch becomes a loss, given a network built with an activation factory.

The only place where the name of a unit meets a network.

Shapes: ``B`` batch, ``K`` classes, ``R`` runs (a leading axis when a task serves a stack).
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torchmetrics import MeanMetric

from actlab import activations, streams
from actlab.networks import MLP, ActivationFactory

NetworkFactory = Callable[[ActivationFactory, int, Sequence[int]], nn.Module]
Batch = tuple[Tensor, Tensor]
RANDOM_LAYERS = (streams.Uniform, nn.modules.dropout._DropoutNd, nn.RReLU, nn.modules.batchnorm._NormBase)


class Task(pl.LightningModule):
    """What all tasks share: building the network, steps, metrics, optimiser, random streams.

    Every metric is a mean over samples of a quantity that `quantities` gives. Logged once per epoch:
    ``train/loss`` (training mode, over the epoch), ``train/clean_loss`` (each batch before its update, in
    evaluation mode: what the GELU paper plots), ``val/…`` and ``test/…``.

    Args:
        activation: a registry name, ``package.module:Unit``, ``./file.py:Unit``, or
            ``{name: elu, alpha: 0.5}``.
        network: builds the network from (activation factory, number of outputs, input shape).
        num_outputs: K.
        input_shape: shape of one sample.
        optimizer: builds the optimiser from the parameters.
        scheduler: builds the learning-rate schedule from the optimiser; none keeps the rate constant.
        scheduler_interval: what one step of the schedule is.
        clean_training_loss: compute ``train/clean_loss``; costs a forward pass where training is random.
        seed: initial weights and masks are functions of it.

    Raises:
        ActlabError: for an unknown activation or parameter.
    """

    metric_names: tuple[str, ...] = ("loss",)

    def __init__(
        self,
        activation: str | Mapping[str, Any],
        network: NetworkFactory,
        num_outputs: int,
        input_shape: Sequence[int],
        optimizer: OptimizerCallable,
        scheduler: LRSchedulerCallable | None,
        scheduler_interval: Literal["epoch", "step"],
        clean_training_loss: bool,
        seed: int,
    ) -> None:
        super().__init__()
        self.seed = seed
        self.stream = streams.Stream(seed)
        with torch.random.fork_rng():
            torch.manual_seed(streams.seed_for(seed, "init"))
            self.network = network(self._units(activation), num_outputs, input_shape)
            materialise(self.network, input_shape)
        streams.attach(self.network, self.stream)
        self.random = is_random(self.network)
        self.clean_training_loss = clean_training_loss
        self.optimizer, self.scheduler, self.scheduler_interval = optimizer, scheduler, scheduler_interval
        self._losses: dict[str, list[Tensor]] = {"loss": [], "clean_loss": []}  # of the epoch's batches
        self.metrics = nn.ModuleDict(
            {
                f"{split}_{name}": MeanMetric(nan_strategy="disable")
                for split, names in (
                    ("train", ("loss", "clean_loss")),
                    ("val", self.metric_names),
                    ("test", self.metric_names),
                )
                for name in names
            }
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_current_fx_name":  # Lightning notes each hook here, 48 times a step: 3 % of a small update
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def _units(self, activation: str | Mapping[str, Any]) -> ActivationFactory:
        """The factory given to the network; foreign random units draw from the run's stream too."""
        factory, sites = activations.factory(activation), itertools.count()

        def unit() -> nn.Module:
            module, site = factory(), next(sites)
            if activations.is_stochastic(module) and not has_uniform(module):
                module.register_forward_pre_hook(streams.SeedGlobal(self.stream, site))
            return module

        return unit

    @abstractmethod
    def quantities(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """A value a sample for each of `metric_names`, shape ``(B,)`` or ``(R, B)``; ``loss`` is trained."""

    def metric(self, split: str, name: str) -> MeanMetric:
        """The running mean behind ``{split}/{name}``."""
        return cast(MeanMetric, self.metrics[f"{split}_{name}"])

    def forward(self, x: Tensor) -> Tensor:
        """The network's output."""
        output: Tensor = self.network(x)
        return output

    def _step(self, batch: Batch) -> dict[str, Tensor]:
        return self.quantities(self(batch[0]), batch)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Mean loss of the batch, in training mode."""
        self.stream.move(self.current_epoch, batch_idx, slice_=self.global_rank)
        if self.random:
            self.stream.seed_global()
        if self.clean_training_loss and self.random:
            self._losses["clean_loss"].append(clean_loss(self, batch))
        loss = self._step(batch)["loss"].mean()
        self._losses["loss"].append(loss.detach())
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Accumulate ``val/…``."""
        self._accumulate("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Accumulate ``test/…``."""
        self._accumulate("test", batch)

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The network's output for one batch."""
        return self.forward(batch[0])

    def _accumulate(self, split: str, batch: Batch) -> None:
        for name, values in self._step(batch).items():
            self.metric(split, name).update(values)

    def on_train_epoch_end(self) -> None:
        """Log the epoch's training metrics."""
        for name, losses in self._losses.items():
            if losses:
                self.metric("train", name).update(torch.stack(losses))
                losses.clear()
        collected = self.collect("train", ("loss",))
        if self.clean_training_loss:  # where nothing is random both losses are the same number
            clean = self.collect("train", ("clean_loss",)) if self.random else collected
            collected["train/clean_loss"] = next(iter(clean.values()))
        self.log_dict(collected, prog_bar=True)

    def on_validation_epoch_end(self) -> None:
        """Log ``val/…``."""
        self.log_dict(self.collect("val", self.metric_names), prog_bar=True)

    def on_test_epoch_end(self) -> None:
        """Log ``test/…``."""
        self.log_dict(self.collect("test", self.metric_names))

    def collect(self, split: str, names: Sequence[str]) -> dict[str, Tensor]:
        """Means over all samples (and devices) since the last call, as ``{split}/{name}``; starts anew."""
        collected = {f"{split}/{name}": self.metric(split, name).compute() for name in names}
        for name in names:
            self.metric(split, name).reset()
        return collected

    def configure_optimizers(self) -> Any:
        """The optimiser, with its schedule if there is one."""
        optimizer = self.optimizer(self.parameters())
        if self.scheduler is None:
            return optimizer
        schedule = {"scheduler": self.scheduler(optimizer), "interval": self.scheduler_interval}
        return {"optimizer": optimizer, "lr_scheduler": schedule}


class ClassificationTask(Task):
    """Classification by cross-entropy; ``error`` is a fraction, ``accuracy`` is 1 − error.

    Arguments and errors as in `Task`.

    Batches: inputs ``(B, *input_shape)`` and labels ``(B,)`` in 0 … K−1.
    """

    metric_names = ("loss", "error", "accuracy")

    def __init__(
        self,
        num_classes: int = 10,
        input_shape: Sequence[int] = (1, 28, 28),
        activation: str | dict[str, Any] = "gelu_tanh",
        network: NetworkFactory = MLP,
        optimizer: OptimizerCallable = torch.optim.Adam,
        scheduler: LRSchedulerCallable | None = None,
        scheduler_interval: Literal["epoch", "step"] = "epoch",
        clean_training_loss: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(
            activation,
            network,
            num_classes,
            input_shape,
            optimizer,
            scheduler,
            scheduler_interval,
            clean_training_loss,
            seed,
        )

    def quantities(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy, error and accuracy of each sample.

        Args:
            output: logits ``(…, B, K)``.
            batch: inputs and labels ``(…, B)``.
        """
        labels = batch[1].expand(output.shape[:-1])
        loss = F.cross_entropy(output.flatten(0, -2), labels.flatten(), reduction="none").view_as(labels)
        if self.training:
            return {"loss": loss}
        right = (output.argmax(-1) == labels).float()
        return {"loss": loss, "error": 1 - right, "accuracy": right}

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Class probabilities ``(B, K)``."""
        return self.forward(batch[0]).softmax(-1)


def materialise(network: nn.Module, input_shape: Sequence[int]) -> None:
    """Give lazily shaped parameters their shape by one forward pass of a zero sample, if there are any."""
    if any(isinstance(p, nn.UninitializedParameter) for p in network.parameters()):
        training = network.training
        with torch.no_grad():
            network.eval()(torch.zeros(1, *input_shape))
        network.train(training)


def has_uniform(module: nn.Module) -> bool:
    """Whether random numbers come from a `Uniform` source, as in every unit of the registry."""
    return any(isinstance(m, streams.Uniform) for m in module.modules())


def is_random(network: nn.Module) -> bool:
    """Whether the network may give another output in training than in evaluation."""
    leaves = [m for m in network.modules() if not any(m.children())]
    return any(isinstance(m, RANDOM_LAYERS) for m in leaves) or any(
        activations.is_stochastic(m) for m in leaves if not type(m).__module__.startswith("torch.nn")
    )


@torch.no_grad()
def clean_loss(task: Task, batch: Batch) -> Tensor:
    """The loss of a batch with dropout off and stochastic units in evaluation mode: mean over samples."""
    task.network.eval()
    loss = task._step(batch)["loss"].mean(-1)
    task.network.train()
    return loss
