"""Callbacks: test metrics and seeds of every epoch, a progress bar and statistics of units.

Shapes: ``R`` runs (1 for a single task), ``B`` batch, ``U`` units of all layers, ``S`` values of a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import (
    Callback,
    ProgressBar,
    RichProgressBar,
    StochasticWeightAveraging,
    WeightAveraging,
)
from pytorch_lightning.callbacks.progress.rich_progress import RichProgressBarTheme
from pytorch_lightning.trainer.states import RunningStage, TrainerFn
from pytorch_lightning.utilities.model_helpers import is_overridden
from rich.progress import BarColumn
from torch import Tensor, nn

from actlab.config.batches import limited
from actlab.errors import ActlabError
from actlab.random.hashing import seed_for
from actlab.random.positions import Position
from actlab.random.seeding import Generators, seed_generators
from actlab.runtime.accidents import has_float64
from actlab.runtime.modules import evaluating, unchanged
from actlab.validation import Count, validated

_HOOKS = [name for name in dir(Callback) if name.startswith("on_test_")]


class TestEveryEpoch(Callback):
    """Log ``test/…`` after training epochs, for test curves as in the papers; nothing is selected by them.

    The result equals that of ``trainer.test`` after seeding the global generators by the run's seed (of
    `SeedEveryEpoch`, or else the seed given to torch last): all hooks of testing are called, ``setup("test")``
    once before the first test. Training continues as if there had been no test. With the callback
    `WeightAveraging`, averaged weights are tested, as in a validation.

    Args:
        every_n_epochs: test only after every n-th epoch, and after the last.

    Raises:
        ActlabError: if a module that can be tested has no ``test_dataloader``, or if its ``setup("test")``
            replaces parameters.
    """

    __test__ = False  # pytest would collect the class because of its name
    splits = ("test",)  # splits whose metrics are logged
    stackable = True  # stacks have the same hooks, and log the metrics themselves

    @validated
    def __init__(self, every_n_epochs: Count = 1) -> None:
        self.every_n_epochs = every_n_epochs
        self._generators: Generators | None = None  # their states after `setup("test")`

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate on the test set and log; the weights are those of a validation."""
        epochs = trainer.current_epoch + 1
        if not trainer.limit_test_batches or (epochs % self.every_n_epochs and epochs != trainer.max_epochs):
            return
        if not is_overridden("test_step", pl_module):  # nothing is tested
            return
        with _averaged(trainer, pl_module):
            if _tested_by_steps(trainer, pl_module):
                self._step(trainer, pl_module, trainer.datamodule.test_dataloader())  # type: ignore[attr-defined]
            else:
                self._run_loop(trainer, pl_module)
        reduce_everywhere(trainer)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Check before training that there is a test set."""
        data = trainer.datamodule or pl_module  # type: ignore[attr-defined]
        tests = stage == "fit" and is_overridden("test_step", pl_module)
        if tests and not is_overridden("test_dataloader", data):
            raise ActlabError(
                f"TestEveryEpoch needs a test set, but {type(data).__name__} has no test_dataloader: define "
                "it, or leave actlab.callbacks.TestEveryEpoch out of trainer.callbacks"
            )

    def _step(self, trainer: pl.Trainer, module: pl.LightningModule, loader: Any) -> None:
        """Call the steps alone, with no other hook of testing."""
        if loader == []:  # there is no test set
            return
        with looking(trainer, module) as placed:
            batches = limited(loader, trainer.limit_test_batches, "trainer.limit_test_batches")
            for number, batch in enumerate(batches):
                module.test_step(placed(batch), number)
        module.on_test_epoch_end()

    def _run_loop(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Run the Trainer's test loop, then restore what it changes."""
        loop, logged, steps = trainer.test_loop, trainer._logger_connector, trainer.fit_loop.epoch_loop
        replaced: list[tuple[Any, str, Any]] = [
            (trainer.state, "fn", TrainerFn.TESTING),
            (trainer.state, "stage", RunningStage.TESTING),
            (loop, "verbose", False),
            (loop, "inference_mode", False),  # tensors that a module keeps are used in training
            (steps, "_batches_that_stepped", steps._batches_that_stepped - 1),  # as where Lightning logs epochs
            (logged, "_first_loop_iter", None),
            (logged, "_current_fx", None),
        ]
        if hasattr(trainer, "_last_val_time"):
            replaced.append((trainer, "_last_val_time", trainer._last_val_time))
        former, generators = [(of, name, getattr(of, name)) for of, name, _ in replaced], Generators.now()
        try:
            for of, name, value in replaced:
                setattr(of, name, value)
            if self._generators is None:
                callbacks = trainer.callbacks  # type: ignore[attr-defined]
                seeds = [callback.seed for callback in callbacks if isinstance(callback, SeedEveryEpoch)]
                seed_generators([*seeds, torch.initial_seed()][0])
                self._set_up(trainer, module)
                self._generators = Generators.now()
            self._generators.restore()
            loop.run()
        finally:
            for of, name, value in former:
                setattr(of, name, value)
            generators.restore()

    @staticmethod
    def _set_up(trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Prepare the data and call ``setup("test")``, in the order of ``trainer.test``."""
        before = {id(parameter) for parameter in module.parameters()}
        trainer._data_connector.prepare_data()
        if (data := trainer.datamodule) is not None:  # type: ignore[attr-defined]
            data.setup("test")
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            callback.setup(trainer, module, "test")
        module.setup("test")
        if new := [name for name, parameter in module.named_parameters() if id(parameter) not in before]:
            raise ActlabError(
                f"TestEveryEpoch: setup('test') of {type(module).__name__} replaces the parameter {new[0]}, "
                "which is in training: create parameters in __init__, or only where stage is 'fit'"
            )


def _tested_by_steps(trainer: pl.Trainer, module: pl.LightningModule) -> bool:
    """Whether ``test_step`` alone gives what ``trainer.test`` gives, as module, data and callbacks declare."""
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    hooked = [callback for callback in callbacks if any(is_overridden(hook, callback) for hook in _HOOKS)]
    watching = [callback for callback in hooked if not isinstance(callback, ProgressBar)]
    parts = [module, trainer.datamodule, *watching]  # type: ignore[attr-defined]
    declared = all(getattr(part, "tested_by_steps", False) for part in parts)
    return declared and not any(is_overridden(hook, module) for hook in _HOOKS if hook != "on_test_epoch_end")


class SeedEveryEpoch(Callback):
    """Seed torch's, NumPy's and Python's generators at the start of each epoch, from the seed and the epoch.

    Dropout, shuffling and workers of data loaders then draw the same numbers after a resume as without a stop,
    and shuffles do not depend on what an activation draws. `actlab fit` and studies add this callback where the
    module or the datamodule is not actlab's, and seed before both are built and before training. The same in a
    script::

        pl.seed_everything(7, workers=True)
        data = Data()
        pl.seed_everything(7, workers=True)
        module = Module()
        trainer = pl.Trainer(callbacks=[SeedEveryEpoch(7)])
        pl.seed_everything(7, workers=True)
        trainer.fit(module, datamodule=data)

    Batches that are augmented in the main process still depend on what was drawn before in their epoch. Workers
    that persist over epochs keep generators of their own, which no resume restores: a line says so.

    Args:
        seed: the seed of the run.
    """

    stackable = True

    @validated
    def __init__(self, seed: int) -> None:
        self.seed, self._starts = seed, True

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Seed the generators; have the batches of the epoch drawn after that."""
        loop: Any = trainer.fit_loop
        loaders = loop._combined_loader.flattened
        persist = any(getattr(loader, "persistent_workers", False) for loader in loaders)
        if persist and trainer.current_epoch and self._starts and trainer.is_global_zero:
            note = "note: no resume restores the random numbers of persistent workers"
            print(f"{note}: give persistent_workers=False for those of a training without a stop", flush=True)
        seed_generators(seed_for(self.seed, "epoch", trainer.current_epoch))
        if trainer.current_epoch == 0:
            iter(loop._data_fetcher)  # Lightning made this iterator earlier
        loop._resuming_from_checkpoint = False  # else Lightning would keep an iterator that it made earlier
        self._starts = False


class BlockProgressBar(RichProgressBar):
    """Lightning's progress bar with each metric on a line; it counts the updates in blocks."""

    blocks = True

    def __init__(self) -> None:
        super().__init__(theme=RichProgressBarTheme(metrics_text_delimiter="\n"))  # 80 columns hold one metric

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Show the number of the update, of a block that of its last."""
        super().on_train_batch_end(trainer, pl_module, outputs, batch, trainer.fit_loop.batch_idx)

    def configure_columns(self, trainer: pl.Trainer) -> list[Any]:
        """Return Lightning's columns, with a bar that leaves room for the metrics."""
        columns: list[Any] = super().configure_columns(trainer)
        for column in columns:
            if isinstance(column, BarColumn):
                column.bar_width = 10  # characters
        return columns


@contextmanager
def _averaged(trainer: pl.Trainer, module: pl.LightningModule) -> Iterator[None]:
    """Give the module the weights with which callbacks that average weights let Lightning validate."""
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    averaging = [callback for callback in callbacks if isinstance(callback, WeightAveraging)]
    for callback in averaging:
        callback.on_validation_epoch_start(trainer, module)
    try:
        yield
    finally:
        for callback in averaging:
            callback.on_validation_epoch_end(trainer, module)


def reduce_everywhere(trainer: pl.Trainer) -> None:
    """Reduce on every device what was logged so far: Lightning does so where it is read, a bar on one alone."""
    if trainer.world_size > 1:
        _ = trainer.progress_bar_metrics


def check_averaging(trainer: pl.Trainer) -> None:
    """Reject callbacks that average weights in a study: its checkpoints would hold the weights in training."""
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, StochasticWeightAveraging | WeightAveraging):
            raise ActlabError(
                f"{type(callback).__name__} keeps averaged weights, but the records and checkpoints of a study "
                "would use the weights in training: leave it out, or train with `actlab fit`"
            )


