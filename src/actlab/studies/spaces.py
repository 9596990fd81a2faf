"""What a stage searches: ranges and choices of config keys and of arguments of activations."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from actlab.config.labels import label
from actlab.config.values import canonical, value_key
from actlab.errors import ActlabError
from actlab.storage.mappings import parse
from actlab.studies.points import Point

_RANGE = re.compile(r"\s*(?P<low>[^\s\[{].*?)\.\.(?P<high>.+?)\s*")
# Size of the ends of a range: exact in float64, and no difference of two overflows.
_MOST = 10**15
# Share of a range on its scale; a value as near to an end counts as the end.
NEAR = 0.02
SCRAMBLING = 0  # seed of the Sobol sequences of all searches
FORMS = "KEY=LOW..HIGH, such as slope=0.1..3, or KEY=[a, b, c]"


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included; whole numbers if both are.

    >>> print(Range(0.1, 3.0), Range(1, 4), Range(0.0, 1.0), sep="; ")
    0.1 to 3 on a log scale; whole numbers 1 to 4; 0 to 1
    """

    low: float
    high: float

    @property
    def is_whole(self) -> bool:
        """Whether the range has whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def log(self) -> bool:
        """Whether the scale is logarithmic: for positive numbers over a factor of 10 or more."""
        return self.low > 0 and self.high >= 10 * self.low

    def is_edge(self, value: float) -> bool:
        """Return whether a value lies within 2 % of an end of the range, on the range's scale.

        >>> [Range(0.1, 10.0).is_edge(value) for value in (0.109, 0.11, 9.0, 9.2)]
        [True, False, False, True]
        >>> Range(1, 4).is_edge(4)
        True
        """
        low, high = self.low, self.high
        if self.log:
            # Distances are measured on the scale that is searched
            low, value, high = math.log(low), math.log(value), math.log(high)
        return min(value - low, high - value) <= NEAR * (high - low)

    def at(self, share: float) -> float:
        """Return the number at a share of the range, from 0 to 1 on its scale.

        It has four digits, so that it can be cited and typed. Whole numbers have equal shares.

        >>> Range(0.1, 3.0).at(0.25), Range(0.12344, 1.0).at(0.0), Range(1, 4).at(0.99)
        (0.234, 0.12344, 4)
        """
        low, high = self.low, self.high
        if self.is_whole:  # half of a number's share lies below it
            low, high = low - 0.5, high + 0.5

        # Shares are equal on the scale of the range
        if self.log:
            value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            value = low + share * (high - low)

        # Round to four digits, or to a whole number
        if self.is_whole:
            rounded: float = round(value)
        else:
            rounded = float(f"{value:.4g}")
        # Rounding may leave the range
        return min(max(rounded, self.low), self.high)

    def __str__(self) -> str:
        kind = "whole numbers " if self.is_whole else ""
        scale = " on a log scale" if self.log else ""
        return f"{kind}{self.low:g} to {self.high:g}{scale}"


@dataclass(frozen=True)
class Choices:
    """Values to choose from: numbers, words, booleans or null.

    >>> print(Choices((1, "he", None)))
    one of 1, he, None
    """

    values: tuple[Any, ...]

    def is_edge(self, value: Any) -> bool:
        """Return whether a value is the lowest or the highest of several numbers.

        >>> Choices((3, 1, 2)).is_edge(1), Choices((3, 1, 2)).is_edge(2)
        (True, False)
        >>> Choices(("he", "lecun")).is_edge("he")
        False
        """
        for choice in self.values:
            if isinstance(choice, bool) or not isinstance(choice, int | float):
                return False
        lowest, highest = min(self.values), max(self.values)
        return lowest < highest and value in (lowest, highest)

    def at(self, share: float) -> Any:
        """Return the value at a share of the choices, at least 0 and less than 1.

        >>> Choices(("he", "lecun")).at(0.49), Choices(("he", "lecun")).at(0.5)
        ('he', 'lecun')
        """
        return self.values[int(share * len(self.values))]

    def __str__(self) -> str:
        return f"one of {', '.join(map(label, self.values))}"


Space = Range | Choices


def points(space: Mapping[str, Space], number: int) -> list[Point]:
    """Return the different settings among the first points of a Sobol sequence in a space.

    The sequence is scrambled, always in the same way, so more points begin with the same ones.
    An empty space has one setting.
    """
    if not space:
        return [Point({})]
    from scipy.stats import qmc  # imported lazily: it takes a second

    # The sequence is balanced for a power of two
    sequence = qmc.Sobol(len(space), rng=SCRAMBLING)
    rows = sequence.random_base2((number - 1).bit_length())[:number]

    # Several rows may give one setting
    settings: dict[Point, None] = {}
    for row in rows.tolist():
        values = {}
        for (key, key_space), share in zip(space.items(), row, strict=True):
            values[key] = key_space.at(share)
        settings[Point(values)] = None
    return [*settings]


@dataclass(frozen=True)
class Search:
    """What a stage searches at each grid point.

    Attributes:
        keys: spaces by dotted config key.
        arguments: spaces of the arguments of activations, by `actlab.config.values.value_key`.
        trials: number of settings at each grid point.
        as_given: whether the next stage also has these activations with their arguments as given.
    """

    keys: Mapping[str, Space]
    arguments: Mapping[str, Mapping[str, Space]]
    trials: int
    as_given: bool = False

    def spaces(self, activations: Iterable[Any]) -> list[dict[str, Space]]:
        """Return the spaces at a grid point with some activations: arguments, then as given."""
        spaces: list[dict[str, Space]] = []
        for activation in activations:
            arguments = self.arguments.get(value_key(activation))
            if arguments is not None:
                spaces.append({**arguments, **self.keys})
        # Without searched arguments, only config keys are searched
        if not spaces or self.as_given:
            spaces.append({**self.keys})
        return spaces


def parse_space(key: str, value: Any) -> Space:
    """Return the space of ``LOW..HIGH`` or ``[a, b, c]``, as text or as a list.

    Raises:
        ActlabError: for a malformed text, a range without numbers in it, or values that are not
            plain.

    >>> parse_space("slope", "0.1..3"), parse_space("model.optimizer.lr", "[1e-3, 1e-4]")
    (Range(low=0.1, high=3.0), Choices(values=(0.001, 0.0001)))
    """
    # Keys without a dot are arguments
    text = f"{key}={value}"
    if "." not in key and (not key.isidentifier() or key == "name"):
        raise ActlabError(
            f"search {text!r}: expected an argument of an activation, got {key!r}. Use {FORMS}."
        )

    # A range or a list
    if isinstance(value, str):
        ends = _RANGE.fullmatch(value)
        if ends:
            return _range(text, ends["low"], ends["high"])
        value = parse(value)
    return _choices(text, value)


def _range(text: str, low_text: str, high_text: str) -> Range:
    low, high = parse(low_text), parse(high_text)
    are_numbers = {type(low), type(high)} <= {int, float}
    if not are_numbers or not -_MOST <= low < high <= _MOST:
        raise ActlabError(
            "search: expected two numbers from -1e15 to 1e15, the lower one first, such as 0.1..3, "
            f"got {text[:80]!r}."
        )
    # One float makes a range of floats: 1..3.0
    if float in (type(low), type(high)):
        low, high = float(low), float(high)
    return Range(low, high)


def _choices(text: str, values: Any) -> Choices:
    # A single value leaves nothing to search
    if not isinstance(values, list) or len(values) < 2:
        raise ActlabError(
            f"search: expected {FORMS}, with two or more values, got {text!r}."
        )

    # Finite numbers, booleans, words or null
    for item in values:
        if isinstance(item, int | float):
            fits = abs(item) <= sys.float_info.max
        else:
            fits = isinstance(item, str | None)
        if not fits:
            raise ActlabError(
                f"search {text[:80]!r}: expected finite numbers or words, got {str(item)[:80]}."
            )

    # A repeated value would be drawn more often
    if len({canonical(item) for item in values}) < len(values):
        raise ActlabError(f"search {text!r}: a value occurs twice. Remove one of them.")
    return Choices(tuple(values))
