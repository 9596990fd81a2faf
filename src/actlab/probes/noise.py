"""The interface of probes, and two probes: plain evaluation, and evaluation under input noise.

A study file lists probes, which `actlab study run` evaluates after training. Shapes: ``R`` runs,
``B`` batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from actlab.errors import ActlabError
from actlab.random.positions import Position, uniform_at
from actlab.tasks import Batch, Quantity, Task
from actlab.tasks.batches import as_batch
from actlab.tasks.quantities import Means
from actlab.validation import validated


class Measured(NamedTuple):
    """One metric of each run under one condition.

    Args:
        split: the split of the data, such as ``test``; may be empty.
        metric: name of the metric.
        condition: setting or part of the network, such as ``noise=0.5`` or ``layer=3``; several are
            joined by commas.
        values: one per run, ``(R,)``.
    """

    split: str
    metric: str
    condition: str
    values: Tensor


class Subject(Protocol):
    """R trained networks in evaluation mode."""

    @property
    def device(self) -> torch.device:
        """The device of the networks."""

    @property
    def members(self) -> Sequence[Task]:
        """The tasks of the runs; only `apart` gives them their current weights."""

    def measured(self, batch: Batch, shared: bool) -> Mapping[str, Quantity]:
        """Return the quantities of a batch that all runs share, with values ``(R, B, *)``."""

    def apart(self) -> Iterable[Task]:
        """Return the tasks of the runs, one by one."""


class Probe(Protocol):
    """An evaluation of trained networks."""

    def __call__(self, subject: Subject, data: Any) -> Iterable[Measured]:
        """Evaluate the networks on a datamodule after ``setup``, and yield the measured values."""


Metrics = dict[tuple[str, str], float]  # by metric and condition


class EachRun(ABC):
    """A probe that measures the runs one by one."""

    def __call__(self, subject: Subject, data: Any) -> Iterator[Measured]:
        """Yield all metrics of each layer or block."""
        runs = [self._measure(task, data, subject.device) for task in subject.apart()]

        # All runs have the same metrics
        for metric, condition in runs[0]:
            values = torch.tensor([metrics[metric, condition] for metrics in runs])
            yield Measured("", metric, condition, values)

    @abstractmethod
    def _measure(self, task: Task, data: Any, device: torch.device) -> Metrics: ...


class Evaluation:
    """Measure every metric of a split.

    Training does not record the metrics of untrained networks; this probe with ``at: 0`` does.

    Args:
        split: ``val`` or ``test``.
    """

    @validated
    def __init__(self, split: Literal["val", "test"] = "test") -> None:
        self.split = split

    def __call__(self, subject: Subject, data: Any) -> Iterator[Measured]:
        """Yield every metric."""
        means = Means()
        for batch in getattr(data, f"{self.split}_dataloader")():
            placed = tuple(tensor.to(subject.device) for tensor in as_batch(batch))
            _add(means, subject.measured(placed, shared=True))

        reported = subject.members[0].reported(means.take_all())
        for name, values in reported.items():
            yield Measured(self.split, name, "", values)


def _add(means: Means, quantities: Mapping[str, Quantity]) -> None:
    """Add the quantities of a batch to means for each run."""
    for name, quantity in quantities.items():
        means.add(name, quantity.mean(runs=True), quantity.weight(runs=True))


class InputNoise:
    """Measure every metric of a split with noise Unif[−a, a] on the inputs (GELU §3.1, Fig 3).

    One random number per input element, scaled by the strength, is shared by all strengths,
    activations and seeds. Noisy inputs are not clipped.

    Args:
        strengths: the values of a, at least 0.
        split: ``val`` or ``test``.
    """

    @validated
    def __init__(
        self, strengths: Sequence[float], split: Literal["val", "test"] = "test"
    ) -> None:
        if not strengths or min(strengths) < 0:
            raise ActlabError(
                f"strengths of input noise: expected numbers from 0, got {list(strengths)}"
            )
        self.strengths = tuple(strengths)
        self.split = split

    def __call__(self, subject: Subject, data: Any) -> Iterator[Measured]:
        """Yield every metric at every strength, with the condition ``noise=a``."""
        # Number the samples through all batches
        means = {a: Means() for a in self.strengths}
        start = 0
        for batch in getattr(data, f"{self.split}_dataloader")():
            x, *targets = (tensor.to(subject.device) for tensor in as_batch(batch))
            if not x.is_floating_point():
                raise ActlabError(
                    f"input noise: expected floating-point inputs, got {x.dtype}"
                )

            # Draw noise that depends on the samples alone
            position = Position(
                (0,), 0, torch.arange(start, start + len(x), device=x.device)
            )
            noise = 2 * uniform_at(position, "input noise", x.shape[1:]) - 1
            start += len(x)

            # Measure under each strength
            for a in self.strengths:
                noisy = x + a * noise.to(x.dtype)
                _add(means[a], subject.measured((noisy, *targets), shared=True))

        # All members report the same metrics
        for a in self.strengths:
            reported = subject.members[0].reported(means[a].take_all())
            for name, values in reported.items():
                yield Measured(self.split, name, f"noise={a:g}", values)
