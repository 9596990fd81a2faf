"""The classification task: cross-entropy, error and accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pytorch_lightning.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torchmetrics import Metric

from actlab.config.metric_classes import KEY
from actlab.errors import ActlabError
from actlab.networks import MLP
from actlab.optim import L2, Schedule
from actlab.tasks.base import NetworkFactory, Task
from actlab.tasks.batches import check_classes, class_numbers, targets_of
from actlab.tasks.evaluation import Batch
from actlab.tasks.quantities import Quantity, at_least_float, takes_run_axis
from actlab.validation import Count, Shape, validated_but


class ClassificationTask(Task):
    """Classify by cross-entropy; ``error`` is a fraction, ``accuracy`` is 1 − error.

    Arguments and errors as in `Task`. By default the network is an MLP and the optimiser Adam.
    These defaults are not in the signature: a parser would pass their arguments to any class that a
    config names instead.

    Args:
        top: also measure ``top{top}_error``, the fraction of samples whose label is not among the
            ``top`` most probable classes; 5 on ImageNet. From 1 to K.

    Batches: inputs ``(B, *input_shape)`` and labels ``(B,)`` in 0 … K−1; any other label is an
    error. Metrics of torchmetrics get log-probabilities.
    """

    metric_names: tuple[str, ...] = ("loss", "error", "accuracy")
    prediction = "probability"  # what `predict_step` returns
    # The label without weight. This class has none; torch's -100 would hide an invalid
    # label.
    padding = torch.iinfo(torch.int64).min
    default_network: ClassVar[type[nn.Module]] = MLP

    @validated_but("activation", "network", "optimizer", "scheduler")
    def __init__(
        self,
        num_classes: Count = 10,
        input_shape: Shape = (1, 28, 28),
        activation: str | dict[str, Any] = "gelu_tanh",
        network: NetworkFactory | None = None,
        optimizer: OptimizerCallable | None = None,
        scheduler: LRSchedulerCallable | None = None,
        scheduler_interval: Literal["epoch", "step"] = "epoch",
        schedules: dict[str, Schedule] | None = None,
        l2: L2 | None = None,
        clean_training_loss: bool = True,
        training_metrics: Sequence[str] = (),
        seed: int | None = None,
        top: int | None = None,
        metrics: Mapping[str, Metric] | None = None,
    ) -> None:
        if top is not None and not 1 <= top <= num_classes:
            raise ActlabError(
                f"model.top: expected a number of classes from 1 to {num_classes}, got {top}"
            )
        # Before the base class, which reads the names of the metrics
        self.num_classes = num_classes
        self.top = top
        self.metric_names = self.metrics_for({"top": top})
        super().__init__(
            activation,
            network or self.default_network,
            num_classes,
            input_shape,
            optimizer or torch.optim.Adam,
            scheduler,
            scheduler_interval,
            schedules,
            l2,
            clean_training_loss,
            training_metrics,
            seed,
            metrics,
        )

        # A metric of torchmetrics may have a number of classes, too.
        for name, metric in self.metrics.templates.items():
            classes = getattr(metric, "num_classes", None)
            if classes not in (None, num_classes):
                raise ActlabError(
                    f"{KEY}.{name}.num_classes: expected {num_classes}, as in the task, got "
                    f"{classes}"
                )

    @classmethod
    def metrics_for(cls, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the `metric_names` of a task with the given arguments."""
        top = arguments.get("top")
        if top is None:
            return cls.metric_names
        return (*cls.metric_names, f"top{top}_error")

    @takes_run_axis
    def quantities(self, output: Tensor, batch: Batch) -> dict[str, Quantity]:
        """Return cross-entropy, error, accuracy and, with ``top``, the top-k error.

        ``output`` holds logits ``(…, B, K)``.
        """
        labels = class_numbers(output, batch)
        loss = self.surprisals(output, labels)

        # Training logs only the loss, unless a config adds metrics.
        if self.training and len(self.trained) == 1:
            return {"loss": Quantity(loss)}

        # Of equal logits, the first class is the answer
        correct = (output.argmax(-1) == labels).float()
        quantities = {
            "loss": Quantity(loss),
            "error": Quantity(1 - correct),
            "accuracy": Quantity(correct),
        }
        if self.top is not None:
            top_classes = output.topk(self.top).indices
            is_among = (top_classes == labels.unsqueeze(-1)).any(-1)
            top_error = 1 - is_among.float()
            quantities[f"top{self.top}_error"] = Quantity(top_error)
        return quantities

    def surprisals(self, output: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy of labels ``(…)``, 0 of `padding`, from logits ``(…, K)``."""
        # torch expects one axis of samples.
        logits = output.flatten(0, -2)
        flat_labels = labels.flatten()
        try:
            losses = F.cross_entropy(
                logits, flat_labels, ignore_index=self.padding, reduction="none"
            )
        except IndexError:  # torch's own check, which costs nothing on a CPU
            check_classes(labels, output.shape[-1], self.padding)
            raise

        # Back to the shape of the labels, such as (R, B)
        return losses if flat_labels is labels else losses.view_as(labels)

    def check_targets(self, batch: Batch) -> None:
        """Raise a RunError for an invalid label, at which a GPU would end the process."""
        labels = targets_of(batch)
        # A check on a GPU would wait for it in every batch
        if labels.device.type == "cpu":
            check_classes(labels, self.num_classes, self.padding)

    def compared(self, output: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return what `metrics` compare: log-probabilities and labels.

        Some metrics turn logits into probabilities by a softmax, but only in batches whose logits
        are outside [0, 1]. Log-probabilities always are, and a softmax of them is right.
        """
        log_probabilities = at_least_float(output).log_softmax(-1)
        return log_probabilities, targets_of(batch)

    def predict_step(
        self, batch: Batch, batch_idx: int, dataloader_idx: int = 0
    ) -> Tensor:
        """Return class probabilities ``(B, K)``."""
        # Probabilities add up to 1 and can be read without the other classes
        logits = super().predict_step(batch, batch_idx, dataloader_idx)
        return logits.softmax(-1)
