"""Inverted dropout with masks from a random stream."""

from __future__ import annotations

from torch import Tensor, nn

from actlab.errors import ActlabError
from actlab.random.streams import Uniform
from actlab.validation import validated


class Dropout(nn.Module):
    """Inverted dropout: ``x · m / (1 − p)`` with ``m ~ Bernoulli(1 − p)``.

    Evaluation returns ``x``, the expectation. The masks come from a `Uniform` source, so a run
    draws the same masks alone or in a stack.

    Args:
        p: drop probability in [0, 1), or a tensor ``(R, 1)`` with one probability per run.
        setting: name of the schedule that scales ``p``.
    """

    @validated
    def __init__(self, p: float | Tensor, setting: str = "dropout") -> None:
        super().__init__()
        self.setting = setting
        self.p = _checked(p)  # not a buffer: casting the network must not round p
        self.probability = self.p  # current value: p times the scale
        self.uniform = Uniform()

    def set_scale(self, scale: float | Tensor) -> None:
        """Set the drop probability to the initial ``p`` times a factor.

        Args:
            scale: one factor, or one per run, float64 ``(R, 1)``.
        """
        probability = _checked(self.p * scale)

        # A tensor of an earlier call is overwritten, because a program
        # (`actlab.tasks.replay`) reads its memory. The initial tensor is never changed.
        current = self.probability
        is_initial = current is self.p
        if (
            isinstance(current, Tensor)
            and isinstance(probability, Tensor)
            and not is_initial
        ):
            current.copy_(probability, non_blocking=True)
        else:
            self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with dropout in training, ``x`` itself in evaluation."""
        if not self.training:
            return x
        if isinstance(self.probability, float) and self.probability == 0:
            return x

        # Move probabilities of runs to the device once.
        if isinstance(self.probability, Tensor) and self.probability.device != x.device:
            self.probability = self.probability.to(x.device)
        return x * self.uniform.keep(x, self.probability)

    def extra_repr(self) -> str:
        """Return the drop probability, for printing."""
        return f"p={self.p}"


def dropout_layers(p: float) -> list[nn.Module]:
    """Return a `Dropout` in a list, which is empty for a probability of 0."""
    return [Dropout(p)] if p else []


def _checked(p: float | Tensor) -> float | Tensor:
    """Return a drop probability in [0, 1), or raise an ActlabError."""
    low = high = p
    if isinstance(p, Tensor):
        low = float(p.min())
        high = float(p.max())

    if not 0 <= low <= high < 1:
        raise ActlabError(f"dropout: expected a number in [0, 1), got {p!r}")
    return p
