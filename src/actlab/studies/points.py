"""Grid points, as values that are hashed and compared by content."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import AfterValidator, GetCoreSchemaHandler

from actlab.config.values import canonical, label, same


@dataclass(frozen=True, eq=False, repr=False)
class Point(Mapping[str, Any]):
    """Values by grid key. Points are equal where these are, in any order: 1 equals 1.0, True is not 1.

    >>> Point({"a": 1, "b": "elu"}) == Point({"b": "elu", "a": 1.0}), Point({"a": 1}) == Point({"a": True})
    (True, False)
    """

    given: Mapping[str, Any]
    # Equal for equal points; the key of a point in ``selection.json``
    text: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "given", dict(self.given))
        object.__setattr__(self, "text", canonical(self.given))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Let pydantic read a point from the mapping that a file has."""
        return AfterValidator(cls).__get_pydantic_core_schema__(dict[str, Any], handler)

    def __getitem__(self, key: str) -> Any:
        return self.given[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.given)

    def __len__(self) -> int:
        return len(self.given)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Point):
            return self.text == other.text
        return isinstance(other, Mapping) and self.text == canonical(other)

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return repr(self.given)

    def __or__(self, other: Mapping[str, Any]) -> Point:
        return Point({**self, **other})

    def only(self, keys: Collection[str]) -> Point:
        """Return the point with some of its keys.

        >>> Point({"model.activation": "elu", "model.optimizer.lr": 0.1}).only(["model.optimizer.lr"])
        {'model.optimizer.lr': 0.1}
        """
        return Point({key: value for key, value in self.items() if key in keys})

    def without(self, keys: Collection[str]) -> Point:
        """Return the point without some keys."""
        return Point({key: value for key, value in self.items() if key not in keys})

    def matches(self, where: Mapping[str, Any]) -> bool:
        """Return whether the point has all values of ``where``, compared by `actlab.config.values.same`."""
        return all(key in self and same(self[key], value) for key, value in where.items())

    def in_words(self, compare: str = "", text: Callable[[str, Any], str] | None = None) -> str:
        """Return the point as text, with the compared value written without its key.

        ``text`` formats the value of a key so that values with equal labels can be distinguished.
        """
        names = short_names(self)
        texts = {key: text(key, value) if text else label(value) for key, value in self.items()}
        return ", ".join(
            texts[key] if key == compare else f"{names[key]} {texts[key]}" for key in self
        )


def short_names(keys: Collection[str]) -> dict[str, str]:
    """Return for each dotted key its shortest ending that no other key has.

    >>> short_names(["model.lr", "model.network.dropout", "data.dropout"])
    {'model.lr': 'lr', 'model.network.dropout': 'network.dropout', 'data.dropout': 'data.dropout'}
    """
    listed, names = set(keys), dict[str, str]()
    for key in keys:
        parts = key.split(".")
        endings = (".".join(parts[-n:]) for n in range(1, len(parts)))
        others = [f".{other}" for other in listed if other != key]
        unique = (end for end in endings if not any(other.endswith(f".{end}") for other in others))
        names[key] = next(unique, key)
    return names
