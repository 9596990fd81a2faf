"""A config, resolved: its sections parsed to the types of their classes, with all defaults.

Equal sections are parsed once: parsing takes most of the time to build a small run. Nothing is
built here.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import cache, lru_cache
from operator import is_not
from typing import Any

import pytorch_lightning as pl
from jsonargparse import Namespace
from pytorch_lightning.cli import LightningArgumentParser

from actlab.config import metric_classes
from actlab.config.sections import FILES, SECTIONS, SEED
from actlab.config.signatures import (
    imported,
    inner_type,
    kinds,
    lacking,
    locate,
    parameters,
    takes_activation_name,
)
from actlab.errors import ActlabError
from actlab.errors.imports import importing
from actlab.errors.messages import in_words, short_repr
from actlab.storage.contents import texts
from actlab.storage.spec import Spec

Values = Mapping[str, Any]

_NOT_TEXT = (bool, int, float, list, dict, type(None))  # what the parser makes of text


def section(name: str, value: Any, elsewhere: tuple[str, ...] = ()) -> Namespace:
    """Return a copy of a parsed section of a config, without arguments set ``elsewhere``."""
    # The parsed section, if an equal one was parsed; the parser reads the files that it
    # names
    words = texts(value)
    files = [text for text in words if text.endswith(FILES)]
    stored: list[Any] = []
    if not files:
        with suppress(TypeError, ValueError):
            # Unsorted: the order of a schedule's steps matters.
            stored = _stored(json.dumps([name, value, *elsewhere], default=_spelled))

    # A class that the section names may have been imported again
    names = [text for text in words if "." in text and ":" not in text]
    if not stored or any(map(is_not, stored[1], map(imported, names))):
        parser = parser_of(name, elsewhere=elsewhere)
        # The parser replaces values in a config by its own objects, and may import the
        # classes
        with importing(f"the code of {name}"):
            parsed = parser.parse_object({name: copy.deepcopy(value)})[name]
        # In place, because `_stored` returns this list again
        stored[:] = with_text(value, parsed, name), [*map(imported, names)]

    copied: Namespace = copy.deepcopy(stored[0])
    return copied


@lru_cache(maxsize=64)
def _stored(key: str) -> list[Any]:
    """Return the list in which `section` stores the parsed section and the classes it names."""
    return []


def with_text(
    stated: Any,
    parsed: Any,
    location: str,
    annotation: Any = Any,
    linked: Sequence[str] = (),
) -> Any:
    """Return a parsed part of a config, with the text that the parser turned into other values.

    The parser turns text into numbers, booleans or null.
    """
    # Objects, argument by argument
    if isinstance(parsed, Namespace):
        values: Values = {}
        if isinstance(stated, Mapping):
            values = stated
        _set_arguments(values, parsed, location, linked)
        return parsed

    # Containers
    if type(parsed) is dict and isinstance(stated, Mapping):
        inner = inner_type(annotation)
        for key, item in parsed.items():
            parsed[key] = with_text(stated.get(key), item, f"{location}.{key}", inner)
        return parsed
    if type(parsed) is list and isinstance(stated, list) and len(parsed) == len(stated):
        inner = inner_type(annotation)
        return [
            with_text(*pair, location, inner)
            for pair in zip(stated, parsed, strict=True)
        ]

    allowed = kinds(annotation)

    # Words and JSON have no dates
    if isinstance(stated, date) and isinstance(parsed, str):
        if Any in allowed:
            return stated
        # YAML read the date, which jsonargparse turned into text
        name = location.rpartition(".")[2]
        message = f"{location}: expected {in_words(annotation)}, got the date {stated}"
        raise ActlabError(f'{message}. Put text in quotes: {name}: "{stated}".')

    # Text that the parser took for another type
    if (
        isinstance(stated, str)
        and type(parsed) in _NOT_TEXT
        and not stated.endswith(FILES)
    ):
        if allowed & {str, Any}:
            return stated
        message = f"{location}: expected {in_words(annotation)}, got the text {short_repr(stated)}"
        raise ActlabError(f"{message}. Remove the quotes.")
    return parsed


def _set_arguments(
    stated: Values, parsed: Namespace, location: str, linked: Sequence[str]
) -> None:
    path = parsed.get("class_path")
    # An object; its class decides about its arguments
    if path:
        owner = locate(path)
        stated = stated.get("init_args") or {}
        parsed = parsed.get("init_args") or Namespace()  # type: ignore[no-untyped-call]
    elif location == "trainer":
        owner = pl.Trainer
    else:
        return

    accepted = parameters(owner) or {}
    for key, value in vars(parsed).items():
        # The data determines the linked shapes later
        if key not in accepted or key in linked:
            continue
        argument = accepted[key]
        if value is None and argument.required and argument.untyped:
            # The parser sets it to None.
            raise lacking(path, key, location)
        text = with_text(
            stated.get(key, value), value, f"{location}.{key}", argument.annotation
        )
        setattr(parsed, key, text)


def typed(
    stated: Values, name: str, seed: int, linked: Sequence[str] = ()
) -> Namespace:
    """Return the parsed model or data section of a config, with the run's seed if it takes one.

    Shapes that are ``linked``, which the model gets from the data later, are set to their default,
    or to None without one.
    """
    parsed = section(name, stated[name], ("seed", *linked))

    # Arguments that other parts of the config determine
    accepted = parameters(complete(name, parsed)) or {}
    for shape in linked:
        if shape in accepted:
            argument = accepted[shape]
            default = None if argument.required else argument.default
            parsed[f"init_args.{shape}"] = default
    if "seed" in accepted:
        parsed["init_args.seed"] = seed
    return parsed


def complete(name: str, parsed: Namespace) -> type:
    """Return the class that a parsed section names; set values that have one meaning, in place."""
    kind = locate(parsed.class_path)
    if not inspect.isclass(kind):
        raise ActlabError(f"{name}: expected a class, got {parsed.class_path!r}.")
    if name == "model":
        activation = parsed.get("init_args.activation")
        if isinstance(activation, str | dict) and takes_activation_name(kind):
            # One spelling for equal activations, in records and identities
            parsed["init_args.activation"] = Spec.of(activation).plain
    sample_replaces = getattr(kind, "sample_replaces_dataset", False)
    if name != "model" and sample_replaces and parsed.init_args.get("sample"):
        # A place resolved earlier, such as the default of a config, may have set it.
        parsed["init_args.dataset"] = None
    return kind


def run_seed(value: bool | int | str) -> int:
    """Return the seed of a run as an integer: with Lightning's True a run could not be repeated."""
    # From the command line or an environment variable
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if type(value) is not int or not 0 <= value < 2**32:
        expected = f"a whole number from 0 to {2**32 - 1}"
        raise ActlabError(f"{SEED}: expected {expected}, got {short_repr(value)}.")
    return value


