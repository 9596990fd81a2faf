"""Measure the mean and median of every unit after training epochs.

Shapes: ``R`` runs (1 for a single task), ``B`` batch, ``U`` units of all layers, ``S`` values
of a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn

from actlab.callbacks.evaluation import evaluation_mode, reduce_logged
from actlab.errors import ActlabError
from actlab.random.positions import Position
from actlab.runtime.accidents import has_float64
from actlab.validation import Count, validated

Part = tuple[int, slice]  # a layer, and some of its units


class UnitValues(NamedTuple):
    """Widths of the layers in call order, with sum U, and statistics ``(R, U)`` by name."""

    widths: tuple[int, ...]
    values: dict[str, Tensor]


class UnitStatistics(Callback):
    """Measure mean and median activation of every unit after each epoch, on fixed training samples.

    (ELU §4.1.1, Fig 2; appendix C.) A unit is one output of an activation function: a feature, or a
    channel with its values at all positions. Networks are in evaluation mode; images in memory are
    not augmented.

    The values of each unit are in `latest`, and in ``units.parquet`` in the run folders of a study.
    Medians over all units are logged as ``units/median_of_means`` and ``units/median_of_medians``,
    and their absolute values as ``units/distance_of_means`` and ``units/distance_of_medians``. The
    median of an even number of values is the lower of the two middle values.

    Args:
        samples: number of training samples, the first in file order; None means all.
        batch_size: number of samples per forward pass.
        memory: MiB of activations held at the same time; where they do not fit, the samples pass
            through the network several times.
    """

    stackable = True
    # `median` and `distance` are logged after each epoch; the others describe a whole
    # run.
    metrics = (
        "units/median_of_means",
        "units/distance_of_means",
        "units/variance_of_means",
        "units/variance_of_changes_of_means",
        "units/always_zero_means",
        "units/median_of_medians",
        "units/distance_of_medians",
        "units/variance_of_medians",
        "units/variance_of_changes_of_medians",
        "units/always_zero_medians",
    )

    @validated
    def __init__(
        self,
        samples: Count | None = 1000,
        batch_size: Count = 1000,
        memory: Count = 512,
    ) -> None:
        self.samples = samples
        self.batch_size = batch_size
        self.memory = memory  # in MiB
        self.latest: UnitValues | None = None

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure every unit and log the medians over units."""
        # The first training samples, in batches
        samples = _training_samples(trainer)
        number = min(self.samples or len(samples), len(samples))
        indices = torch.arange(number)
        parts = torch.split(indices, self.batch_size)
        with evaluation_mode(trainer, pl_module) as place:

            def batches() -> Iterator[Any]:
                # Seed and epoch are fixed, so inputs never change
                for part in parts:
                    position = Position((0,), 0, part)
                    yield place(samples.__getitems__(position))

            self.latest = measure(pl_module, batches, len(parts), self.memory * 2**20)

        is_shared = trainer.world_size > 1  # all devices have the same numbers
        for name, values in self.latest.values.items():
            medians = values.median(-1).values  # (R,)
            if not getattr(pl_module, "stacked", False):
                medians = medians[0]
            pl_module.log(f"units/median_of_{name}s", medians, sync_dist=is_shared)
            pl_module.log(
                f"units/distance_of_{name}s", medians.abs(), sync_dist=is_shared
            )
        reduce_logged(trainer)


def _training_samples(trainer: Trainer) -> Any:
    data = trainer.datamodule  # type: ignore[attr-defined]
    samples = getattr(data, "training_samples", getattr(data, "train", None))
    if not hasattr(samples, "__getitems__"):
        raise ActlabError(
            "unit statistics require training samples by index, which "
            f"{type(data).__name__} lacks. Use an actlab dataset as its 'train' "
            "(`actlab.datamodules.base.Samples`)."
        )
    return samples


def measure(
    module: LightningModule,
    batches: Callable[[], Iterator[Any]],
    number: int,
    memory: int,
) -> UnitValues:
    """Compute mean and median of every unit of a task or stack over samples, in its current mode.

    Args:
        module: the task or stack.
        batches: returns an iterator over all batches for each pass; the first batch is the largest.
        number: number of batches.
        memory: bytes of activations held at the same time.
    """
    shapes = [outputs.shape for outputs in _activations(module, next(batches()))]
    means: list[Tensor] = []
    medians: list[Tensor] = []
    for parts in _passes(shapes, number, memory):
        # Collect the values of these units, copied because a view would keep the values
        # of all units
        values: list[list[Tensor]] = [[] for _ in parts]
        for batch in batches():
            outputs = _activations(module, batch)
            for collected, (layer, units) in zip(values, parts, strict=True):
                selected = outputs[layer][..., units]
                collected.append(selected.to(torch.float32, copy=True))

        # Reduce them run by run, part by part, which frees memory
        while values:
            run_medians = []
            run_means = []
            for run in torch.cat(values.pop(0), dim=1):
                unit_values = run.t().contiguous()  # (U, S)
                run_medians.append(unit_values.median(-1).values)
                if not has_float64(module.device):
                    unit_values = unit_values.cpu()
                run_means.append(unit_values.mean(-1, dtype=torch.float64))
            medians.append(torch.stack(run_medians).cpu())
            means.append(torch.stack(run_means).float().cpu())

    # Join the parts to statistics (R, U)
    widths = tuple(shape[2] for shape in shapes)
    statistics = {"mean": torch.cat(means, dim=1), "median": torch.cat(medians, dim=1)}
    return UnitValues(widths, statistics)


def _passes(
    shapes: Sequence[torch.Size], batches: int, memory: int
) -> list[list[Part]]:
    """Return the (layer, units) that each pass through the samples holds in memory, in order."""
    passes: list[list[Part]] = [[]]
    free = memory  # bytes left in the last pass
    for layer, (runs, length, width) in enumerate(shapes):
        size = 4 * runs * length * batches  # bytes of one unit
        start = 0
        while start < width:
            number = min(width - start, free // size)
            if number < 1:
                if passes[-1]:
                    passes.append([])
                    free = memory
                number = max(1, min(width - start, free // size))
            passes[-1].append((layer, slice(start, start + number)))
            free -= number * size
            start += number
    return passes


def _activations(module: LightningModule, batch: Any) -> list[Tensor]:
    """Return the activations ``(R, S, units)`` of each call of an activation, for a batch."""
    with watching(module.sites.values()) as outputs:  # type: ignore[operator]
        module.observe(batch)  # type: ignore[operator]
    if not getattr(module, "stacked", False):
        outputs = [output.unsqueeze(0) for output in outputs]
    return [by_unit(output) for output in outputs]


@contextmanager
def watching(modules: Iterable[nn.Module]) -> Iterator[list[Tensor]]:
    """Record the output of each call of some modules."""
    outputs: list[Tensor] = []

    def record(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        outputs.append(output)
        return output.clone()  # a copy, because the network may overwrite it

    with ExitStack() as hooks:
        for module in modules:
            hooks.enter_context(module.register_forward_hook(record))
        yield outputs


def by_unit(output: Tensor) -> Tensor:
    """Reshape ``(R, B, C, H, W)`` or ``(R, B, *, F)`` to ``(R, S, U)``; U is C or F."""
    if output.dim() == 5:
        output = output.movedim(2, -1)
    return output.flatten(1, -2)
