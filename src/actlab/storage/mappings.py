"""YAML as nested values: of files, and of words of the command line."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import yaml

from actlab.errors import ActlabError, one_line
from actlab.storage.files import regular

DEEPEST = 50  # levels of nesting
MOST_VALUES = 100_000  # with what aliases repeat
# What PyYAML raises for values that do not fit their tag, such as the date 2020-99-99, and for deep nesting.
_UNREADABLE = (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


class _Loader(yaml.SafeLoader):
    """YAML that refuses a mapping with a key twice, of which PyYAML would keep the last silently."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Read one mapping.

        Raises:
            ActlabError: where a key of it has stood before.
        """
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ActlabError(
                    f"{self.name}, line {key.start_mark.line + 1}: a second {key.value!r}; keep one"
                )
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return node


def parse(text: str | IO[str]) -> Any:
    """The values in YAML; a few lines of aliases of aliases, or of themselves, are refused.

    Raises:
        ActlabError: when it is not YAML, is nested too deep or holds too much, or has a key twice.
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
    """How many values a node stands for, those that aliases repeat counted each time."""
    if depth > DEEPEST or known.get(id(node)) == 0:
        raise ValueError(f"values are nested deeper than {DEEPEST} levels")
    if id(node) not in known:
        known[id(node)] = 0  # until it is known: an alias of what it stands in never ends
        items = () if isinstance(node, yaml.ScalarNode) else node.value
        inner = itertools.chain.from_iterable(i if isinstance(i, tuple) else (i,) for i in items)
        known[id(node)] = 1 + sum(_size(n, known, depth + 1) for n in inner)
    if known[id(node)] > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")
    return known[id(node)]


def read_mapping(path: Path, piped: bool = False) -> dict[str, Any]:
    """The nested values of a YAML file.

    Args:
        path: of a regular file.
        piped: whether it may also be a pipe, which can be read once.

    Raises:
        ActlabError: when the file is not YAML, holds no mapping, or one of its mappings has a key twice.
    """
    try:
        with (path if piped and path.is_fifo() else regular(path)).open(encoding="utf-8") as file:
            values = parse(file)
    except OSError as error:
        raise ActlabError(f"{path} cannot be read as YAML: {one_line(error)}") from error
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise ActlabError(f"{path} holds no mapping of keys to values")
    return dict(values)
