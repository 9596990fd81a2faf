"""Sections of configs as the types of their classes read them, each parsed once.

Parsing takes most of the time that building a small run takes, and the runs of a study share their Trainer and
data, those of a stack their model too.
"""

from __future__ import annotations

import copy
import inspect
import json
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytorch_lightning as pl
from jsonargparse import Namespace
from pytorch_lightning.cli import LightningArgumentParser

from actlab.config.sections import FILES, SECTIONS, SEED, linked_shapes
from actlab.config.signatures import locate, parameters
from actlab.errors import ActlabError
from actlab.storage.contents import texts

_MOST = 64  # kept, the latest
_kept: dict[str, tuple[list[object], Namespace]] = {}


def section(name: str, value: Any, elsewhere: tuple[str, ...] = ()) -> Namespace:
    """A section of a config, typed; for the caller to change.

    One that was parsed before is taken from there, where it holds plain values alone and the classes that they
    name are the same objects.

    Args:
        name: ``trainer``, ``model`` or ``data``.
        value: as the config has it.
        elsewhere: the arguments of its class that come from elsewhere.

    Raises:
        ActlabError: for an argument that a class needs.
        ArgumentError: for a value that is not of its type.
    """
    parser = parser_of(name, elsewhere=elsewhere)
    key, names = _key(name, value, elsewhere), list(texts(value))
    kept = _kept.pop(key, None) if key is not None else None
    if kept is None or any(a is not b for a, b in zip(kept[0], map(_class, names), strict=True)):
        # The parser puts objects of its own into a config, and may import the classes.
        found = parser.parse_object({name: copy.deepcopy(value)})[name]
        _check_needed(name, found)
        kept = [_class(text) for text in names], found
    if key is not None:
        _kept[key] = kept
        if len(_kept) > _MOST:
            del _kept[next(iter(_kept))]
    return copy.deepcopy(kept[1])


def _check_needed(where: str, value: Any) -> None:
    """Check that arguments without type and default are given, for which the parser puts None."""
    for part in value if isinstance(value, list) else ():
        _check_needed(where, part)
    if not isinstance(value, Namespace):
        return
    path = value.get("class_path")
    known = (parameters(locate(path)) or {}) if path else {}
    arguments = value.get("init_args") if path else value
    for key, argument in vars(arguments).items() if arguments else ():
        if key in known and known[key].untyped and known[key].required and argument is None:
            raise ActlabError(f"{path} needs {key!r}: give {where}.{key}")
        _check_needed(f"{where}.{key}", argument)


def typed(given: Mapping[str, Any], name: str, seed: int) -> Namespace:
    """The model or data of a config, typed, with the seed of a run where its class takes one.

    A shape that the data will give the model has its default, or is None where it has none.

    Raises:
        ActlabError: for what is no class.
        ArgumentError: for a value that is not of its type.
    """
    shapes = linked_shapes(given) if name == "model" else ()
    found = section(name, given[name], ("seed", *shapes))
    if not inspect.isclass(locate(found.class_path)):
        raise ActlabError(f"{name} must name a class, which {found.class_path!r} is not")
    known = parameters(locate(found.class_path)) or {}
    for shape in (shape for shape in shapes if shape in known):
        found[f"init_args.{shape}"] = None if known[shape].required else known[shape].default
    if "seed" in known:
        found["init_args.seed"] = seed
    return found


def run_seed(value: bool | int | str) -> int:
    """The seed of a run; a word of the command line is a text.

    Raises:
        ActlabError: for a value that is no seed; True and False, which Lightning takes, say none that a second
            run could be given.
    """
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if type(value) is not int or not 0 <= value < 2**32:
        raise ActlabError(f"{SEED} {value!r}: give a whole number from 0 to {2**32 - 1}")
    return value


@cache
def parser_of(*names: str, elsewhere: tuple[str, ...] = ()) -> LightningArgumentParser:
    """The parser of some sections, which builds them too; see `section`."""
    parser = LightningArgumentParser(exit_on_error=False)
    for name in names:
        if name in SECTIONS:
            parser.add_subclass_arguments(SECTIONS[name], name, skip={*elsewhere}, fail_untyped=False)
        else:
            parser.add_lightning_class_args(pl.Trainer, name)
    return parser


def _key(name: str, value: Any, elsewhere: tuple[str, ...]) -> str | None:
    """What distinguishes a section from others; None where it holds objects, or names files to read."""
    if any(text.endswith(FILES) for text in texts(value)):
        return None
    try:
        return json.dumps([name, value, *elsewhere])  # in its own order: that of a schedule's moments counts
    except (TypeError, ValueError):
        return None


def _class(text: str) -> object:
    """The class that an import path names, where its module is imported; None for any other text."""
    module, _, name = text.rpartition(".")
    return getattr(sys.modules.get(module), name, None) if module else None