@cache
def parser_of(*names: str, elsewhere: tuple[str, ...] = ()) -> LightningArgumentParser:
    """Return the parser of some sections, which also instantiates their classes; see `section`."""
    parser = LightningArgumentParser(exit_on_error=False)
    for name in names:
        if name in SECTIONS:
            parser.add_subclass_arguments(
                SECTIONS[name], name, skip={*elsewhere}, fail_untyped=False
            )
        else:
            parser.add_lightning_class_args(pl.Trainer, name)
    return parser


def _spelled(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.plain
    raise TypeError


def resolved(
    stated: Values, trainer_defaults: Values, linked: Sequence[str]
) -> Namespace:
    """Return a config with the types of its classes, all defaults, and the seed of its parts.

    The model gets the ``linked`` shapes from the data.
    """
    metric_classes.check(stated)  # before the parser, which does not name the metric
    seed = run_seed(stated.get(SEED, 0))
    trainer = stated.get("trainer") or {}

    config: Namespace = Namespace()  # type: ignore[no-untyped-call]
    config[SEED] = seed
    config.trainer = section("trainer", trainer)
    config.model = typed(stated, "model", seed, linked)
    config.data = typed(stated, "data", seed)

    # Lightning adds callbacks to the callbacks of the config
    for name in trainer_defaults.keys() - {*trainer, "callbacks"}:
        config.trainer[name] = trainer_defaults[name]
    return config
