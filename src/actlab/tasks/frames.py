"""Classification of frames: a batch holds the frames of some sentences, padding may fill it up."""

from __future__ import annotations

from torch import Tensor

from actlab.tasks.classification import ClassificationTask
from actlab.tasks.quantities import Quantity, takes_run_axis
from actlab.tasks.training import Batch

PADDING = -100  # the label that torch's cross-entropy leaves out


class FrameTask(ClassificationTask):
    """Classification by cross-entropy where a label of −100 has no weight: it only fills a batch up.

    So each mean is over the frames that there are: those of all sentences count alike, in batches, epochs and
    stacks. (The GELU paper's script averages the errors of batches that differ in frames; that is not done.)

    Arguments and errors as in `actlab.tasks.Task`.

    Batches: inputs ``(F, *input_shape)`` and labels ``(F,)`` in 0 … K−1, or −100.
    """

    ragged = True

    @takes_run_axis
    def quantities(self, output: Tensor, batch: Batch) -> dict[str, Quantity]:
        """Cross-entropy, error and accuracy of each frame.

        Args:
            output: logits ``(…, F, K)``.
            batch: inputs and labels ``(…, F)``.
        """
        weights = (batch[1].expand(output.shape[:-1]) != PADDING).to(output.dtype)
        found = super().quantities(output, batch)
        return {name: Quantity(quantity.values, weights) for name, quantity in found.items()}
