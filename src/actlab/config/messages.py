"""Convert errors of other libraries and third-party classes about bad input to one-line messages."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import formatannotation
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
from actlab.errors.messages import described, one_line, unknown

# Of pytorch_lightning.cli
_FACTORIES = {
    Optimizer: "OptimizerCallable",
    LRScheduler: "LRSchedulerCallable",
}
# Of Lightning: the module that restores checkpoints, and the function that restores data loaders.
_RESTORING = (
    "pytorch_lightning.trainer.connectors.checkpoint_connector",
    "_load_combined_loader_states",
)


@contextmanager
def one_line_errors(given: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Convert errors of the parser and of Lightning about bad input to `ActlabError`, and unwrap chained ones.

    For what the parser rejects, the first value of the config ``given`` that is not accepted is
    named.
    """
    try:
        yield
    except ArgumentError as error:
        raise (
            bad_input(error) or (mistake_in(given) if given else None) or innermost(error)
        ) from error
    except ActlabError:
        raise
    except Exception as error:
        known = isinstance(
            error, MisconfigurationException | ValueError | TypeError
        ) or _of_callback(error)
        if bad := (bad_input(error) if known else None) or unrestored(error):
            raise bad from error
        raise


def innermost(error: ArgumentError) -> ActlabError:
    """Return the cause of a parser's error on one line."""
    return ActlabError(one_line([*_causes(error)][-1]))


def mistake_in(given: Mapping[str, Any]) -> ActlabError | None:
    """Return an error for the first value of a config that its class does not accept; None if there is none."""
    trainer, mistaken = given.get("trainer"), None
    if isinstance(trainer, Mapping):
        mistaken = _mistake_in_arguments(
            trainer, pl.Trainer, "pytorch_lightning.Trainer", "trainer", ()
        )
    for name, base in sections.SECTIONS.items():
        passed = ("seed", *sections.linked_shapes(given))
        mistaken = mistaken or mistake(given.get(name), base, name, passed=passed)
    return mistaken


def mistake(
    value: Any, wanted: Any, where: str, owner: str = "", passed: tuple[str, ...] = ()
) -> ActlabError | None:
    """Return an error for a value at a config key that its annotation does not accept, or None.

    Classes that the value names are looked into, by their signatures. ``owner`` takes the value as
    an argument; the arguments ``passed`` of the value's own class come from elsewhere.
    """
    bases, options = tuple(classes_in(wanted)), kinds(wanted)
    if isinstance(value, str) and bases and not options & {str, int, float, Any}:
        value = {"class_path": value}
    if isinstance(value, Mapping) and "class_path" in value and bases:
        return _mistake_in_object(value, wanted, where, passed)
    items = [(where, item) for item in value] if isinstance(value, list) else []
    items += (
        [(f"{where}.{name}", item) for name, item in value.items()]
        if isinstance(value, Mapping)
        else []
    )
    for key, item in items if any(classes_in(inner_type(wanted))) else ():
        if isinstance(item, Mapping | str) and (
            error := mistake(item, inner_type(wanted), key, owner)
        ):
            return error
    if Any in options or _is_accepted(value, wanted):
        return None
    if isinstance(value, Mapping) and bases:
        return ActlabError(
            f"{where} has arguments but no class: give its class path first, as {{class_path: …, init_args: …}}"
        )
    text = f"{where} {value!r}: {owner} expects {formatannotation(wanted).replace('typing.', '')}"
    if isinstance(value, bool | int | float) and str in options:
        quoted = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
        text += f'. Put text in quotes: {where.rpartition(".")[2]}: "{quoted}"'
    return ActlabError(text)


def _is_accepted(value: Any, wanted: Any) -> bool:
    parser = ArgumentParser(exit_on_error=False)
    try:
        parser.add_argument("--value", type=wanted)
        parser.parse_object({"value": copy.deepcopy(value)})  # which it changes
    except (ArgumentError, ValueError) as error:
        return isinstance(error, ValueError)  # an annotation that the parser ignores
    return True


