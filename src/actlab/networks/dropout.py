"""Inverted dropout whose masks come from a stream."""

from __future__ import annotations

from torch import Tensor, nn

from actlab.errors import ActlabError
from actlab.streams import Uniform


class Dropout(nn.Module):
    """Inverted dropout: ``x · m / (1 − p)``, ``m ~ Bernoulli(1 − p)``; in evaluation ``x``, its expectation.

    The masks come from a `Uniform` source, so a run draws the same masks alone or in a stack.

    Args:
        p: drop probability in [0, 1), or a tensor of one a run, ``(R, 1)``.
        setting: the name of the schedule that moves it.

    Raises:
        ActlabError: when ``p`` is outside [0, 1).
    """

    def __init__(self, p: float | Tensor, setting: str = "dropout") -> None:
        super().__init__()
        self.setting = setting
        self.p = _checked(p)  # no buffer: a network's precision must not round it
        self.scale: float | Tensor = 1.0  # a schedule's factor of p, or one a run, (R, 1)
        self.uniform = Uniform()

    @property
    def probability(self) -> float | Tensor:
        """The drop probability now: p as given, times the factor of a schedule.

        Raises:
            ActlabError: when a schedule has moved it out of [0, 1).
        """
        if isinstance(self.scale, float) and self.scale == 1:
            return self.p
        return _checked(self.p * self.scale)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as ``x``."""
        if not self.training or (isinstance(self.scale, float) and self.scale == 0):
            return x
        if isinstance(self.p, Tensor) and self.p.device != x.device:
            self.p = self.p.to(x.device)
        return x * self.uniform.keep(x, self.probability)

    def extra_repr(self) -> str:
        """The drop probability, for printing."""
        return f"p={self.p}"


def _checked(p: float | Tensor) -> float | Tensor:
    low, high = (float(p.min()), float(p.max())) if isinstance(p, Tensor) else (p, p)
    if not 0 <= low <= high < 1:
        raise ActlabError(f"dropout {p!r} is not a drop probability: give a number in [0, 1)")
    return p
