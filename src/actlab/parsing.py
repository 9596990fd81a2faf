"""Parsers and configs kept: a study builds each run several times, and most runs differ in the seed alone.

Making a parser and parsing take most of the time that building a small run takes.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from jsonargparse import ArgumentParser, Namespace

from actlab.configs import FILES, SECTIONS, SEED
from actlab.contents import texts

_MOST = 64  # kept, the latest
_kept: dict[str, tuple[list[object], Namespace]] = {}
_parsers: dict[str, ArgumentParser] = {}
Parser = TypeVar("Parser", bound=ArgumentParser)


def copied(name: str, make: Callable[[], Parser]) -> Parser:
    """Return a copy, for the caller to change, of the parser that ``make`` returned for this name.

    Args:
        name: of the parser.
        make: the parser; called once in a process, so nothing in it may depend on a config.
    """
    if name not in _parsers:
        _parsers[name] = make()
    return copy.deepcopy(_parsers[name])  # type: ignore[return-value]


def parsed(config: Mapping[str, Any], seed: int | None, parse: Callable[[Any], Namespace]) -> Namespace:
    """A config as ``parse`` reads it, or as it has read one that differs in the seed alone.

    Only for plain values, and while the classes that they name are the same objects.

    Args:
        config: nested values.
        seed: of the run; the parser gives it to ``model`` and ``data`` where they take one.
        parse: of the whole config.
    """
    key = _key(config) if type(seed) is int and 0 <= seed < 2**32 else None
    if key is None:
        return parse(config)
    names = list(texts(config))  # the parser puts objects of its own into a config
    owners, before = [_class(name) for name in names], _kept.pop(key, None)
    if before is None or any(a is not b for a, b in zip(before[0], owners, strict=True)):
        found = parse(config)
        before = [_class(name) for name in names], copy.deepcopy(found)  # parsing may have imported them
    else:
        found = copy.deepcopy(before[1])
        for holder, name in _seeds(found):
            holder[name] = seed
    _kept[key] = before
    if len(_kept) > _MOST:
        del _kept[next(iter(_kept))]
    return found


def _key(config: Mapping[str, Any]) -> str | None:
    """What tells a config from others but for its seed; None where it holds objects, or names files to read."""
    if any(text.endswith(FILES) for text in texts(config)):
        return None
    told = {key: value for key, value in config.items() if key != SEED}
    for section in SECTIONS:
        part = told.get(section)
        arguments = part.get("init_args") if isinstance(part, Mapping) else None
        if isinstance(part, Mapping) and isinstance(arguments, Mapping):
            told[section] = {**part, "init_args": {k: v for k, v in arguments.items() if k != "seed"}}
    try:
        return json.dumps(told)  # in its own order: that of a schedule's moments counts
    except (TypeError, ValueError):
        return None


def _seeds(found: Namespace) -> Iterator[tuple[Namespace, str]]:
    """Where a parsed config holds the run's seed."""
    if SEED in found:
        yield found, SEED
    for section in SECTIONS:
        arguments = found[section].get("init_args") if found.get(section) is not None else None
        if arguments is not None and "seed" in arguments:
            yield arguments, "seed"


def _class(text: str) -> object:
    """The class that an import path names, where its module is imported; None for any other text."""
    module, _, name = text.rpartition(".")
    return getattr(sys.modules.get(module), name, None) if module else None
