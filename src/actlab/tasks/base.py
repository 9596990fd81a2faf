"""What all tasks share: a network built with an activation factory, steps, metrics, optimiser, random streams.

The only place where the name of a unit meets a network. Shapes: ``B`` batch, ``R`` runs (a leading axis when a
task serves a stack).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, Literal, Self, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn

from actlab import activations, hashing, optim, streams, thirdparty
from actlab.checkpoints import check_whole_epochs
from actlab.errors import unknown
from actlab.modes import Lending, evaluating
from actlab.networks import ActivationFactory, Dropout
from actlab.networks.init import weights_of_run
from actlab.optim import L2, Schedule
from actlab.seeding import SeedGlobal, own_generators
from actlab.tasks import building
from actlab.tasks.quantities import LEAST, Quantity, Seen, WeightedMean, takes_run_axis
from actlab.tasks.randomness import drawing, is_random
from actlab.tasks.restoring import as_precise_as, restored

NetworkFactory = Callable[[ActivationFactory, int, Sequence[int]], nn.Module]
Batch = tuple[Tensor, ...]


class Task(pl.LightningModule, ABC):
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
        with torch.random.fork_rng(), init, weights_of_run(seed, self.units), thirdparty.Calling():
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
        self.moving: optim.Scheduler | None = None
        self._states: dict[str, list[float]] = {}
        self.trained = tuple(dict.fromkeys(("loss", *training_metrics)))  # what is logged of training batches
        self._seen = Seen()
        train = [*self.trained, *["clean_loss"] * clean_training_loss, *["penalised_loss"] * (l2 is not None)]
        names = {"train": train, "val": self.metric_names, "test": self.metric_names}
        self.metrics = nn.ModuleDict(
            {f"{split}_{name}": WeightedMean() for split, of_split in names.items() for name in of_split}
        )
        building.check_schedules(self.schedules, [name.replace("_", "/", 1) for name in self.metrics])
        self._checked, self._lend = False, Lending()

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

    def metric(self, split: str, name: str) -> WeightedMean:
        """The running mean behind ``{split}/{name}``."""
        return cast(WeightedMean, self.metrics[f"{split}_{name}"])

    def forward(self, *inputs: Tensor) -> Tensor:
        """The network's output."""
        output: Tensor = self.network(*inputs)
        return output

    def loss(self, batch: Batch) -> Tensor:
        """The loss of a batch in the present mode: the weighted mean of its quantity."""
        return self._step(batch)["loss"].mean()

    @thirdparty.calling
    def _step(self, batch: Batch) -> dict[str, Quantity]:
        return self.quantities(self(*self.inputs(batch)), batch)

    def setup(self, stage: str) -> None:
        """Check that the network can be trained as the Trainer is told to."""
        building.check_devices(self.trainer, self.network)
        building.check_accumulation(self.trainer, self)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Mean loss of the batch, in training mode."""
        self._move(batch_idx)
        if self.moving:
            self.moving.move(self.current_epoch, self.global_step)
        with own_generators(self.stream.unit_seed()) if self.random else nullcontext():
            if self.clean_training_loss and self.differs:
                with evaluating(self):
                    clean = self._lend(self._step, batch)["loss"]
                self._seen.add("clean_loss", clean.mean(), clean.weight())
            found = self._step(batch)
        mean, weight = found["loss"].mean(), found["loss"].weight()
        if not self._checked:
            if type(self).configure_optimizers is Task.configure_optimizers:
                building.check_learning(mean, self)
            self._checked = True
        for name in self.trained:
            self._seen.add(name, mean if name == "loss" else found[name].mean(), found[name].weight())
        if self.l2 is not None:
            self._seen.add("penalised_loss", mean + optim.penalty(self.trainer.optimizers[0]), weight)
        return self._over_devices(mean, weight)

    def _move(self, batch_idx: int) -> None:
        """Go to the place of a batch in the random numbers; each device to its own part of the batch."""
        self.stream.steps = True
        if self.ragged and self.trainer.world_size > 1:  # where its part begins is not known here
            self.stream.move(self.current_epoch, batch_idx, self.global_rank)
        else:
            self.stream.move(self.current_epoch, batch_idx, slice_=self.global_rank)

    def _over_devices(self, mean: Tensor, weight: Tensor | float) -> Tensor:
        """The mean so scaled that the devices' average of gradients is that of the mean over all devices."""
        if self.trainer.world_size == 1 or isinstance(weight, float):
            return mean  # every device has an equal share of the batch
        everywhere: Tensor = self.trainer.strategy.reduce(weight.detach().clone(), reduce_op="sum")
        return mean * (weight * self.trainer.world_size / everywhere.clamp_min(LEAST))

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add up ``val/…``."""
        self._accumulate("val", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        """Accumulate ``test/…``."""
        self._accumulate("test", batch)

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The network's output for one batch."""
        return thirdparty.calling(self.forward)(*self.inputs(batch))

    def _accumulate(self, split: str, batch: Batch) -> None:
        for name, quantity in self._step(batch).items():
            self.metric(split, name).update(quantity.mean(), quantity.weight())

    def on_train_epoch_end(self) -> None:
        """Log the epoch's training metrics."""
        for name, means, weights in self._seen.take():
            self.metric("train", name).update(means, weights)
        penalised = () if self.l2 is None else ("penalised_loss",)
        collected = self.collect("train", (*self.trained, *penalised))
        if self.clean_training_loss:  # where nothing is random both losses are the same number
            same = {"train/clean_loss": collected["train/loss"]}
            collected |= self.collect("train", ("clean_loss",)) if self.differs else self._observed(same)
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
        return self._observed(collected)

    def _observed(self, collected: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.moving and not self.trainer.sanity_checking:
            self.moving.observe(collected)
        return collected

    def configure_optimizers(self) -> Any:
        """The optimiser, with torch's schedule if there is one."""
        named = dict(self.named_parameters())
        parts = optim.groups(optim.kinds(self, self.units), self.l2)
        groups = [{"params": [named[n] for n in names], **own} for names, own in parts]
        optimizer = building.checked_optimizer(self, groups)
        if self.schedules:
            dropouts = [m for m in self.network.modules() if isinstance(m, Dropout)]
            owners = [0] * len(optimizer.param_groups)
            self.moving = optim.Scheduler(optimizer, [self.schedules], owners, dropouts, self._states)
        return building.scheduled(self, optimizer)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what plateau schedules have seen."""
        checkpoint["plateaus"] = self.moving.states if self.moving else {}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take up what `on_save_checkpoint` has kept.

        Raises:
            ActlabError: for a checkpoint from within an epoch, where training would resume from it.
        """
        if self._trainer is not None and self._trainer.state.fn == "fit":
            check_whole_epochs(checkpoint)
        self._states.update(checkpoint.get("plateaus", {}))
        as_precise_as(self, checkpoint)

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
