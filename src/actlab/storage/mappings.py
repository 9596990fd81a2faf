"""Read and write YAML; the one reader of files and of command-line values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import IO, Any

import yaml

from actlab.errors import ActlabError
from actlab.errors.messages import one_line, short_repr
from actlab.storage.files import regular
from actlab.storage.spec import Spec

MOST = 1_000_000  # values of a text, with its aliases written out
# Errors of PyYAML for values that do not match their tag, such as the date 2020-99-99,
# and for deep nesting.
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
        # Nodes still have all keys; the mapping made of them has only the last
        node = super().compose_mapping_node(anchor)
        texts = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue

            if key.value in texts:
                raise ActlabError(
                    f"{self.name}, line {key.start_mark.line + 1}: duplicate key {key.value!r}. "
                    "Keep one."
                )
            texts.add(key.value)
        return node


class _Dumper(yaml.SafeDumper):
    """YAML writer that quotes text which `_Loader` would read as a number."""


_Dumper.add_representer(Spec, lambda dumper, spec: dumper.represent_data(spec.plain))
# 1e-3 is a number, as in YAML 1.2 and for jsonargparse; only PyYAML reads it as text.
for _resolver in (_Loader, _Dumper):
    _resolver.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )


def written(values: Any, **options: Any) -> str:
    """Return nested plain values as YAML, which `parse` reads back unchanged.

    ``options`` are options of ``yaml.dump``.
    """
    # In the order of the values, which people have chosen
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, **options)
    return text


def read_word(word: str, is_text: Callable[[], bool]) -> Any:
    """Return the value of a word of the command line, after ``KEY=`` or ``--KEY``.

    Null, a boolean, a number, a list or a mapping are read as YAML. Any other word stays text,
    without its quotes if it has any.

    Args:
        word: the word.
        is_text: whether the key takes text; called only if the value depends on it. Such a key
            takes ``1.10`` as ``"1.10"``; only null stays null.

    >>> read_word("1.10", lambda: True), read_word("1.10", lambda: False)
    ('1.10', 1.1)
    >>> read_word("a #b", lambda: False)
    'a #b'
    """
    # Without the spaces that a shell has kept
    bare = word.strip()
    is_nested = bare.startswith(("[", "{"))
    try:
        value = parse(word)
    except ActlabError:
        if is_nested or not is_text():
            raise
        return bare

    # Text and null
    if isinstance(value, str):
        is_quoted = bare.startswith(("'", '"'))
        return value if is_quoted else bare
    if value is None:
        return "" if not bare and is_text() else None

    # Lists and mappings
    if is_nested and (isinstance(value, dict) or all(map(_reads_as_text, value))):
        return value
    if is_nested and is_text():
        return _as_texts(word, value)

    # Single values
    if is_nested:
        return value
    if is_text() or isinstance(value, date):
        return bare
    return value


def _as_texts(word: str, values: list[Any]) -> list[Any]:
    """Return the values of a list with numbers, booleans and dates as they are written."""
    written_values = parse(word, yaml.BaseLoader)  # which reads each word as text
    texts = []
    for value, text in zip(values, written_values, strict=True):
        texts.append(value if _reads_as_text(value) else text)
    return texts


def _reads_as_text(value: Any) -> bool:
    """Return whether a value in a list is text, null, a mapping or a list."""
    return isinstance(value, str | list | dict | None)


def parse(text: str | IO[str], loader: Any = _Loader) -> Any:
    """Return the values in a YAML text or open file.

    Raises:
        ActlabError: the text is not YAML, a value contains itself by an alias, or there are more
            than `MOST` values with aliases written out.
    """
    try:
        values = loader(text).get_single_data()
        if _number_of_values(values, {}) > MOST:
            raise ValueError(f"its lines stand for more than {MOST} values")
        return values
    except _UNREADABLE as error:
        name = "the value" if isinstance(text, str) else text.name
        raise ActlabError(
            f"{name} cannot be read as YAML: {one_line(error)}"
        ) from error


def _number_of_values(value: Any, numbers: dict[int, int]) -> int:
    """Return the number of values in a value, with aliases written out.

    ``numbers`` has the numbers found so far, by the id of a value.
    """
    # Text and numbers count as one value
    if isinstance(value, dict):
        parts = [*value.values()]
    elif isinstance(value, list):
        parts = value
    else:
        return 1

    # Aliases are the same object, which is counted once; 0 marks a value that is being
    # counted
    if id(value) not in numbers:
        numbers[id(value)] = 0
        numbers[id(value)] = 1 + sum(_number_of_values(part, numbers) for part in parts)
    if numbers[id(value)] == 0:
        raise ValueError("a value contains itself")
    return numbers[id(value)]


def read_mapping(path: Path, piped: bool = False) -> dict[str, Any]:
    """Return the nested values of a YAML file, which must hold a mapping.

    The file is regular. If ``piped``, it may be a pipe, which can be read only once.
    """
    # `regular` would reject a pipe
    try:
        with (path if piped and path.is_fifo() else regular(path)).open(
            encoding="utf-8"
        ) as file:
            values = parse(file)
    except OSError as error:
        raise ActlabError(
            f"{path} cannot be read as YAML: {one_line(error)}"
        ) from error

    # An empty file is None, a list has no keys
    if not isinstance(values, Mapping) or not all(
        isinstance(key, str) for key in values
    ):
        raise ActlabError(
            f"{path}: expected a YAML mapping of keys to values, got {short_repr(values)}"
        )
    return dict(values)
