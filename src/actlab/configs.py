"""A config's keys, checked before anything is built: each must be one that its class takes."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import pytorch_lightning as pl
from jsonargparse import ArgumentError, ArgumentParser
from pytorch_lightning.cli import LightningCLI

from actlab.errors import ActlabError, unknown
from actlab.signatures import ANY_CLASS, NO_CLASS, Taken, Wanted, find, name_of, parameters

SEED = "seed_everything"
SHAPES = ("num_classes", "input_shape")  # of the model: what the config leaves out comes from the data
SECTIONS = {"model": pl.LightningModule, "data": pl.LightningDataModule}
# LightningCLI's own keys for what actlab's tasks take as arguments; they would replace those.
MOVED = {"optimizer": "model.optimizer", "lr_scheduler": "model.scheduler"}
SPEC = ("class_path", "init_args", "dict_kwargs")
FILES = (".yaml", ".yml", ".json")
_FOLLOWS_SEED = ("model.seed", "data.seed")


class Node(NamedTuple):
    """A part of a config that becomes an object: ``owner(**arguments)``.

    Args:
        where: its dotted key, such as ``model.network``.
        owner: the class or function, as the config writes it.
        arguments: what the config sets.
        takes: what a config may set.
        passed: what the caller of a factory gives; None: unknown, and so is what the config must give.
    """

    where: str
    owner: str
    arguments: Mapping[str, Any]
    takes: Mapping[str, Taken]
    passed: tuple[str, ...] | None


def top_level(command: str | None = None) -> tuple[str, ...]:
    """The keys at the top of a config, with the arguments of a command such as ``fit``."""
    return (SEED, "trainer", *SECTIONS, *(arguments_of(command) if command else ()))


@cache
def arguments_of(command: str) -> tuple[str, ...]:
    """The arguments of a command that are words or truths, such as ``ckpt_path`` and ``verbose``."""
    skipped = {"self", *LightningCLI.subcommands()[command]}
    return tuple(
        key for key in inspect.signature(getattr(pl.Trainer, command)).parameters if key not in skipped
    )


def check(config: Mapping[str, Any], command: str | None = None) -> None:
    """Check every key of a config, whether it comes from files, the command line or a study.

    Args:
        config: nested values.
        command: what runs it, such as ``fit``; None when it is only built.

    Raises:
        ActlabError: for the first key that its class does not take or that a config cannot set, for a
            ``class_path`` that does not name a fitting class, and for a required argument that is missing.
    """
    for key, value in config.items():
        if key in MOVED and value is not None:
            raise ActlabError(
                f"{key!r} at the top level would replace the model's own: give {MOVED[key]} "
                "(in a model of your own, configure_optimizers makes it)"
            )
        if key not in top_level(command) and key not in MOVED:
            raise unknown("config key", str(key), top_level(command), "At the top level of a config.")
        words = key in ("ckpt_path", *top_level(), *MOVED)
        if not words and value not in (None, True, False):
            raise ActlabError(f"{key} {value!r}: give true, false or null")
    if not isinstance(trainer := config.get("trainer", {}), Mapping) and not _is_file(trainer):
        given = "null" if trainer is None else repr(trainer)
        raise ActlabError(
            f"trainer {given}: give a mapping of arguments of Lightning's Trainer, or leave it out"
        )
    for section in SECTIONS:
        if (value := config.get(section)) is None:
            raise ActlabError(
                f"no {section} is given: name its class in a config (-c FILE) or as --{section} CLASS"
            )
        if not isinstance(value, Mapping | str):
            raise ActlabError(f"{section} {value!r}: give a class_path with its init_args")
    for node in nodes(config):
        _check_node(node)


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and value.endswith(FILES)


def _check_node(node: Node) -> None:
    """Check the arguments of one node against what its owner takes and needs."""
    settable = [name for name in node.takes if f"{node.where}.{name}" not in _FOLLOWS_SEED]
    for name, value in node.arguments.items():
        key = f"{node.where}.{name}"
        if node.passed and name in node.passed:
            raise ActlabError(f"{key} cannot be set: {node.owner} is given its {name!r} when it is built")
        if name not in node.takes:
            raise unknown("config key", str(name), settable, f"In {node.owner}.")
        if key in _FOLLOWS_SEED and value is not None:
            raise ActlabError(f"{key} cannot be set: it follows {SEED}; give that")
    for name in settable if node.passed is not None else ():
        linked = node.where == "model" and name in SHAPES
        if node.takes[name].required and not linked and name not in node.arguments:
            raise ActlabError(f"{node.owner} needs {name!r}: give {node.where}.{name}")


def nodes(config: Mapping[str, Any]) -> Iterator[Node]:
    """Every part of a config that becomes an object, outer ones first.

    Raises:
        ActlabError: for a ``class_path`` that does not name a fitting class.
    """
    trainer = Taken(None, pl.Trainer, Wanted((pl.Trainer,)))
    yield from _nodes("trainer", config.get("trainer"), trainer)
    for section, kind in SECTIONS.items():
        yield from _nodes(section, config.get(section), Taken(None, None, Wanted((kind,), factory=True)))


def _nodes(where: str, value: Any, place: Taken) -> Iterator[Node]:
    """The nodes in a value at a place of a config; none where no class is wanted or a value is a file."""
    if isinstance(value, list):
        for item in value:
            yield from _nodes(where, item, place)
        return
    if isinstance(value, str) and place.wanted.factory and not _is_file(value):
        value = {"class_path": value}
    if not isinstance(value, Mapping) or place.wanted == NO_CLASS:
        return
    node = _node(where, value, place)
    if node is None:
        return
    yield node
    for name, argument in node.arguments.items():
        if name in node.takes:
            yield from _nodes(f"{where}.{name}", argument, node.takes[name])


def _node(where: str, value: Mapping[str, Any], place: Taken) -> Node | None:
    """The node that a mapping describes; None where its class or what that takes cannot be known."""
    path = value.get("class_path")
    if _is_file(path):
        return None
    owner = _owner(where, value, place)
    takes = parameters(owner) if owner is not None else None
    if takes is None:
        return None
    arguments = (value.get("init_args") or {}) if {"class_path", "init_args"} & value.keys() else value
    if not isinstance(arguments, Mapping):
        raise ActlabError(f"{where}.init_args must map the names of arguments to values, not be {arguments!r}")
    passed = None
    if place.wanted.passed is not None:
        passed = tuple(name for name in takes if takes[name].positional)[: place.wanted.passed]
    settable = {name: taken for name, taken in takes.items() if name not in (passed or ())}
    return Node(where, str(path or name_of(owner)), arguments, settable, passed)


def _owner(where: str, value: Mapping[str, Any], place: Taken) -> Any:
    """The class or function that a mapping names, or that stands there by default; None where there is none."""
    path = value.get("class_path")
    if path is None:
        if place.wanted.factory and not inspect.isclass(place.default):
            raise ActlabError(f"{where} has arguments but no class: give its class path first")
        return place.default if inspect.isclass(place.default) else None
    found = find(str(path), place.wanted.kinds, where)
    if where in SECTIONS and not inspect.isclass(found):
        raise ActlabError(f"{where} must name a class, which {path!r} is not")
    for key in value:
        if key not in SPEC:
            raise ActlabError(f"{where}.{key} stands beside class_path: put it under init_args")
    return found


def gives(config: Mapping[str, Any], name: str) -> bool:
    """Whether a config sets an argument of the model."""
    model = config.get("model")
    if not isinstance(model, Mapping):
        return False
    return (model.get("init_args") or {}).get(name) is not None


def class_in(config: Mapping[str, Any], section: str) -> Any:
    """The class that a section of a config names; None where the config does not name one that can be found."""
    value = config.get(section)
    path = value.get("class_path") if isinstance(value, Mapping) else value
    if not isinstance(path, str) or _is_file(path):
        return None
    with suppress(ActlabError):  # `check` raises it
        return find(path, (SECTIONS[section],), section)
    return None


def linked_shapes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The shapes that the model takes, as far as that can be known, and the config leaves to the data."""
    model = class_in(config, "model")
    known = None if model is None else parameters(model)
    return tuple(n for n in SHAPES if (known is None or n in known) and not gives(config, n))


