"""Probes: what is measured on trained networks, for one run or for many at once.

A study file names them; ``actlab study run`` evaluates them after training, on finished runs too::

    probes:
      - {name: noise, class_path: actlab.probes.InputNoise, init_args: {strengths: [0.0, 0.5, 1.0]}, at: last}

A probe is called with a `Subject` and the data and yields `Measured` values under conditions.

Shapes: ``R`` runs that are measured together, ``B`` batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from actlab.errors import ActlabError
from actlab.random.positions import Position, uniform_at
from actlab.tasks import Batch, Quantity, Task
from actlab.tasks.quantities import Means


class Measured(NamedTuple):
    """A value of each run.

    Args:
        split: of the data, such as ``test``; may be empty.
        metric: what is measured.
        condition: under which, or of which part: ``noise=0.5``, ``layer=3``, several joined by commas.
        values: one a run, ``(R,)``.
    """

    split: str
    metric: str
    condition: str
    values: Tensor


class Subject(Protocol):
    """R trained networks in evaluation mode."""

    device: torch.device

    def measured(self, batch: Batch, shared: bool) -> Mapping[str, Quantity]:
        """What a batch that all share says of each run: values ``(R, B, *)``."""

    def apart(self) -> Iterable[Task]:
        """The task of each run by itself."""


class Probe(Protocol):
    """An evaluation of trained networks."""

    def __call__(self, subject: Subject, data: Any) -> Iterable[Measured]:
        """Measure.

        Args:
            subject: the networks.
            data: a datamodule that is set up.
        """


class Evaluation:
    """Every metric of a split; ``at: 0`` evaluates untrained networks, which training does not record.

    Args:
        split: ``val`` or ``test``.

    Raises:
        ActlabError: for another split.
    """

    def __init__(self, split: str = "test") -> None:
        if split not in ("val", "test"):
            raise ActlabError(f"split {split!r} of an evaluation: give val or test")
        self.split = split

    def __call__(self, subject: Subject, data: Any) -> Iterator[Measured]:
        """Yield every metric."""
        means = Means()
        for batch in getattr(data, f"{self.split}_dataloader")():
            placed = tuple(tensor.to(subject.device) for tensor in batch)
            for name, quantity in subject.measured(placed, shared=True).items():
                means.add(name, quantity.mean(runs=True), quantity.weight(runs=True))
        for name, values in means.take_all().items():
            yield Measured(self.split, name, "", values)


class InputNoise:
    """Every metric of a split under uniform noise on the inputs, Unif[−a, a] (GELU §3.1, Fig 3).

    One draw an input element, scaled by the strength, is shared by strengths, units and seeds; inputs are not
    clipped afterwards.

    Args:
        strengths: the values of a, from 0.
        split: ``val`` or ``test``.

    Raises:
        ActlabError: for a negative strength or another split.
    """

    def __init__(self, strengths: Sequence[float], split: str = "test") -> None:
        if not strengths or min(strengths) < 0:
            raise ActlabError(f"strengths {list(strengths)} of input noise: give numbers from 0")
        if split not in ("val", "test"):
            raise ActlabError(f"split {split!r} of input noise: give val or test")
        self.strengths, self.split = tuple(strengths), split

    def __call__(self, subject: Subject, data: Any) -> Iterator[Measured]:
        """Yield every metric at every strength, with the condition ``noise=a``."""
        means = {a: Means() for a in self.strengths}
        number = 0
        for batch in getattr(data, f"{self.split}_dataloader")():
            x, *rest = (tensor.to(subject.device) for tensor in batch)
            here = Position((0,), 0, torch.arange(number, number + len(x), device=x.device))
            noise = 2 * uniform_at(here, "input noise", x.shape[1:]) - 1
            for a, mean in means.items():
                for name, quantity in subject.measured((x + a * noise.to(x.dtype), *rest), shared=True).items():
                    mean.add(name, quantity.mean(runs=True), quantity.weight(runs=True))
            number += len(x)
        for a, mean in means.items():
            for name, values in mean.take_all().items():
                yield Measured(self.split, name, f"noise={a:g}", values)
