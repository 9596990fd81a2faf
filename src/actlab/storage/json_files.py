"""JSON files of plain values, whose types are checked when they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from actlab.errors.messages import reason
from actlab.storage.files import DamagedError, regular, write_atomically

Kind = TypeVar("Kind")


def read_json(path: Path, kind: type[Kind], remedy: str) -> Kind:
    """Return the values of a JSON file that have the type ``kind``.

    The type is a ``TypedDict`` or a dataclass, for example.

    Entries that ``kind`` does not declare stay, so that actlab can read files of other versions. A
    DamagedError ends with the ``remedy``.
    """
    try:
        values = json.loads(regular(path).read_text(encoding="utf-8"))
        if isinstance(values, dict):
            # Older versions wrote a digest, and a list as the content next to it
            digest = values.pop("digest", None)
            if digest is not None and values.keys() == {"content"}:
                values = values["content"]
        return checked(values, kind)
    except (ValueError, OSError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged ({reason(error)}). {remedy}") from error


def stored_json(path: Path, kind: type[Kind], remedy: str) -> Kind:
    """Return what `read_json` returns; an empty ``kind`` without the file."""
    if not path.exists():
        return kind()
    return read_json(path, kind, remedy)


def checked(values: Any, kind: type[Kind]) -> Kind:
    """Return plain values unchanged, or as the dataclass ``kind``, whose fields are their keys.

    Raises:
        ValueError: names the first value that does not have the type ``kind``.
    """
    # Its import takes 0.1 s, and not every command reads a record.
    from pydantic import ValidationError

    adapter = _type_adapter(cast(Any, kind))
    try:
        if is_dataclass(kind):
            # In JSON mode, lists become tuples and keys become fields
            record: Kind = adapter.validate_json(json.dumps(values), strict=True)
            return record
        adapter.validate_python(values, strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        # Shortened, because a damaged file may hold anything
        key = ".".join(str(part)[:60] for part in fault["loc"]) or "the whole"
        text = fault["msg"]
        message = f"{key}: {text[0].lower()}{text[1:]}"
        if fault["type"] != "missing":
            message += f", not {repr(fault['input'])[:60]}"
        raise ValueError(message) from error
    return values  # type: ignore[no-any-return]


@lru_cache
def _type_adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def write_json(path: Path, content: Any) -> None:
    """Write nested values as JSON, atomically.

    Other objects and half surrogate pairs become text.
    """
    # Indented, because people read and compare these files
    text = json.dumps(content, indent=1, default=_plain, ensure_ascii=False)
    write_atomically(path, text.encode(errors="replace") + b"\n")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def update_json(path: Path, entries: Mapping[str, Any], remedy: str) -> None:
    """Add entries to a JSON file, or replace them; nothing is written without entries."""
    if entries:
        write_json(path, {**stored_json(path, dict[str, Any], remedy), **entries})
