"""The frame classification task: a batch holds the frames of several sentences, maybe padded."""

from __future__ import annotations

from torch import Tensor

from actlab.tasks.batches import class_numbers
from actlab.tasks.classification import ClassificationTask
from actlab.tasks.evaluation import Batch
from actlab.tasks.quantities import Quantity, takes_run_axis


class FrameTask(ClassificationTask):
    """Classify frames by cross-entropy; a label of −100 marks padding and has no weight.

    Every mean weights all frames equally and ignores padding, in batches, epochs and stacks. (The
    GELU paper's script instead averages the errors of batches with different numbers of frames.)

    Arguments and errors as in `actlab.tasks.Task`.

    Batches: inputs ``(F, *input_shape)`` and labels ``(F,)`` in 0 … K−1, or −100.
    """

    ragged = True
    independent = False  # frames of one sentence
    padding = -100

    @takes_run_axis
    def quantities(self, output: Tensor, batch: Batch) -> dict[str, Quantity]:
        """Return cross-entropy, error and accuracy of each frame.

        Logits are ``(…, F, K)`` and labels ``(…, F)``.
        """
        labels = class_numbers(output, batch)
        weights = (labels >= 0).to(output.dtype)  # padding is negative
        # Of padding, the cross-entropy is 0 and the error is not; neither has weight
        quantities = super().quantities(output, batch)
        return {
            name: Quantity(quantity.values, weights)
            for name, quantity in quantities.items()
        }