@contextmanager
def looking(trainer: pl.Trainer, module: pl.LightningModule) -> Iterator[Callable[[Any], Any]]:
    """Enter evaluation mode in the Trainer's precision; yield a function that moves a batch to the device.

    The network of a task or a stack is left as it was.
    """
    precision = trainer.precision_plugin

    def placed(batch: Any) -> Any:
        # In the testing stage users' hooks do not augment a batch.
        stage, trainer.state.stage = trainer.state.stage, RunningStage.TESTING
        try:
            return trainer.strategy.batch_to_device(precision.convert_input(batch), module.device)
        finally:
            trainer.state.stage = stage

    network = getattr(module, "network", None)  # of a task or a stack
    parts = network.modules() if isinstance(network, nn.Module) else ()
    with evaluating(module), unchanged(parts), precision.forward_context():
        yield placed


class UnitValues(NamedTuple):
    """Statistics of every unit: widths of the layers in call order, with sum U, and ``(R, U)`` by name."""

    widths: tuple[int, ...]
    values: dict[str, Tensor]


class UnitStatistics(Callback):
    """Measure mean and median activation of every unit after each training epoch, on fixed training samples.

    (ELU §4.1.1, Fig 2; appendix C.) A unit is one output of an activation function: a feature, or a channel
    with its values at all positions. Networks are in evaluation mode; images in memory are not augmented.

    The values of each unit are in `latest`, and in ``units.parquet`` in the run folders of a study. Medians
    over all units are logged as ``units/median_of_means`` and ``units/median_of_medians``, and their absolute
    values as ``units/distance_of_means`` and ``units/distance_of_medians``. The median of an even number of
    values is the lower of the two middle values.

    Args:
        samples: number of training samples, the first in file order; None means all.
        batch_size: number of samples per forward pass.
        memory: MiB of activations held at the same time; where they do not fit, the samples pass through the
            network several times.
    """

    stackable = True
    # The first two are logged after each epoch; the others describe a whole run.
    metrics = tuple(
        f"units/{what}{name}s"
        for name in ("mean", "median")
        for what in ("median_of_", "distance_of_", "variance_of_", "variance_of_changes_of_", "always_zero_")
    )

    @validated
    def __init__(self, samples: Count | None = 1000, batch_size: Count = 1000, memory: Count = 512) -> None:
        self.samples, self.batch_size, self.memory = samples, batch_size, memory
        self.latest: UnitValues | None = None

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure every unit and log the medians over units."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        source: Any = getattr(data, "training_samples", getattr(data, "train", None))
        if not hasattr(source, "__getitems__"):
            raise ActlabError(
                f"unit statistics require training samples by index, which {type(data).__name__} lacks: "
                "its 'train' must be an actlab dataset (`actlab.datamodules.base.Samples`)"
            )
        number = min(self.samples or len(source), len(source))
        parts = torch.split(torch.arange(number), self.batch_size)
        with looking(trainer, pl_module) as placed:

            def batches() -> Iterator[Any]:
                return (placed(source.__getitems__(Position((0,), 0, index))) for index in parts)

            self.latest = unit_statistics(pl_module, batches, len(parts), self.memory * 2**20)
        several = trainer.world_size > 1  # all devices have the same numbers
        for name, values in self.latest.values.items():
            medians = values.median(-1).values  # (R,)
            median = medians if getattr(pl_module, "stacked", False) else medians[0]
            pl_module.log(f"units/median_of_{name}s", median, sync_dist=several)
            pl_module.log(f"units/distance_of_{name}s", median.abs(), sync_dist=several)
        reduce_everywhere(trainer)


