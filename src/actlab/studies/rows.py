"""Rows: the measured values of a run, and the names by which loggers know them."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from actlab.config.metrics import logged, metric_and_condition

if TYPE_CHECKING:
    import pandas as pd


class Row(NamedTuple):
    """One measured value.

    A row does not name its run; the folder that holds it does.

    Attributes:
        epoch: passes over the training data, perhaps a fraction.
        step: number of updates.
        split: the part of the data; empty if the name of the metric has no slash.
        metric: name without the split.
        condition: empty for metrics of training, ``layer=3`` for learnt parameters, ``one batch``
            for values of a batch, and what a probe measures, such as ``noise=0.5``.
        value: the number.
        loop: the loop that logged the value, ``train``, ``val`` or ``test``; empty for actlab's
            tasks, whose ``split`` says it.
    """

    epoch: float
    step: int
    split: str
    metric: str
    condition: str
    value: float
    loop: str = ""

    @property
    def name(self) -> str:
        """``split/metric``, or only the metric if there is no split."""
        if not self.split:
            return self.metric
        return f"{self.split}/{self.metric}"

    @property
    def logs(self) -> tuple[str, str]:
        """The name, and the loop that logged it; see `actlab.storage.series.names`."""
        return self.name, self.loop

    @property
    def logged(self) -> str:
        """The name with the condition, as loggers know it: ``activation/beta[layer=3]``."""
        return logged(self.name, self.condition)


def split_name(name: str) -> tuple[str, str, str]:
    """Split a logged name into split, metric and condition.

    The split of a name without a slash is empty.

    >>> split_name("val/loss"), split_name("activation/beta[layer=3]")
    (('val', 'loss', ''), ('activation', 'beta', 'layer=3'))
    """
    metric, condition = metric_and_condition(name)
    split, _, last = metric.rpartition("/")
    return split, last, condition


def frame_of(rows: Iterable[Row]) -> pd.DataFrame:
    """Return rows as a data frame, sorted by step and names.

    It has a column ``loop`` only if a row has a loop.
    """
    import pandas as pd  # takes 0.2 s to import, and only writers need it

    texts = dict.fromkeys(("split", "metric", "condition", "loop"), "str")
    types = {**texts, "epoch": "f8", "step": "i8", "value": "f8"}
    # Engines record in different orders; files do not depend on them
    ordered = sorted(rows, key=attrgetter("step", *texts))
    frame = pd.DataFrame(ordered, columns=Row._fields).astype(types)
    if not any(row.loop for row in ordered):
        frame = frame.drop(columns="loop")
    return frame
