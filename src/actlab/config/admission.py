"""What a record in a file may name: the one function that turns a training record into a config.

A checkpoint may come from a stranger, so its record is data and not the user's words. A record names registered
activations and classes of `PACKAGES` with the base class that the place requires, never a function or a file.
The user allows more by naming the same class, or by trusting the file.
"""

from __future__ import annotations

import collections.abc
import copy
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from torch.nn import Module

from actlab.config.keys import OBJECT, import_path
from actlab.config.sections import SECTIONS, SEED
from actlab.config.signatures import kinds, locate, parameters
from actlab.errors import ActlabError

PACKAGES = ("actlab", "torch.nn", "torch.optim", "torchmetrics", "pytorch_lightning")
# Modules of torchmetrics whose classes read no files and fetch no models by a name in their arguments.
METRICS = tuple(
    f"torchmetrics.{name}"
    for name in ("classification", "regression", "aggregation", "image.psnr", "image.ssim")
)
# Arguments of the Trainer that change results. No callback, logger, plugin, profiler or folder is ever taken
# from a record: they run code or write.
TRAINER = (
    *("precision", "max_epochs", "max_steps", "accumulate_grad_batches"),
    *("gradient_clip_val", "gradient_clip_algorithm", "val_check_interval", "check_val_every_n_epoch"),
    *(f"limit_{split}_batches" for split in ("train", "val", "test", "predict")),
    "deterministic",
)
WRITTEN = ("cache_dir",)  # folders that data write to; a record only names folders that are read
_WORD = re.compile(r"[\w+-]*")  # names no code: without dots, colons, slashes and brackets
_PLAIN = (bool, int, float, str, type(None))
_CONTAINERS = (
    *(dict, list, tuple, set, Mapping, collections.abc.MutableMapping),
    *(Iterable, Collection, collections.abc.Sequence),
)


class UntrustedError(ActlabError):
    """Raised for a record that names code which only the user may name.

    Args:
        key: dotted key of the value.
        value: what the record holds there.
        remedy: how the user allows it.
    """

    def __init__(self, key: str, value: Any, remedy: str) -> None:
        super().__init__(
            f"the checkpoint records {key} {value!r}, which would be imported and run. Without your word a "
            f"checkpoint names only registered activations and classes of {', '.join(PACKAGES)}. If you trust "
            f"the file: {remedy}"
        )
        self.key, self.value = key, value


def admitted(
    found: Any,
    remedy: str,
    trust: bool = False,
    said: Iterable[str] = (),
    only: Collection[str] = tuple(SECTIONS),
    given: Mapping[str, type] | None = None,
) -> dict[str, Any]:
    """Return a training record as a config that can be built.

    Args:
        found: the record, as read from a file.
        remedy: the command or call that trusts the file, for the error message.
        trust: whether the record may name any class, and files with activations.
        said: classes and activations that the user named; the record may name these too.
        only: the sections to return, ``model`` and ``data`` by default.
        given: classes that the user gave as objects, by the path under which the record names them.

    Returns:
        Nested values: seed, sections, and the arguments in `TRAINER`; without data that the record lacks.

    Raises:
        UntrustedError: if the record names other code.
        ActlabError: if the record is malformed.
    """
    if not isinstance(found, Mapping) or not isinstance(found.get("trainer", {}), Mapping):
        raise _malformed("model and data")
    reading = _Reading(remedy, trust, frozenset(said), given or {})
    config: dict[str, Any] = {SEED: found.get(SEED, 0)}
    for section in only:
        if section == "data" and section not in found:
            continue  # a plain Trainer wrote the checkpoint
        config[section] = reading.section(section, found.get(section))
    if trainer := {k: v for k, v in found.get("trainer", {}).items() if k in TRAINER and type(v) in _PLAIN}:
        config["trainer"] = trainer
    return config


