"""Safe YAML parsing for files and command-line values."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import yaml

from actlab.errors import ActlabError, one_line
from actlab.storage.files import regular

DEEPEST = 50  # levels of nesting
MOST_VALUES = 100_000  # repeated aliases count each time
# Errors of PyYAML for values that do not match their tag, such as the date 2020-99-99, and for deep nesting.
_UNREADABLE = (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


class _Loader(yaml.SafeLoader):
    """YAML loader that rejects duplicate keys; PyYAML itself silently keeps the last value."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Read one mapping.

        Raises:
            ActlabError: if the mapping has a key twice.
        """
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ActlabError(
                    f"{self.name}, line {key.start_mark.line + 1}: duplicate key {key.value!r}; keep one"
                )
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return node


def parse(text: str | IO[str]) -> Any:
    """Return the values in a YAML text or open file.

    Nested aliases can expand to a huge structure, and recursive aliases to an infinite one; both are rejected.

    Raises:
        ActlabError: if the text is not YAML, is nested deeper than `DEEPEST`, holds more than `MOST_VALUES`
            values or has a duplicate key.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _size(node, {}, 0)
        return loader.construct_document(node)
    except _UNREADABLE as error:
        name = "the value" if isinstance(text, str) else text.name
        raise ActlabError(f"{name} cannot be read as YAML: {one_line(error)}") from error


def _size(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    """Return the number of values below a node; repeated aliases count each time."""
    if depth > DEEPEST or known.get(id(node)) == 0:
        raise ValueError(f"values are nested deeper than {DEEPEST} levels")
    if id(node) not in known:
        known[id(node)] = 0  # marks a node in progress: an alias to a parent would never end
        items = () if isinstance(node, yaml.ScalarNode) else node.value
        inner = itertools.chain.from_iterable(i if isinstance(i, tuple) else (i,) for i in items)
        known[id(node)] = 1 + sum(_size(n, known, depth + 1) for n in inner)
    if known[id(node)] > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")
    return known[id(node)]


def read_mapping(path: Path, piped: bool = False) -> dict[str, Any]:
    """Return the nested values of a YAML file.

    Args:
        path: path of a regular file.
        piped: whether the path may also be a pipe, which can be read only once.

    Raises:
        ActlabError: if the file cannot be read, is not YAML, does not hold a mapping or has a duplicate key.
    """
    try:
        with (path if piped and path.is_fifo() else regular(path)).open(encoding="utf-8") as file:
            values = parse(file)
    except OSError as error:
        raise ActlabError(f"{path} cannot be read as YAML: {one_line(error)}") from error
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise ActlabError(f"{path}: expected a YAML mapping of keys to values")
    return dict(values)