def slices_batches(config: Mapping[str, Any]) -> bool:
    """Whether the loaders of a config's data give each device its part of a batch, as the class declares.

    Then Lightning's distributed sampler is off by default; for all other data it is on, as in Lightning.
    """
    return bool(getattr(class_in(config, "data"), "slices_batches", False))


def explain(config: Mapping[str, Any]) -> ActlabError | None:
    """An error for the first value that is not of its parameter's type; None when all of them are."""
    for node in nodes(config):
        for name, value in node.arguments.items():
            if name in node.takes and not _fits(value, node.takes[name]):
                type_ = inspect.formatannotation(node.takes[name].annotation).replace("typing.", "")
                return ActlabError(f"{node.where}.{name} {value!r}: {node.owner} wants {type_}")
    return None


def _fits(value: Any, place: Taken) -> bool:
    """Whether jsonargparse accepts a plain value for a parameter."""
    nested = bool(place.wanted.kinds) and isinstance(value, Mapping | list)
    if nested or place.wanted.factory or place.wanted == ANY_CLASS or value == place.default:
        return True
    parser = ArgumentParser(exit_on_error=False)
    with suppress(ValueError):  # an annotation that jsonargparse cannot check
        parser.add_argument("--value", type=place.annotation)
        try:
            parser.parse_object({"value": copy.deepcopy(value)})  # it would put its own objects into a dict
        except ArgumentError:
            return False
    return True