@dataclass(frozen=True)
class _Reading:
    """A walk through a record along the signatures of the classes that it names; see `admitted`."""

    remedy: str
    trust: bool
    said: frozenset[str]
    given: Mapping[str, type]

    def section(self, name: str, value: Any) -> dict[str, Any]:
        """Return a copy of a section without the folders that it would write to."""
        arguments = value.get("init_args") or {} if isinstance(value, Mapping) else None
        if not isinstance(arguments, Mapping):
            raise _malformed(name)
        self.check({**value, "init_args": arguments}, SECTIONS[name], name)
        kept = {key: item for key, item in arguments.items() if name != "data" or key not in WRITTEN}
        return {"class_path": value["class_path"], "init_args": copy.deepcopy(kept)}

    def check(self, value: Any, wanted: Any, key: str) -> None:
        """Check a value at a place with the annotation ``wanted``.

        Raises:
            UntrustedError: if the value names code that the record may not name there.
            ActlabError: for a value that no config holds, such as a tensor.
        """
        if isinstance(value, Mapping):
            self._check_mapping(value, wanted, key)
        elif isinstance(value, list | tuple):
            for item in value:
                self.check(item, _inner(wanted), key)
        elif isinstance(value, str):
            self._check_text(value, wanted, key)
        elif type(value) not in _PLAIN:
            raise _malformed(key)

    def _check_mapping(self, value: Mapping[Any, Any], wanted: Any, key: str) -> None:
        built = OBJECT & value.keys()
        owner = self._class(value.get("class_path"), wanted, key) if built else wanted
        for name, item in value.items():
            if built and isinstance(item, Mapping):  # init_args, or dict_kwargs, which have no signature
                for argument, inner in item.items():
                    taken = _inner(owner, argument) if name == "init_args" else Any
                    self.check(inner, taken, f"{key}.{argument}")
            elif name != "class_path":
                self.check(item, _inner(owner, name), f"{key}.{name}")

    def _check_text(self, value: str, wanted: Any, key: str) -> None:
        """Check a text. Where more than a text may stand, the parser imports paths and reads YAML in texts.

        Where an object may stand, it takes a bare word for the name of any class that is imported.
        """
        options = kinds(wanted)
        is_word = _WORD.fullmatch(value) and not any(_is_callable(one) or _is_class(one) for one in options)
        if not (options <= {*_PLAIN} or is_word or _is_number(value)):
            self._class(value, wanted, key)

    def _class(self, path: Any, wanted: Any, key: str) -> Any:
        """Return the class at an import path, or Any for a file or an activation that the user allows.

        Raises:
            UntrustedError: if the record may not name it at this place.
        """
        if isinstance(path, str) and path in self.given:
            return self.given[path]
        if isinstance(path, str) and (self.trust or path in self.said):
            return locate(path) if all(part.isidentifier() for part in path.split(".")) else Any
        dotted = (import_path(path) or path) if isinstance(path, str) else ""
        bases = tuple(_classes(wanted)) or ((Module,) if _is_open(wanted) else ())  # as of an activation
        found = locate(dotted) if _is_in_packages(dotted) else None
        if not (inspect.isclass(found) and _may_be_built(found.__module__) and issubclass(found, bases)):
            raise UntrustedError(key, path, self.remedy)
        return found


def _malformed(key: str) -> ActlabError:
    return ActlabError(f"the checkpoint's record of {key} is malformed: give a config with -c FILE")


def _is_in_packages(module: str) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in PACKAGES)


def _may_be_built(module: str) -> bool:
    """Return whether a record may name the classes of a module."""
    in_metrics = any(f"{module}.".startswith(f"{one}.") for one in METRICS)
    return in_metrics if module.startswith("torchmetrics.") else _is_in_packages(module)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_open(wanted: Any) -> bool:
    """Return whether an annotation accepts anything, itself or as a value of a mapping."""
    return any(
        option is Any or (get_args(option)[-1:] == (Any,) and get_origin(option) in (dict, Mapping))
        for option in kinds(wanted)
    )


def _is_callable(option: Any) -> bool:
    return collections.abc.Callable in (option, get_origin(option))


def _is_class(option: Any) -> bool:
    """Return whether objects of a type have a class path: not plain values and containers."""
    plain = option in (Any, *_PLAIN, *_CONTAINERS)
    return get_origin(option) is None and inspect.isclass(option) and not plain


def _classes(wanted: Any) -> Iterator[type]:
    """Yield the base classes of the objects that an annotation accepts, also as results of a callable."""
    for option in kinds(wanted):
        if _is_callable(option):
            yield from _classes(get_args(option)[-1]) if get_args(option) else ()
        elif _is_class(option):
            yield option


def _inner(wanted: Any, name: str | None = None) -> Any:
    """Return the annotation of what a value holds: an argument of a class, or the items of a container."""
    found: list[Any] = []
    for option in kinds(wanted):
        origin = get_origin(option) or option
        if origin in _CONTAINERS:
            found += [a for a in get_args(option)[-1 if issubclass(origin, Mapping) else 0 :] if a is not ...]
        elif name is not None and inspect.isclass(option) and option not in (Any, *_PLAIN):
            known: Callable[..., Any] = option
            taken = (parameters(known) or {}).get(name)
            found.append(Any if taken is None else taken.annotation)
    return Union[tuple(found)] if found and Any not in found else Any  # noqa: UP007 - from a tuple
