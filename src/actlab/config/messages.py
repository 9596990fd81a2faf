"""Convert errors of other libraries and third-party classes about bad input to one line."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from typing import Any, get_args

import pytorch_lightning as pl
from jsonargparse import ArgumentError, ArgumentParser
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.cli import LightningCLI
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from actlab.config import sections
from actlab.config.class_paths import class_of
from actlab.config.paths import SPEC
from actlab.config.signatures import (
    classes_in,
    find,
    inner_type,
    is_callable,
    kinds,
    lacking,
    module_class,
    parameters,
)
from actlab.errors import ActlabError
from actlab.errors.messages import (
    described,
    in_words,
    not_a_class,
    one_line,
    short_repr,
    unknown,
)

# Of pytorch_lightning.cli
_FACTORIES = {
    Optimizer: "OptimizerCallable",
    LRScheduler: "LRSchedulerCallable",
}
# Of Lightning: the module that restores checkpoints, and the function that restores
# data loaders.
_RESTORING = (
    "pytorch_lightning.trainer.connectors.checkpoint_connector",
    "_load_combined_loader_states",
)


@contextmanager
def one_line_errors(stated: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Convert errors of the parser and of Lightning about bad input to `ActlabError`.

    Chained errors are unwrapped. If the parser rejects the config ``stated``, the error names the
    first value that is not accepted.
    """
    try:
        yield

    # The parser
    except ArgumentError as error:
        mistaken = bad_input(error)
        if mistaken is None and stated:
            mistaken = mistake_in(stated)
        raise (mistaken or innermost(error, "config")) from error

    # Lightning and third-party classes
    except ActlabError:
        raise
    except Exception as error:
        expected = (MisconfigurationException, ValueError, TypeError)
        converted = None
        if isinstance(error, expected) or _of_callback(error):
            converted = bad_input(error)
        converted = converted or unrestored(error)
        if converted:
            raise converted from error
        raise


def innermost(error: ArgumentError, key: str) -> ActlabError:
    """Return the cause of a parser's error about a key on one line."""
    *_, cause = _causes(error)
    return ActlabError(f"{key}: {one_line(cause)}")


def mistake_in(stated: Mapping[str, Any]) -> ActlabError | None:
    """Return an error for the first value of a config that its class does not accept, or None."""
    trainer, mistaken = stated.get("trainer"), None
    if isinstance(trainer, Mapping):
        path = "pytorch_lightning.Trainer"
        mistaken = _mistake_in_arguments(trainer, pl.Trainer, path, "trainer", ())

    for name, base in sections.SECTIONS.items():
        passed = ("seed", *sections.linked_shapes(stated))
        mistaken = mistaken or mistake(stated.get(name), base, name, passed=passed)
    return mistaken


def mistake(
    value: Any, annotation: Any, location: str, passed: tuple[str, ...] = ()
) -> ActlabError | None:
    """Return an error for a value at a config key that its annotation does not accept, or None.

    Classes that the value names are looked into, by their signatures. The arguments ``passed`` of
    the value's own class come from elsewhere.
    """
    # Classes of objects, also of objects that a factory returns.
    classes = tuple(classes_in(annotation))
    accepted_types = kinds(annotation)

    # Text names a class only where no plain value could be meant; a number may be text:
    # ``"1e-3"``
    could_be_plain = accepted_types & {str, int, float, Any}
    if isinstance(value, str) and classes and not could_be_plain:
        value = {"class_path": value}
    if isinstance(value, Mapping) and "class_path" in value and classes:
        return _mistake_in_object(value, annotation, location, passed)

    # The objects in a container; the container itself is checked below
    inner = inner_type(annotation)
    if any(classes_in(inner)):
        for key, item in _items(value, location):
            if isinstance(item, Mapping | str):
                error = mistake(item, inner, key)
                if error:
                    return error

    # A plain value
    if Any in accepted_types or _is_accepted(value, annotation):
        return None
    if isinstance(value, Mapping) and classes:
        return not_a_class(value, location)
    return _wrong_type(value, annotation, location)


def _wrong_type(value: Any, annotation: Any, location: str) -> ActlabError:
    message = f"{location}: expected {in_words(annotation)}, got {short_repr(value)}."

    # Words such as yes, 1.10 and 2024-01-01, which YAML does not read as text
    if isinstance(value, bool | int | float | date) and str in kinds(annotation):
        text = str(value)
        if isinstance(value, bool):
            text = "yes" if value else "no"
        name = location.rpartition(".")[2]
        message += f' Put text in quotes: {name}: "{text}".'
    return ActlabError(message)


def _items(value: Any, location: str) -> list[tuple[str, Any]]:
    """Return the values in a list or mapping, each with its config key."""
    if isinstance(value, list):
        return [(location, item) for item in value]
    if isinstance(value, Mapping):
        return [(f"{location}.{name}", item) for name, item in value.items()]
    return []


def _is_accepted(value: Any, annotation: Any) -> bool:
    parser = ArgumentParser(exit_on_error=False)
    try:
        parser.add_argument("--value", type=annotation)
        parser.parse_object({"value": copy.deepcopy(value)})  # which it changes
    except ArgumentError:
        return False
    except ValueError:  # the parser cannot check this annotation
        return True
    return True


