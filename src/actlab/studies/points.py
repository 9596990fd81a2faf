"""Grid points, as values that are hashed and compared by content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import AfterValidator, GetCoreSchemaHandler

from actlab.config.labels import label
from actlab.config.values import canonical, same


@dataclass(frozen=True, eq=False, repr=False)
class Point(Mapping[str, Any]):
    """Values by grid key.

    A point is a mapping that is hashed and compared by content, in any order of keys: 1 equals 1.0,
    True is not 1. It does not check keys or values, and it does not know the grid.

    >>> Point({"a": 1, "b": "elu"}) == Point({"b": "elu", "a": 1.0})
    True
    >>> Point({"a": 1}) == Point({"a": True})
    False
    """

    settings: Mapping[str, Any]
    # Equal for equal points; the key of a point in ``selection.json``
    text: str = field(init=False)

    def __post_init__(self) -> None:
        # A copy, because the point is hashed by its content
        object.__setattr__(self, "settings", dict(self.settings))
        object.__setattr__(self, "text", canonical(self.settings))

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> Any:
        """Let pydantic read a point from the mapping that a file has."""
        return AfterValidator(cls).__get_pydantic_core_schema__(dict[str, Any], handler)

    def __getitem__(self, key: str) -> Any:
        return self.settings[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.settings)

    def __len__(self) -> int:
        return len(self.settings)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Point):
            return self.text == other.text
        # Equal to a plain mapping too, such as an entry of a file
        return isinstance(other, Mapping) and self.text == canonical(other)

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return repr(self.settings)

    def __or__(self, other: Mapping[str, Any]) -> Point:
        return Point({**self, **other})

    def only(self, keys: Collection[str]) -> Point:
        """Return the point with some of its keys.

        >>> Point({"model.activation": "elu", "model.lr": 0.1}).only(["model.lr"])
        {'model.lr': 0.1}
        """
        return Point({key: value for key, value in self.items() if key in keys})

    def without(self, keys: Collection[str]) -> Point:
        """Return the point without some keys."""
        return self.only(self.keys() - set(keys))

    def matches(self, where: Mapping[str, Any]) -> bool:
        """Return whether the point has all values of ``where``; see `actlab.config.values.same`."""
        return all(
            key in self and same(self[key], value) for key, value in where.items()
        )

    def in_words(
        self, compare: str = "", text: Callable[[str, Any], str] | None = None
    ) -> str:
        """Return the point as text, with the compared value written without its key.

        ``text`` formats the value of a key so that values with equal labels can be distinguished.
        """
        names = short_names(self)
        words = []
        for key, value in self.items():
            # The value, with the key unless it is compared
            if text:
                word = text(key, value)
            else:
                word = label(value)
            if key != compare:
                word = f"{names[key]} {word}"
            words.append(word)
        return ", ".join(words)


def short_names(keys: Collection[str]) -> dict[str, str]:
    """Return for each dotted key its shortest ending that no other key has.

    >>> short_names(["model.lr", "model.network.dropout", "data.dropout"])
    {'model.lr': 'lr', 'model.network.dropout': 'network.dropout', 'data.dropout': 'data.dropout'}
    """
    # The number of keys with each ending, which begins at a dot
    numbers: Counter[str] = Counter()
    for key in set(keys):
        # Every key has each of its endings once
        numbers.update(_endings(key))

    names = {}
    for key in keys:
        names[key] = next(
            (ending for ending in _endings(key) if numbers[ending] == 1), key
        )
    return names


def _endings(key: str) -> Iterator[str]:
    """Yield the endings of a dotted key, such as ``optimizer.lr``, the shortest first."""
    parts = key.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[-length:])
