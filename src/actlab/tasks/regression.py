"""Regression by least squares; of colours, also as a peak signal-to-noise ratio."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from actlab.tasks.base import Task
from actlab.tasks.batches import matching, targets_of
from actlab.tasks.evaluation import Batch
from actlab.tasks.quantities import Derived, Quantity, takes_run_axis


class RegressionTask(Task):
    """Fit real numbers; ``loss`` is the squared error, averaged over batch and outputs.

    Arguments and errors as in `Task`.

    Batches: inputs ``(B, *input_shape)`` and targets ``(B, num_outputs)``.
    """

    prediction = "output"  # what `predict_step` returns

    @takes_run_axis
    def quantities(self, output: Tensor, batch: Batch) -> dict[str, Quantity]:
        """Return the squared error of each output ``(…, B, K)``.

        Targets of another shape raise a RunError.
        """
        targets = targets_of(batch)
        error = matching(output, targets) - targets
        return {"loss": Quantity(error.square())}


def decibels(mean_square: Tensor) -> Tensor:
    """Return the peak signal-to-noise ratio −10·lg(mean squared error) of values in [0, 1]."""
    return -10 * mean_square.log10()


class PixelTask(RegressionTask):
    """Fit colours in [0, 1]; ``psnr`` is −10·lg of the mean squared error, in decibels.

    Arguments, errors and batches as in `RegressionTask`.
    """

    metric_names = ("loss", "psnr")
    derived: ClassVar = {"psnr": Derived(decibels)}
    prediction = "colour"
    independent = False  # pixels of one picture
