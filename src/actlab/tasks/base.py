"""The base class of tasks; only here does the name of an activation become modules of a network.

Shapes: ``B`` batch, ``R`` runs (a leading axis when a task computes the quantities of a stack).
"""

from __future__ import annotations

import copy
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, Self

from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torch.optim import Optimizer
from torchmetrics import Metric

from actlab import activations, optim
from actlab.activations.smooth import differentiable
from actlab.config.plain_values import Arguments, of_call, split
from actlab.config.record import of_task
from actlab.errors import ActlabError
from actlab.errors.messages import unknown
from actlab.networks import ActivationFactory
from actlab.networks.init import weights_of_run
from actlab.optim import L2, Plateau, Schedule
from actlab.random import hashing, streams
from actlab.random.defaults import seed_or_default
from actlab.random.seeding import own_generators
from actlab.random.seeding_hooks import SeedGlobal
from actlab.runtime import third_party
from actlab.runtime.modules import unfuse
from actlab.storage import checkpoints
from actlab.tasks import building
from actlab.tasks.batches import as_batch, targets_of
from actlab.tasks.evaluation import Batch, Measured
from actlab.tasks.metrics import Metrics
from actlab.tasks.quantities import (
    Derived,
    Quantity,
    at_least_float,
    takes_run_axis,
    with_gradients,
)
from actlab.tasks.randomness import MODE_DEPENDENT, drawing
from actlab.tasks.restoring import restored
from actlab.tasks.training import STEP_LOSS, Training
from actlab.validation import Count, Shape, validated_but

NetworkFactory = Callable[[ActivationFactory, int, Sequence[int]], nn.Module]


