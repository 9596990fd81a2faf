"""The autoencoder task: reconstruction of the input by least squares."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor
from torchmetrics import Metric

from actlab.networks import Autoencoder
from actlab.optim import L2, Schedule
from actlab.tasks.base import NetworkFactory, Task
from actlab.tasks.batches import matching
from actlab.tasks.evaluation import Batch
from actlab.tasks.quantities import Quantity, takes_run_axis
from actlab.validation import Shape, validated_but


class AutoencoderTask(Task):
    """Reconstruct the input; ``loss`` is the mean squared error over batch and pixels (GELU §3.2).

    Arguments and errors as in `Task`. By default the network is an `Autoencoder` and the optimiser
    Adam. The network has one output for each value of a sample.

    Batches: inputs ``(B, *input_shape)`` with D values per sample; further tensors such as labels
    are ignored.
    """

    prediction = "pixel"  # what `predict_step` returns

    @validated_but("activation", "network", "optimizer", "scheduler")
    def __init__(
        self,
        input_shape: Shape = (1, 28, 28),
        activation: str | dict[str, Any] = "gelu_tanh",
        network: NetworkFactory | None = None,
        optimizer: OptimizerCallable | None = None,
        scheduler: LRSchedulerCallable | None = None,
        scheduler_interval: Literal["epoch", "step"] = "epoch",
        schedules: dict[str, Schedule] | None = None,
        l2: L2 | None = None,
        clean_training_loss: bool = True,
        seed: int | None = None,
        metrics: Mapping[str, Metric] | None = None,
    ) -> None:
        super().__init__(
            activation,
            network or Autoencoder,
            math.prod(input_shape),
            input_shape,
            optimizer or torch.optim.Adam,
            scheduler,
            scheduler_interval,
            schedules,
            l2,
            clean_training_loss,
            (),  # no metrics of training besides the loss
            seed,
            metrics,
        )
        self.axes = len(input_shape)

    def compared(self, output: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return reconstructions and inputs, ``(B, *input_shape)``."""
        return output.view_as(batch[0]), batch[0]

    @takes_run_axis
    def quantities(self, output: Tensor, batch: Batch) -> dict[str, Quantity]:
        """Return the squared error of each pixel; reconstructions ``(…, B, D)``."""
        # The last axes are the axes of a sample, also with a run axis in front
        pixels = batch[0].flatten(-self.axes)
        error = matching(output, pixels) - pixels
        return {"loss": Quantity(error.square())}