def unit_statistics(
    module: pl.LightningModule, batches: Callable[[], Iterator[Any]], number: int, memory: int
) -> UnitValues:
    """Compute mean and median of every unit of a task or stack, in its current mode, over some samples.

    ``batches`` returns an iterator over all ``number`` batches for each pass; the first is the largest.
    ``memory`` is in bytes of activations.
    """
    shapes = [values.shape for values in activations_of(module, next(batches()))]
    means, medians = list[Tensor](), list[Tensor]()
    for parts in _passes(shapes, number, memory):
        values: list[list[Tensor]] = [[] for _ in parts]
        for batch in batches():
            outputs = activations_of(module, batch)
            for of_part, (layer, units) in zip(values, parts, strict=True):
                # A copy, because a view would keep the values of all units.
                of_part.append(outputs[layer][..., units].to(torch.float32, copy=True))
        while values:
            of_runs = [run.t().contiguous() for run in torch.cat(values.pop(0), dim=1)]  # (U, S) each
            wide = of_runs if has_float64(of_runs[0].device) else [run.cpu() for run in of_runs]
            means.append(torch.stack([run.mean(-1, dtype=torch.float64).float() for run in wide]).cpu())
            medians.append(torch.stack([run.median(-1).values for run in of_runs]).cpu())
    widths = tuple(shape[2] for shape in shapes)
    return UnitValues(widths, {"mean": torch.cat(means, dim=1), "median": torch.cat(medians, dim=1)})


