"""The task of predicting each next token of a text.

Shapes: ``B`` batch, ``T`` tokens, ``K`` vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from actlab.networks import GPT
from actlab.tasks.base import Task
from actlab.tasks.batches import as_batch, class_numbers
from actlab.tasks.classification import ClassificationTask
from actlab.tasks.evaluation import Batch
from actlab.tasks.quantities import Derived


def bits(nats: Tensor) -> Tensor:
    """Return a loss in bits, from one in nats.

    >>> bits(torch.tensor(math.log(8))).item()
    3.0
    """
    return nats / math.log(2)


class LanguageTask(ClassificationTask):
    """Predict each next token by cross-entropy, in nats per token.

    With `TextDataModule` a token is a byte. ``bits_per_byte`` and ``perplexity``, e to the loss,
    are functions of the mean loss of an evaluation. Metrics of torchmetrics get log-probabilities
    ``(B·T, K)`` and targets ``(B·T,)``.

    Arguments and errors as in `ClassificationTask`, but the network is a `GPT` by default:
    ``num_classes`` is the number of tokens in the vocabulary, such as 256, and ``input_shape`` the
    length of a window, such as (64,).

    Batches: tokens and targets, one token later, int64 ``(B, T)`` each, in 0 … K−1.
    """

    metric_names: tuple[str, ...] = (
        "loss",
        "error",
        "accuracy",
        "bits_per_byte",
        "perplexity",
    )
    derived: ClassVar[Mapping[str, Derived]] = {
        "bits_per_byte": Derived(bits),
        "perplexity": Derived(torch.exp),
    }
    prediction = "surprisal"  # what `predict_step` returns
    keeps_losses = True  # of each window, because texts differ by passage
    default_network: ClassVar[type[nn.Module]] = GPT

    def compared(self, output: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return log-probabilities ``(B·T, K)`` and targets ``(B·T,)``, which metrics compare."""
        predictions, targets = super().compared(output, batch)
        return predictions.flatten(0, -2), targets.flatten()

    def predict_step(
        self, batch: Batch, batch_idx: int, dataloader_idx: int = 0
    ) -> Tensor:
        """Return the surprisal of each target, −ln of its probability: ``(B, T)``."""
        # Not the probabilities of `ClassificationTask`
        logits = Task.predict_step(self, batch, batch_idx)
        labels = class_numbers(logits, as_batch(batch))
        return self.surprisals(logits, labels)
