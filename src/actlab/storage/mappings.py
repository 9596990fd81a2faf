"""Read and write YAML; the one reader of files and of command-line values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import IO, Any

import yaml

from actlab.errors import ActlabError
from actlab.errors.messages import one_line
from actlab.storage.files import regular
from actlab.storage.spec import Spec

# Errors of PyYAML for values that do not match their tag, such as the date 2020-99-99, and for deep
# nesting.
_UNREADABLE = (
    yaml.YAMLError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
)


class _Loader(yaml.SafeLoader):
    """YAML loader that rejects duplicate keys; PyYAML itself silently keeps the last value."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ActlabError(
                    f"{self.name}, line {key.start_mark.line + 1}: duplicate key {key.value!r}; keep one"
                )
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return node


class _Dumper(yaml.SafeDumper):
    """YAML writer that quotes text which `_Loader` would read as a number."""


_Dumper.add_representer(Spec, lambda dumper, spec: dumper.represent_data(spec.plain))
# 1e-3 is a number, as in YAML 1.2 and for jsonargparse; PyYAML alone reads it as text.
for _resolver in (_Loader, _Dumper):
    _resolver.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )


def written(values: Any, **options: Any) -> str:
    """Return nested plain values as YAML, which `parse` reads back unchanged; ``options`` of ``yaml.dump``."""
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, **options)
    return text


def read_word(word: str, is_text: Callable[[], bool]) -> Any:
    """Return the value of a word of the command line, after ``KEY=`` or ``--KEY``.

    Null, a boolean, a number, a list or a mapping are read as YAML; any other word stays, without
    its quotes if it has any. A key that takes text (``is_text``, called where it matters) takes
    ``1.10`` as ``"1.10"``; only null stays null.

    >>> read_word("1.10", lambda: True), read_word("1.10", lambda: False), read_word("a #b", lambda: False)
    ('1.10', 1.1, 'a #b')
    """
    bare = word.strip()
    try:
        value = parse(word)
    except ActlabError:
        if bare.startswith(("[", "{")) or not is_text():
            raise
        return bare
    if isinstance(value, str):
        return value if bare.startswith(("'", '"')) else bare
    if value is None:
        return "" if not bare and is_text() else None
    nested = bare.startswith(("[", "{"))
    if nested and (isinstance(value, dict) or all(map(_reads_as_text, value))):
        return value
    if not is_text():
        return bare if isinstance(value, date) else value
    if not nested:
        return bare
    pairs = zip(value, parse(word, yaml.BaseLoader), strict=True)  # which reads each word as text
    return [typed if _reads_as_text(typed) else text for typed, text in pairs]


def _reads_as_text(value: Any) -> bool:
    """Whether a value in a list is text, or is no word: null, a mapping or a list."""
    return isinstance(value, str | list | dict | None)


def parse(text: str | IO[str], loader: Any = _Loader) -> Any:
    """Return the values in a YAML text or open file; reject a value that contains itself by an alias."""
    try:
        values = loader(text).get_single_data()
        json.dumps(values, default=str, skipkeys=True)  # raises for such a value
        return values
    except _UNREADABLE as error:
        name = "the value" if isinstance(text, str) else text.name
        raise ActlabError(f"{name} cannot be read as YAML: {one_line(error)}") from error


def read_mapping(path: Path, piped: bool = False) -> dict[str, Any]:
    """Return the nested values of a YAML file, which must hold a mapping.

    The path is of a regular file or, where ``piped``, perhaps of a pipe, which can be read only
    once.
    """
    try:
        with (path if piped and path.is_fifo() else regular(path)).open(encoding="utf-8") as file:
            values = parse(file)
    except OSError as error:
        raise ActlabError(f"{path} cannot be read as YAML: {one_line(error)}") from error
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise ActlabError(f"{path}: expected a YAML mapping of keys to values")
    return dict(values)