def _mistake_in_object(
    value: Mapping[str, Any], annotation: Any, location: str, passed: tuple[str, ...]
) -> ActlabError | None:
    # Check the form: class_path, init_args and no other key
    path, arguments = value["class_path"], value.get("init_args") or {}
    misplaced = [key for key in value if key not in SPEC]
    if misplaced:
        key = f"{location}.{misplaced[0]}"
        return ActlabError(f"{key} is next to class_path. Move it under init_args.")
    if not isinstance(path, str):
        key = f"{location}.class_path"
        return ActlabError(
            f"{key}: expected the import path of a class, got {short_repr(path)}."
        )
    if not isinstance(arguments, Mapping):
        key = f"{location}.init_args"
        return ActlabError(
            f"{key}: expected a mapping of names to values, got {short_repr(arguments)}."
        )

    # The class must exist and fit
    classes = tuple(classes_in(annotation))
    try:
        owner = find(path, classes, location)
    except ActlabError as error:
        return error

    # A factory gets its first arguments from its caller: ``Callable[[int], Module]``
    # gets one
    for factory in filter(is_callable, kinds(annotation)):
        arguments_passed = next(iter(get_args(factory)), None)
        if isinstance(arguments_passed, list):
            number = len(arguments_passed)
            names = parameters(module_class(owner, number)) or ()
            passed += tuple(names)[:number]
    return _mistake_in_arguments(arguments, owner, path, location, passed)


def _mistake_in_arguments(
    stated: Mapping[str, Any],
    owner: Any,
    path: str,
    location: str,
    passed: tuple[str, ...],
) -> ActlabError | None:
    accepted = parameters(owner)
    # Unknown parameters cannot be checked
    if accepted is None:
        return None

    # Keys and values
    for name, value in stated.items():
        if name in passed:
            key = f"{location}.{name}"
            return ActlabError(
                f"{key} cannot be set, because actlab sets it. Remove it."
            )
        if name not in accepted:
            return _unknown_argument(
                name, stated, accepted.keys() - {*passed}, path, location
            )
        error = mistake(value, accepted[name].annotation, f"{location}.{name}")
        if error:
            return error

    # Missing arguments
    present = (*stated, *passed)
    missing = [
        name for name, p in accepted.items() if p.required and name not in present
    ]
    if not missing:
        return None
    factories = [
        _FACTORIES[base] for base in getattr(owner, "__mro__", ()) if base in _FACTORIES
    ]
    # The module passes the parameters or the optimiser
    if factories and missing[0] == next(iter(accepted)):
        return ActlabError(
            f"{location}: {path} requires {missing[0]!r}, which the module passes. Annotate the "
            f"argument with `{factories[0]}` of pytorch_lightning.cli instead of its class."
        )
    return lacking(path, missing[0], location)


def _unknown_argument(
    name: Any,
    stated: Mapping[str, Any],
    accepted: Collection[str],
    path: str,
    location: str,
) -> ActlabError:
    # An object below may accept the key
    for key, value in stated.items():
        inner_path = class_of(value)
        with suppress(ActlabError):  # the text may not name a class
            if isinstance(inner_path, str):
                inner = parameters(find(inner_path, (object,), key)) or ()
                if str(name) in inner:
                    return ActlabError(
                        f"unknown config key '{location}.{name}'; did you mean "
                        f"'{location}.{key}.{name}'?"
                    )

    # Name the whole key as it was written
    value = stated[name]
    while isinstance(value, Mapping) and len(value) == 1:
        ((inner_name, value),) = value.items()
        name = f"{name}.{inner_name}"
    return unknown(
        "config key", str(name), accepted, f"See the arguments of {path}.", location
    )


def bad_input(error: BaseException) -> ActlabError | None:
    """Return the first `ActlabError`, or Lightning error about bad input, behind an error."""
    for cause in _causes(error):
        if isinstance(cause, ActlabError):
            return cause
        if isinstance(cause, MisconfigurationException) or _of_callback(cause):
            return ActlabError(f"Lightning: {one_line(cause)}")
    return None


def unrestored(error: BaseException) -> ActlabError | None:
    """Return an error for what is raised while Lightning restores a checkpoint; else None."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        places = {frame.f_globals.get("__name__"), frame.f_code.co_name}
        if not places.isdisjoint(_RESTORING):
            reason = described(error)
            return ActlabError(
                f"the checkpoint cannot be restored ({reason}). Use another file."
            )
    return None


def unbuilt(error: BaseException) -> ActlabError:
    """Return an error for what a constructor raised, with the classes that it builds.

    The outermost class comes first.
    """
    # The first cause that the parser did not raise
    cause = error
    for candidate in _causes(error):
        if not _raised_by(candidate, "jsonargparse"):
            cause = candidate
            break

    # The objects under construction
    names: dict[str, None] = {}
    for frame, _ in traceback.walk_tb(cause.__traceback__):
        if frame.f_code.co_name == "__init__":
            built = frame.f_locals.get("self")
            if not isinstance(built, LightningCLI | None):
                names[type(built).__qualname__] = None
    return ActlabError(" → ".join([*names, described(cause)]))


def _of_callback(error: BaseException) -> bool:
    """Return whether a callback of Lightning raised an error, such as for a missing metric."""
    return isinstance(error, RuntimeError) and _raised_by(
        error, "pytorch_lightning.callbacks."
    )


def _raised_by(error: BaseException, package: str) -> bool:
    module = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        # The innermost frame counts: the parser also calls code that raises errors
        module = frame.f_globals.get("__name__", "")
    return module.startswith(package)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
