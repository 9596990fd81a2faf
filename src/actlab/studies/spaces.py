"""What a stage searches: ranges and choices of config keys and of arguments of activations."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actlab.config.values import canonical, label
from actlab.errors import ActlabError
from actlab.storage.mappings import parse

_RANGE = re.compile(r"\s*(?P<low>[^\s\[{].*?)\.\.(?P<high>.+?)\s*")
_WHOLE = re.compile(r"[+-]?\d+")
_MOST = 10**15  # size of the ends of a range: exact in float64, and no difference of two overflows
NEAR = 0.02  # of a range on its scale: as near to an end, a value counts as the end
FORMS = "write KEY=LOW..HIGH, such as slope=0.1..3, or KEY=[a, b, c]"


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole numbers if both are.

    >>> print(Range(0.1, 3.0), Range(1, 4), Range(0.0, 1.0), sep="; ")
    0.1 to 3 on a log scale; whole numbers 1 to 4; 0 to 1
    """

    low: float
    high: float

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are proposed."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def log(self) -> bool:
        """Whether numbers are proposed on a logarithmic scale: positive ones over a factor of 10 or more."""
        return self.low > 0 and self.high >= 10 * self.low

    @property
    def ends(self) -> tuple[float, float]:
        """Values of the space, to check it with."""
        return self.low, self.high

    def is_edge(self, value: float) -> bool:
        """Return whether a value lies at an end of the range, or within 2 % of it on the range's scale.

        >>> [Range(0.1, 10.0).is_edge(value) for value in (0.109, 0.11, 9.0, 9.2)], Range(1, 4).is_edge(4)
        ([True, False, False, True], True)
        """
        low, at, high = (math.log(x) if self.log else x for x in (self.low, value, self.high))
        return min(at - low, high - at) <= NEAR * (high - low)

    def rounded(self, value: float) -> float:
        """Return a proposal with four digits, as it is printed, so that it can be cited and typed.

        >>> Range(0.1, 3.0).rounded(0.21277034), Range(0.12344, 3.0).rounded(0.12344), Range(1, 9).rounded(7)
        (0.2128, 0.12344, 7)
        """
        return value if self.whole else min(max(float(f"{value:.4g}"), float(self.low)), float(self.high))

    def __str__(self) -> str:
        kind = "whole numbers " if self.whole else ""
        scale = " on a log scale" if self.log else ""
        return f"{kind}{self.low:g} to {self.high:g}{scale}"


@dataclass(frozen=True)
class Choices:
    """Values to choose from: numbers, words, booleans or null.

    >>> print(Choices((1, "he", None)))
    one of 1, he, None
    """

    values: tuple[Any, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values of the space, to check it with."""
        return self.values

    def is_edge(self, value: Any) -> bool:
        """Return whether a value is the lowest or the highest of several numbers.

        >>> Choices((3, 1, 2)).is_edge(1), Choices((3, 1, 2)).is_edge(2), Choices(("he", "lecun")).is_edge("he")
        (True, False, False)
        """
        numbers = [x for x in self.values if isinstance(x, int | float) and not isinstance(x, bool)]
        several = len(numbers) == len(self.values) and min(numbers) < max(numbers)
        return several and value in (min(numbers), max(numbers))

    def rounded(self, value: Any) -> Any:
        """Return a proposal as it is."""
        return value

    def __str__(self) -> str:
        return f"one of {', '.join(map(label, self.values))}"


Space = Range | Choices


@dataclass(frozen=True)
class Search:
    """What a stage searches at each grid point."""

    keys: Mapping[str, Space]  # by dotted config key
    arguments: Mapping[str, Mapping[str, Space]]  # of activations, by `actlab.config.values.value_key`
    trials: int  # at each grid point
    as_given: bool = False  # whether the next stage also has these activations with their arguments as given


def parse_space(key: str, value: Any) -> Space:
    """Return the space of ``LOW..HIGH`` or ``[a, b, c]``, as text or as a list.

    Raises:
        ActlabError: for a malformed text, a range without numbers in it, or values that are not plain.

    >>> parse_space("slope", "0.1..3"), parse_space("model.optimizer.lr", "[1e-3, 1e-4]")
    (Range(low=0.1, high=3.0), Choices(values=(0.001, 0.0001)))
    """
    text = f"{key}={value}"
    if "." not in key and (not key.isidentifier() or key == "name"):
        raise ActlabError(f"search {text!r}: {key!r} cannot be an argument of an activation; {FORMS}")
    if isinstance(value, str) and (ends := _RANGE.fullmatch(value)):
        return _range(text, ends["low"], ends["high"])
    return _choices(text, parse(value) if isinstance(value, str) else value)


def _range(text: str, *ends: str) -> Range:
    whole = all(_WHOLE.fullmatch(end.strip()) for end in ends)
    try:
        low, high = (int(end) if whole and len(end) < 20 else float(end) for end in ends)
    except ValueError:
        raise ActlabError(f"search {text!r}: the ends of a range are numbers; {FORMS}") from None
    if not -_MOST <= low < high <= _MOST:
        raise ActlabError(
            f"search {text[:80]!r}: give two numbers from -1e15 to 1e15, the lower one first, such as 0.1..3"
        )
    return Range(low, high)


def _choices(text: str, values: Any) -> Choices:
    if not isinstance(values, list) or len(values) < 2:
        raise ActlabError(f"search {text!r}: {FORMS}, with two values or more")
    for item in values:
        fits = (
            abs(item) <= sys.float_info.max if isinstance(item, int | float) else isinstance(item, str | None)
        )
        if not fits:
            raise ActlabError(
                f"search {text[:80]!r}: {str(item)[:80]} cannot be searched; give finite numbers or words"
            )
    if len({canonical(item) for item in values}) < len(values):
        raise ActlabError(f"search {text!r}: a value is given twice; give each value once")
    return Choices(tuple(values))