def _mistake_in_object(
    value: Mapping[str, Any], wanted: Any, where: str, passed: tuple[str, ...]
) -> ActlabError | None:
    path, arguments = value["class_path"], value.get("init_args") or {}
    if beside := [key for key in value if key not in SPEC]:
        return ActlabError(f"{where}.{beside[0]} is next to class_path: put it under init_args")
    if not isinstance(path, str):
        return ActlabError(f"{where}.class_path {path!r}: give the import path of a class, as text")
    if not isinstance(arguments, Mapping):
        return ActlabError(f"{where}.init_args {arguments!r}: give a mapping of names to values")
    try:
        owner = find(path, tuple(classes_in(wanted)), where)
    except ActlabError as error:
        return error
    # Whoever calls a factory passes its first arguments
    for option in filter(is_callable, kinds(wanted)):
        taken = next(iter(get_args(option)), None)
        number = len(taken) if isinstance(taken, list) else 0
        passed += tuple(parameters(module_class(owner, number)) or ())[:number]
    return _mistake_in_arguments(arguments, owner, path, where, passed)


def _mistake_in_arguments(
    given: Mapping[str, Any], owner: Any, path: str, where: str, passed: tuple[str, ...]
) -> ActlabError | None:
    if (known := parameters(owner)) is None:
        return None
    for name, value in given.items():
        if name in passed:
            return ActlabError(f"{where}.{name} cannot be set: actlab passes {name!r} to {path}")
        if name not in known:
            if nested := _below(str(name), given, where):
                return nested
            while isinstance(value, Mapping) and len(value) == 1:  # the whole key as it was given
                inner, value = next(iter(value.items()))
                name = f"{name}.{inner}"
            return unknown("config key", str(name), known.keys() - {*passed}, f"In {path}.", where)
        if error := mistake(value, known[name].annotation, f"{where}.{name}", path):
            return error
    needed = [
        name for name, taken in known.items() if taken.required and name not in (*given, *passed)
    ]
    factory = [_FACTORIES[base] for base in getattr(owner, "__mro__", ()) if base in _FACTORIES]
    if factory and needed[:1] == [*known][:1]:  # parameters or optimiser: the module has them
        return ActlabError(
            f"{where}: {path} needs {needed[0]!r}, which the module passes: annotate the argument with "
            f"`{factory[0]}` of pytorch_lightning.cli, in place of its class"
        )
    return lacking(path, needed[0], where) if needed else None


def _below(name: str, given: Mapping[str, Any], where: str) -> ActlabError | None:
    """Return an error for a key that an object below takes."""
    for key, path in ((key, class_of(value)) for key, value in given.items()):
        with suppress(ActlabError):  # text that is no class
            if isinstance(path, str) and name in (parameters(find(path, (object,), key)) or ()):
                return ActlabError(
                    f"unknown config key '{where}.{name}'; did you mean '{where}.{key}.{name}'?"
                )
    return None


def bad_input(error: BaseException) -> ActlabError | None:
    """Return the first `ActlabError`, or Lightning error about bad input, among an error and its causes."""
    for cause in _causes(error):
        if isinstance(cause, ActlabError):
            return cause
        if isinstance(cause, MisconfigurationException) or _of_callback(cause):
            return ActlabError(one_line(cause))
    return None


def unrestored(error: BaseException) -> ActlabError | None:
    """Return an error for whatever is raised while Lightning restores a checkpoint; None for other errors."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") in _RESTORING or frame.f_code.co_name in _RESTORING:
            return ActlabError(
                f"the checkpoint cannot be restored ({described(error)}): give another file"
            )
    return None


def unbuilt(error: BaseException) -> ActlabError:
    """Return an error for what a constructor raised, with the classes under construction, outermost first."""
    first = next((c for c in _causes(error) if not _raised_by(c, "jsonargparse")), error)
    frames = (frame for frame, _ in traceback.walk_tb(first.__traceback__))
    built = (f.f_locals.get("self") for f in frames if f.f_code.co_name == "__init__")
    kinds_built = (type(part) for part in built if not isinstance(part, LightningCLI | None))
    names = dict.fromkeys(kind.__qualname__ for kind in kinds_built)
    return ActlabError(f"{' → '.join([*names, described(first)])}")


def _of_callback(error: BaseException) -> bool:
    """Return whether a callback of Lightning raised an error, such as for a metric that is never logged."""
    return isinstance(error, RuntimeError) and _raised_by(error, "pytorch_lightning.callbacks.")


def _raised_by(error: BaseException, package: str) -> bool:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    # The innermost frame: the parser also calls code that raises errors.
    return bool(frames) and frames[-1].f_globals.get("__name__", "").startswith(package)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
