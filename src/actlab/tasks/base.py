"""What all tasks share: a network built with an activation factory, steps, metrics, optimiser, random streams.

The only place where the name of a unit meets a network. Shapes: ``B`` batch, ``R`` runs (a leading axis when a
task serves a stack).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, Self

import torch
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torch.optim import Optimizer

from actlab import activations, optim
from actlab.errors import unknown
from actlab.networks import ActivationFactory
from actlab.networks.init import weights_of_run
from actlab.optim import L2, Schedule
from actlab.random import hashing, streams
from actlab.random.seeding import SeedGlobal, own_generators
from actlab.runtime import third_party
from actlab.tasks import building
from actlab.tasks.quantities import Quantity, takes_run_axis
from actlab.tasks.randomness import drawing, is_random
from actlab.tasks.restoring import restored
from actlab.tasks.training import Batch, Training

NetworkFactory = Callable[[ActivationFactory, int, Sequence[int]], nn.Module]


class Task(Training, ABC):
    """A LightningModule that says what it measures of a batch; see `quantities`.

    Every metric is a weighted mean. Logged once per epoch: ``train/loss`` (training mode, over the epoch),
    ``train/clean_loss`` (each batch before its update, in evaluation mode: what the GELU paper plots),
    ``train/penalised_loss`` (``train/loss`` and the penalty before each update, where there is an ``l2``),
    ``val/…`` and ``test/…``.

    Args:
        activation: a registry name, ``package.module:Unit``, ``./file.py:Unit``, or
            ``{name: elu, alpha: 0.5}``.
        network: builds the network from (activation factory, number of outputs, input shape).
        num_outputs: K.
        input_shape: shape of one sample.
        optimizer: builds the optimiser from parameters or groups of them.
        scheduler: one of torch's learning-rate schedulers other than ReduceLROnPlateau, see
            `building.check_scheduler`; None leaves the rate to ``schedules``.
        scheduler_interval: what one step of ``scheduler`` is.
        schedules: factors over training for ``lr``, ``beta1``, ``momentum``, ``weight_decay`` or ``dropout``.
        l2: decay of chosen kinds of parameters; None leaves all to the optimiser's own ``weight_decay``.
        clean_training_loss: compute ``train/clean_loss``; costs a forward pass where training is random.
        training_metrics: those of `metric_names` that are logged as ``train/…`` too, in training mode.
        seed: initial weights and masks are functions of it.

    Raises:
        ActlabError: for an unknown activation, parameter or metric.
    """

    metric_names: tuple[str, ...] = ("loss",)
    ragged = False  # devices may hold parts of a batch that differ in size
    config: Mapping[str, Any] | None = None  # that it was built from, as its checkpoints keep it

    def __init__(
        self,
        activation: str | Mapping[str, Any],
        network: NetworkFactory,
        num_outputs: int,
        input_shape: Sequence[int],
        optimizer: OptimizerCallable,
        scheduler: LRSchedulerCallable | None = None,
        scheduler_interval: Literal["epoch", "step"] = "epoch",
        schedules: Mapping[str, Schedule] | None = None,
        l2: L2 | None = None,
        clean_training_loss: bool = True,
        training_metrics: Sequence[str] = (),
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.seed = seed
        if strange := set(training_metrics) - set(self.metric_names):
            raise unknown("training metric", min(strange), self.metric_names)
        self.stream = streams.Stream(seed)
        self.units: list[nn.Module] = []  # the activations that the network asked for
        init = own_generators(hashing.seed_for(seed, "init"))
        with torch.random.fork_rng(), init, weights_of_run(seed, self.units), third_party.Calling():
            act = building.recorded(activations.factory(activation), self.units, seed)
            self.network = network(act, num_outputs, input_shape)
            building.materialise(self.network, input_shape)
        streams.attach(self.network, self.stream)
        for site, module in enumerate(drawing(self.network)):
            SeedGlobal(self.stream, site).attach(module)
        self.random, self.clean_training_loss = is_random(self.network), clean_training_loss
        self.differs = self.random or not getattr(self.quantities, "takes_run_axis", False)
        self.optimizer, self.scheduler, self.scheduler_interval = optimizer, scheduler, scheduler_interval
        self.schedules, self.l2 = dict(schedules or {}), l2
        self.trained = tuple(dict.fromkeys(("loss", *training_metrics)))  # what is logged of training batches
        train = [*self.trained, *["clean_loss"] * clean_training_loss, *["penalised_loss"] * (l2 is not None)]
        names = {"train": train, "val": self.metric_names, "test": self.metric_names}
        logged = [f"{split}/{name}" for split, of_split in names.items() for name in of_split]
        building.check_schedules(self.schedules, logged)
        self._checked = False

    @property
    def members(self) -> Sequence[Task]:
        """Itself: the only one that it trains."""
        return [self]

    @property
    def stackable(self) -> tuple[str, ...]:
        """Keys of the config, below the task's, whose values may differ between the members of a stack.

        A key stands for everything below it, too: ``optimizer`` for all settings of one kind of optimiser.
        A network names its own in an attribute ``stackable``.
        """
        own = ("optimizer", "schedules", "l2.strength")
        return *own, *(f"network.{key}" for key in getattr(self.network, "stackable", ()))

    @classmethod
    def metrics_for(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The `metric_names` of a task with some arguments, known before it is built: a study asks for them."""
        return cls.metric_names

    @property
    def sites(self) -> dict[str, nn.Module]:
        """Where the network has activations, by name within it."""
        made = {id(unit) for unit in self.units}
        return {name: module for name, module in self.network.named_modules() if id(module) in made}

    def observe(self, batch: Batch) -> None:
        """Pass a batch through the network, for those who watch its layers."""
        self(*self.inputs(batch))

    @takes_run_axis
    def inputs(self, batch: Batch) -> tuple[Tensor, ...]:
        """What of a batch the network is given: its first tensor."""
        return batch[:1]

    @abstractmethod
    def quantities(self, output: Tensor, batch: Batch) -> dict[str, Quantity]:
        """The values of each of `metric_names` in a batch; in training those of ``trained`` are enough.

        A class whose method is also right for tensors with a leading run axis marks it with
        `actlab.tasks.takes_run_axis`; then stacks call it once for all runs.
        """

    def forward(self, *inputs: Tensor) -> Tensor:
        """The network's output."""
        output: Tensor = self.network(*inputs)
        return output

    def loss(self, batch: Batch) -> Tensor:
        """The loss of a batch in the present mode: the weighted mean of its quantity."""
        return self.measured(batch)["loss"].mean()

    @third_party.calling
    def measured(self, batch: Batch, shared: bool = True) -> dict[str, Quantity]:
        """What a batch says in the present mode."""
        return self.quantities(self(*self.inputs(batch)), batch)

    def setup(self, stage: str) -> None:
        """Check that the network can be trained as the Trainer is told to."""
        building.check_devices(self.trainer, self.network)
        super().setup(stage)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Mean loss of the batch, in training mode."""
        loss = super().training_step(batch, batch_idx)
        if not self._checked and type(self).configure_optimizers is Training.configure_optimizers:
            building.check_learning(loss, self)
        self._checked = True
        return loss

    def penalty(self) -> Tensor | float:
        """Half the squared weights that ``l2`` decays, times its strength."""
        return optim.penalty(self.trainer.optimizers[0])

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The network's output for one batch."""
        return third_party.calling(self.forward)(*self.inputs(batch))

    def optimizer_of_all(self) -> tuple[Optimizer, list[int]]:
        """The optimiser, and the number 0 for each of its groups."""
        named = dict(self.named_parameters())
        parts = optim.groups(optim.kinds(self, self.units), self.l2)
        groups = [{"params": [named[n] for n in names], **own} for names, own in parts]
        optimizer = building.checked_optimizer(self, groups)
        return optimizer, [0] * len(optimizer.param_groups)

    @classmethod
    def load_from_checkpoint(cls, checkpoint_path: str | Path | IO[Any], *args: Any, **kwargs: Any) -> Self:
        """The task that was trained, on the CPU, built from the config in its checkpoint.

        With any further argument it is Lightning's own method, to which all of the task's arguments are given.

        Raises:
            ActlabError: for a checkpoint without a config when no arguments are given, or of another class.
        """
        if args or kwargs:
            return super().load_from_checkpoint(checkpoint_path, *args, **{"weights_only": True, **kwargs})
        return restored(cls, checkpoint_path)  # type: ignore[no-any-return]