def _passes(shapes: Sequence[torch.Size], batches: int, memory: int) -> list[list[tuple[int, slice]]]:
    """Return for each pass through the samples the (layer, units) that it holds in memory, in order."""
    passes: list[list[tuple[int, slice]]] = [[]]
    left = memory
    for layer, (runs, length, width) in enumerate(shapes):
        size, start = 4 * runs * length * batches, 0  # bytes of one unit
        while start < width:
            number = min(width - start, left // size)
            if number < 1:
                if passes[-1]:
                    passes, left = [*passes, []], memory
                number = max(1, min(width - start, left // size))
            passes[-1].append((layer, slice(start, start + number)))
            left, start = left - number * size, start + number
    return passes


def activations_of(module: pl.LightningModule, batch: Any) -> list[Tensor]:
    """Return the activations ``(R, S, units)`` of each call of an activation, for a batch of all runs."""
    stacked = getattr(module, "stacked", False)
    with watching(module.sites.values()) as seen:  # type: ignore[operator]
        module.observe(batch)  # type: ignore[operator]
    return [by_unit(output if stacked else output.unsqueeze(0)) for output in seen]


@contextmanager
def watching(modules: Iterable[nn.Module]) -> Iterator[list[Tensor]]:
    """Record the output of each call of the given modules."""
    seen: list[Tensor] = []

    def note(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        seen.append(output)
        return output.clone()  # a copy, because the network may overwrite it

    with ExitStack() as hooks:
        for module in modules:
            hooks.enter_context(module.register_forward_hook(note))
        yield seen


def by_unit(output: Tensor) -> Tensor:
    """Reshape activations ``(R, B, C, H, W)`` or ``(R, B, *, F)`` to ``(R, S, U)``, with a unit per C or F."""
    return (output.movedim(2, -1) if output.dim() == 5 else output).flatten(1, -2)