class Task(Training, ABC):
    """Base class of tasks: trains one network and logs a weighted mean of each of its `quantities`.

    A task is responsible for the network (built from an activation factory, with the weights of its
    seed), for the optimiser and schedules, for the loss and metrics of a batch, and for the record
    from which a checkpoint rebuilds it. A subclass adds `quantities`, or `measure` for a loss that
    sees the network.

    It does not load data or choose a device, and it does not loop over batches: that is Lightning's
    part. The hooks that Lightning calls are in `Training`, which stacks of tasks share.

    Metrics logged once per epoch: ``train/loss`` (in training mode, over the epoch),
    ``train/clean_loss`` (each batch before its update, in evaluation mode, as plotted in the GELU
    paper), ``train/penalised_loss`` (``train/loss`` plus the penalty before each update, only if
    ``l2`` is one), ``val/…`` and ``test/…``. Every ``log_every_n_steps`` updates:
    ``train/loss_step``, the loss of the batch before the update.

    Args:
        activation: a registry name, ``package.module:Name``, ``./file.py:Name``, or ``{name: elu,
            alpha: 0.5}``; in a script also a class or function that has an import path, or an
            `actlab.activations.Spec`.
        network: builds the network from (activation factory, number of outputs, input shape).
        num_outputs: number of outputs K.
        input_shape: shape of one sample.
        optimizer: builds the optimiser from parameters or parameter groups.
        scheduler: a learning-rate scheduler of torch, or Lightning's ``ReduceLROnPlateau``, which
            follows a metric of validation and cannot be in a study; None leaves the rate to
            ``schedules``.
        scheduler_interval: whether ``scheduler`` steps once per epoch or once per update
            (``step``).
        schedules: factors over training for ``lr``, ``beta1``, ``momentum``, ``weight_decay`` or
            ``dropout``.
        l2: decay of chosen kinds of parameters only; None leaves decay to the optimiser's
            ``weight_decay``.
        clean_training_loss: log ``train/clean_loss``; costs a forward pass per batch if training is
            random.
        training_metrics: names from `metric_names` that are also logged as ``train/…``, in training
            mode.
        seed: determines the initial weights and the random masks; None is the seed given to
            Lightning's ``seed_everything``, or 0 without one.
        metrics: metrics of torchmetrics by name, logged as ``val/…`` and ``test/…``; see
            `compared`. A result that is not one number is kept in ``matrices``.

    Raises:
        ActlabError: for an unknown activation, parameter or metric, or for weights on an
            accelerator.
    """

    metric_names: tuple[str, ...] = ("loss",)
    # Metrics of `metric_names` that are functions of means
    derived: ClassVar[Mapping[str, Derived]] = {}
    # Order to which updates differentiate activations, if the task overrides `measure`
    derivatives: ClassVar[int] = 3
    # Whether the samples of an evaluation are independent: its means then have a
    # `sampling_error`
    independent = True
    # Whether a study stores the loss of each sample of the last evaluations
    keeps_losses = False
    # Whether batches differ in size, and so may the parts of a batch on several devices
    ragged = False
    # The arguments of the constructor
    arguments: Arguments
    # The config that the task was built from, as in its checkpoints
    config: Mapping[str, Any] | None = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Store the arguments; a copy is made without arguments, and takes the original's."""
        self = super().__new__(cls)
        self.arguments = of_call(cls, args, kwargs)
        return self

    @validated_but("activation", "network", "optimizer", "scheduler")
    def __init__(
        self,
        activation: str | dict[str, Any],
        network: NetworkFactory,
        num_outputs: Count,
        input_shape: Shape,
        optimizer: OptimizerCallable,
        scheduler: LRSchedulerCallable | None = None,
        scheduler_interval: Literal["epoch", "step"] = "epoch",
        schedules: Mapping[str, Schedule] | None = None,
        l2: L2 | None = None,
        clean_training_loss: bool = True,
        training_metrics: Sequence[str] = (),
        seed: int | None = None,
        metrics: Mapping[str, Metric] | None = None,
    ) -> None:
        super().__init__(Task)
        self.seed = seed_or_default(seed)

        # Show the arguments to loggers.
        self._set_hparams({**self.arguments.complete, "seed": self.seed})
        self._hparams_initial = copy.deepcopy(self._hparams)
        self._log_hyperparams = True

        # Check the arguments.
        if type(self).quantities is Task.quantities and not self.sees_network:
            raise ActlabError(
                f"{type(self).__name__} defines neither quantities nor measure. Define one of them."
            )
        allowed = [name for name in self.metric_names if name not in self.derived]
        invalid = set(training_metrics) - set(allowed)
        if invalid:
            raise unknown("training metric", min(invalid), allowed)
        building.check_builders(network, optimizer=optimizer, scheduler=scheduler)

        # Build the network. Its activation modules are listed in the order of their
        # construction.
        self.stream = streams.Stream(self.seed)
        self.activations: list[nn.Module] = []
        self.network = self._built(activation, network, num_outputs, input_shape)

        # Settings of the optimiser
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.scheduler_interval = scheduler_interval
        self.schedules = dict(schedules or {})
        self.l2 = l2

        # Metrics, first the metrics of training batches
        self.clean_training_loss = clean_training_loss
        self.trained = tuple(dict.fromkeys(("loss", *training_metrics)))
        self.penalised = building.is_penalty(self)
        self.metrics = Metrics(metrics, self.metric_names)
        self._check_schedules()
        self._checked = False

    def _built(
        self,
        activation: Any,
        network: NetworkFactory,
        num_outputs: int,
        input_shape: Sequence[int],
    ) -> nn.Module:
        """Return the network, with the weights of the task's seed; list its activations."""
        # Build the network with random numbers of its own.
        generators = own_generators(hashing.seed_for(self.seed, "init"))
        with (
            generators,
            weights_of_run(self.seed, self.activations),
            third_party.calling(),
        ):
            act: ActivationFactory = activations.factory(activation)
            if self.sees_network:
                act = differentiable(act)
            act = building.recorded(act, self.activations, self.seed)
            built = network(act, num_outputs, input_shape)
            building.check_built_on_cpu(built)
            building.materialise(built, input_shape)

        # Let its random parts draw from the task's stream.
        unfuse(built)
        streams.attach(built, self.stream)
        drawing_parts = list(drawing(built))
        for site, module in enumerate(drawing_parts):
            SeedGlobal(self.stream, site).attach(module)

        # Find out whether training may differ from evaluation.
        changing_parts = [
            part for part in built.modules() if isinstance(part, MODE_DEPENDENT)
        ]
        self.differs = bool(drawing_parts or changing_parts) or not self.measures_all
        return built

    def _check_schedules(self) -> None:
        """Reject a plateau schedule by a metric that is never logged, or by test data."""
        # List the metrics that are logged before the end of training.
        train = list(self.trained)
        if self.clean_training_loss:
            train.append("clean_loss")
        if self.penalised:
            train.append("penalised_loss")
        validation = [*self.metric_names, *self.metrics.numbers]
        allowed = [f"train/{name}" for name in train]
        allowed += [f"val/{name}" for name in validation]

        for schedule in self.schedules.values():
            if isinstance(schedule, Plateau) and schedule.metric not in allowed:
                raise unknown("metric of a plateau schedule", schedule.metric, allowed)

    @property
    def members(self) -> Sequence[Task]:
        """The task itself: it trains no other."""
        return [self]

    @property
    def stackable(self) -> tuple[str, ...]:
        """Config keys below ``model`` whose values may differ between the members of a stack.

        A key includes all keys below it: ``optimizer`` includes all settings of one optimiser
        class. A network declares its keys in an attribute ``stackable``.
        """
        # The stack takes these values from each member, all others from the first
        network_keys = getattr(self.network, "stackable", ())
        keys = ("optimizer", "schedules", "l2.strength")
        return *keys, *(f"network.{key}" for key in network_keys)

    @classmethod
    def metrics_for(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the `metric_names` of a task with these arguments, for studies.

        Studies need them before the task is built.
        """
        return cls.metric_names

    @property
    def sites(self) -> dict[str, nn.Module]:
        """The activation modules of the network, by module name."""
        # A module may have several names; this finds the first in the network's order
        ids = {id(activation) for activation in self.activations}
        return {
            name: module
            for name, module in self.network.named_modules()
            if id(module) in ids
        }

    def layers_of(self, r: int) -> list[nn.Module]:
        """Return the activation modules in the order of the network.

        ``r`` has no effect outside stacks.
        """
        return list(self.sites.values())

    def observe(self, batch: Batch) -> None:
        """Pass a batch through the network, for callers with hooks on its layers."""
        inputs = self.inputs(as_batch(batch))
        self(*inputs)

    @takes_run_axis
    def inputs(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return the network's inputs: by default the first tensor of the batch."""
        return batch[:1]

    def check_targets(self, batch: Batch) -> None:
        """Raise a RunError for targets without a loss.

        Called before a batch goes from the CPU to a GPU.
        """

    def quantities(self, output: Tensor, batch: Batch) -> dict[str, Quantity]:
        """Return the values of each of `metric_names` in a batch.

        For a metric in ``derived``, return the quantities that it is a function of.
        In training mode the metrics in ``trained`` are sufficient. A method that also accepts
        tensors with a leading run axis is marked with `actlab.tasks.takes_run_axis`; stacks then
        call it once for all runs.
        """
        raise NotImplementedError

    def measure(
        self, network: Callable[..., Tensor], batch: Batch
    ) -> dict[str, Quantity]:
        """Return the `quantities` of a batch ``(B, *)``.

        Override it for a loss that sees the network. Such a loss calls the network, which maps
        inputs ``(B, *)`` to outputs, more than once, or differentiates it by its inputs, as in
        ``torch.autograd.grad(u.sum(), x, create_graph=True)``.

        An override always runs with gradients. It is marked with
        `actlab.tasks.takes_run_axis` if it also accepts a batch ``(R, B, …)`` and the network of a
        stack; else its runs are trained one by one. Activations must have right derivatives up to
        the third order; a class whose updates need fewer sets ``derivatives``, such as 1 if no
        input is differentiated.
        """
        output = network(*self.inputs(batch))
        return self.quantities(output, batch)

    @property
    def sees_network(self) -> bool:
        """Whether the task has a `measure` of its own."""
        return type(self).measure is not Task.measure

    @property
    def measures_all(self) -> bool:
        """Whether one call measures all runs of a stack; see `actlab.tasks.takes_run_axis`."""
        method: Callable[..., Any] = (
            self.measure if self.sees_network else self.quantities
        )
        return getattr(method, "takes_run_axis", False)

    def reported(self, means: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return each of `metric_names`, from the means of the quantities, ``()`` or ``(R,)``."""
        values = dict(means)
        for name, metric in self.derived.items():
            if means.keys() >= {*metric.quantities}:
                # A training batch may lack some of them
                arguments = [means[argument] for argument in metric.quantities]
                values[name] = metric.function(*arguments)
        return {name: values[name] for name in self.metric_names if name in values}

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the network's output."""
        output: Tensor = self.network(*inputs)
        return output

    def loss(self, batch: Batch) -> Tensor:
        """Return the weighted mean loss of a batch in the current mode."""
        return self.measured(batch)["loss"].mean()

    @third_party.calling()
    def measured(
        self, batch: Batch, shared: bool = True, split: str | None = None
    ) -> dict[str, Quantity]:
        """Return the quantities of a batch in the current mode.

        ``shared`` has no effect outside stacks.
        """
        batch = as_batch(batch)
        output: Tensor | None = None
        if self.sees_network:
            quantities = with_gradients(self, self, batch)
        else:
            output = self(*self.inputs(batch))
            quantities = self.quantities(output, batch)

        # Metrics of torchmetrics need the output, also if the loss saw the network.
        if split is not None:
            if output is None:
                output = self(*self.inputs(batch))
            self.update_metrics(split, output, batch, quantities.get("loss"))
        return quantities

    def compared(self, output: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return what `metrics` compare: by default output and second tensor of the batch."""
        return output, targets_of(batch)

    def update_metrics(
        self, split: str, output: Tensor, batch: Batch, loss: Quantity | None
    ) -> None:
        """Add a batch of ``val`` or ``test`` to the metrics of torchmetrics.

        Values of weight 0 are left out.
        """
        predictions, targets = self.compared(output, batch)

        # Leave padding out.
        if loss is not None and loss.weights is not None:
            is_counted = loss.weights.expand_as(loss.values) > 0
            predictions = predictions[is_counted]
            targets = targets[is_counted]
        self.metrics.update(split, at_least_float(predictions), targets)

    def setup(self, stage: str) -> None:
        """Check that the network can be trained with the Trainer's settings."""
        building.check_devices(self.trainer, self.network)
        # Now: the user may edit code that it names during training.
        self.config = self.record
        super().setup(stage)

    @property
    def record(self) -> Mapping[str, Any]:
        """The training record for checkpoints: the config, or the arguments in a script."""
        if self.config is None:
            # A script has no config, so the arguments are the record
            self.config = of_task(type(self), self.arguments, self.seed)
        return self.config

    @property
    def hparams_initial(self) -> Any:
        """The arguments for loggers, without a datamodule's arguments.

        Lightning logs the datamodule's arguments, too, and rejects a name with two values.
        """
        hparams = super().hparams_initial
        if not building.saves_hyperparameters(self):
            datamodule = getattr(self._trainer, "datamodule", None)
            for name in getattr(datamodule, "hparams_initial", ()):
                hparams.pop(name, None)
        return hparams

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save the record of the task, too, and a subclass's hyperparameters as plain values."""
        super().on_save_checkpoint(checkpoint)
        checkpoint[checkpoints.CONFIG] = self.record

        key = self.CHECKPOINT_HYPER_PARAMS_KEY
        if key in checkpoint:
            checkpoint[key] = split(checkpoint[key]).plain
            if not building.saves_hyperparameters(self):  # they are in the record
                del checkpoint[key]

    def record_update(self, loss: Tensor, measured: Measured, batch_idx: int) -> None:
        """Record and log the mean loss of the batch; at the first batch check what is trained."""
        super().record_update(loss, measured, batch_idx)

        # Check that the optimiser has all trainable parameters.
        if (
            not self._checked
            and type(self).configure_optimizers is Training.configure_optimizers
        ):
            building.check_learning(loss, self)
        self._checked = True

        # Log the mean loss over devices.
        if self.logs_update(batch_idx):
            trainer = self.trainer
            mean: Any = trainer.strategy.reduce(loss.detach().clone(), reduce_op="mean")
            metrics = {STEP_LOSS: float(mean)}
            for logger in trainer.loggers:
                logger.log_metrics(
                    {**metrics, "epoch": self.current_epoch}, step=self.global_step
                )
            trainer.progress_bar_metrics.update(metrics)

    def penalty(self) -> Tensor | float:
        """Return ½·decay·Σw² over the weights that ``l2`` decays."""
        return optim.penalty(self.trainer.optimizers[0])

    def predict_step(
        self, batch: Batch, batch_idx: int, dataloader_idx: int = 0
    ) -> Tensor:
        """Return the network's output for a batch."""
        with third_party.calling():
            inputs = self.inputs(as_batch(batch))
            return self.forward(*inputs)

    def optimizer_of_all(self) -> tuple[Optimizer, list[int]]:
        """Return the optimiser, and member number 0 for each of its parameter groups."""
        # Group the parameters by the decay that they get.
        parameters = dict(self.named_parameters())
        kinds = optim.kinds(self, self.activations)
        groups = []
        for names, settings in optim.groups(kinds, self.l2):
            group = [parameters[name] for name in names]
            groups.append({"params": group, **settings})

        optimizer = building.checked_optimizer(self, groups)
        return optimizer, [0] * len(optimizer.param_groups)

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | Path | IO[Any],
        map_location: Any = None,
        hparams_file: str | Path | None = None,
        strict: bool | None = None,
        weights_only: bool | None = None,
        trust: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Return the trained task, built from the arguments in its checkpoint.

        Args:
            checkpoint_path: path, URL or open file of the checkpoint.
            map_location: where the weights are loaded, as for ``torch.load``; None is the CPU.
            hparams_file: a YAML file with the arguments of the task, instead of the recorded ones.
            strict: whether the weights must match the network exactly; None asks
                ``strict_loading``.
            weights_only: False unpickles a local file, which runs code in it; a URL is never
                unpickled.
            trust: whether the record may name any class, and files with activations, which are then
                imported.
            **kwargs: arguments of the task, instead of the recorded ones.

        Raises:
            ActlabError: for a checkpoint of another class, without recorded arguments where you
                pass none, with recorded code but without ``trust``, or with weights that do not
                fit.
        """
        return restored(  # type: ignore[no-any-return]
            cls,
            checkpoint_path,
            map_location,
            hparams_file,
            strict,
            weights_only,
            trust,
            kwargs,
        )
