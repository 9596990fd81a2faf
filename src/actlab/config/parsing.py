"""Parse the sections of configs to the types of their classes.

Equal sections are parsed once: parsing takes most of the time to build a small run.
"""

from __future__ import annotations

import copy
import inspect
import json
import operator
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache, lru_cache
from inspect import formatannotation
from typing import Any

import pytorch_lightning as pl
from jsonargparse import Namespace
from pytorch_lightning.cli import LightningArgumentParser

from actlab.config.sections import FILES, SECTIONS, SEED, linked_shapes
from actlab.config.signatures import (
    imported,
    inner_type,
    kinds,
    lacking,
    locate,
    parameters,
    takes_activation_name,
)
from actlab.errors import ActlabError, importing
from actlab.storage.contents import texts
from actlab.storage.spec import Spec

_NOT_TEXT = (bool, int, float, list, dict, type(None))  # what the parser makes of text


def section(name: str, value: Any, elsewhere: tuple[str, ...] = ()) -> Namespace:
    """Return a copy of a parsed section of a config, without arguments that are set ``elsewhere``."""
    parser = parser_of(name, elsewhere=elsewhere)
    named = texts(value)
    key = _key(name, value, elsewhere, named)
    names = [text for text in named if ":" not in text]  # import paths, perhaps
    kept = _kept(key) if key is not None else []
    # A class that the section names may have been imported again.
    if not kept or any(map(operator.is_not, kept[0], map(imported, names))):
        # The parser replaces values in a config by its own objects, and may import the classes.
        with importing(f"the code of {name}"):
            parsed = parser.parse_object({name: copy.deepcopy(value)})[name]
        parsed = with_text(value, parsed, name)
        kept[:] = [*map(imported, names)], parsed
    copied: Namespace = copy.deepcopy(kept[1])
    return copied


@lru_cache(maxsize=64)
def _kept(key: str) -> list[Any]:
    """Return the list in which `section` keeps the classes that a section names, and the parsed section."""
    return []


def with_text(given: Any, parsed: Any, where: str, annotation: Any = Any, linked: Sequence[str] = ()) -> Any:
    """Return a parsed part of a config with the text that the parser turned into numbers, booleans or null."""
    allowed = kinds(annotation)
    if isinstance(parsed, Namespace):
        _set_arguments(given if isinstance(given, Mapping) else {}, parsed, where, linked)
    elif type(parsed) is dict and isinstance(given, Mapping):
        inner = inner_type(annotation)
        return {k: with_text(given.get(k), item, f"{where}.{k}", inner) for k, item in parsed.items()}
    elif type(parsed) is list and isinstance(given, list) and len(parsed) == len(given):
        inner = inner_type(annotation)
        return [with_text(*pair, where, inner) for pair in zip(given, parsed, strict=True)]
    elif isinstance(given, date) and isinstance(parsed, str):  # words and JSON have no dates
        if Any in allowed:
            return given
        name = where.rpartition(".")[2]
        raise ActlabError(
            f'{where} {given} is a date, but text is expected. Put text in quotes: {name}: "{given}"'
        )
    elif isinstance(given, str) and type(parsed) in _NOT_TEXT and not given.endswith(FILES):
        if allowed & {str, Any}:
            return given
        words = ("null" if kind is type(None) else formatannotation(kind) for kind in allowed)
        names = " or ".join(sorted(words))
        raise ActlabError(f"{where} {given!r} is text, but {names} is expected: give this type, without quotes")
    return parsed


def _set_arguments(given: Mapping[str, Any], parsed: Namespace, where: str, linked: Sequence[str]) -> None:
    owner, path, arguments = pl.Trainer if where == "trainer" else None, parsed.get("class_path"), parsed
    if path:
        owner, given, arguments = locate(path), given.get("init_args") or {}, parsed.get("init_args")
    known = (parameters(owner) or {}) if owner else {}
    for key, value in vars(arguments).items() if arguments else ():
        if key not in known or key in linked:
            continue
        if value is None and known[key].required and known[key].untyped:  # the parser sets it to None
            raise lacking(path, key, where)
        kept = with_text(given.get(key, value), value, f"{where}.{key}", known[key].annotation)
        setattr(arguments, key, kept)


def typed(given: Mapping[str, Any], name: str, seed: int) -> Namespace:
    """Return the parsed model or data section of a config, with the run's seed if its class has a ``seed``.

    A shape that the model gets from the data later is set to its default, or to None if it has no default.
    """
    shapes = linked_shapes(given) if name == "model" else ()
    parsed = section(name, given[name], ("seed", *shapes))
    known = parameters(complete(name, parsed)) or {}
    for shape in (shape for shape in shapes if shape in known):
        parsed[f"init_args.{shape}"] = None if known[shape].required else known[shape].default
    if "seed" in known:
        parsed["init_args.seed"] = seed
    return parsed


def complete(name: str, parsed: Namespace) -> type:
    """Return the class that a parsed section names, and set values that have one meaning, in place."""
    if not inspect.isclass(kind := locate(parsed.class_path)):
        raise ActlabError(f"{name} must name a class, got {parsed.class_path!r}")
    activation = parsed.get("init_args.activation") if name == "model" else None
    if isinstance(activation, str | dict) and takes_activation_name(kind):
        parsed["init_args.activation"] = Spec.of(activation).plain
    if getattr(kind, "sample_replaces_dataset", False) and parsed.init_args.get("sample"):
        parsed["init_args.dataset"] = None  # of an earlier place, such as the default of a config
    return kind


def run_seed(value: bool | int | str) -> int:
    """Return the seed of a run as an integer: a run could not be repeated with Lightning's True and False."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if type(value) is not int or not 0 <= value < 2**32:
        raise ActlabError(f"{SEED} {value!r}: give a whole number from 0 to {2**32 - 1}")
    return value


@cache
def parser_of(*names: str, elsewhere: tuple[str, ...] = ()) -> LightningArgumentParser:
    """Return the parser of the given sections, which also instantiates their classes; see `section`."""
    parser = LightningArgumentParser(exit_on_error=False)
    for name in names:
        if name in SECTIONS:
            parser.add_subclass_arguments(SECTIONS[name], name, skip={*elsewhere}, fail_untyped=False)
        else:
            parser.add_lightning_class_args(pl.Trainer, name)
    return parser


def _key(name: str, value: Any, elsewhere: tuple[str, ...], named: Sequence[str]) -> str | None:
    if [text for text in named if text.endswith(FILES)]:  # the parser reads them
        return None
    try:
        # Unsorted: the order of a schedule's steps matters.
        return json.dumps([name, value, *elsewhere], default=_spelled)
    except (TypeError, ValueError):
        return None


def _spelled(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.plain
    raise TypeError
