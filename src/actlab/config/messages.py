"""Convert errors of other libraries and third-party classes about bad input to one-line messages."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date
from inspect import formatannotation
from typing import Any

from jsonargparse import ArgumentError
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.cli import LightningCLI

from actlab.config import sections
from actlab.config.keys import SPEC, class_of, get_dotted, import_path
from actlab.config.signatures import Taken, kinds, lacking, locate, parameters
from actlab.errors import ActlabError, described, one_line, unknown

# Parts of the nested messages of jsonargparse.
_KEY = re.compile(r'Parser key "([^"]+)"')
_CLASS = re.compile(r"given class_path '([^']+)'|class_path='([^']+)'")
_GROUP = re.compile(r"Group '([^']+)' does not accept option")
_NOT_ACCEPTED = re.compile(r"[Oo]ption '([^']+)'")
_REQUIRED = re.compile(r"arguments are required: (.+)")
_KIND = re.compile(r"Expected '([^']+)' to be a subclass of <class '(?:.*\.)?([^'.]+)'>")

# Of Lightning: the module that restores checkpoints, and the function that restores data loaders.
_RESTORING = ("pytorch_lightning.trainer.connectors.checkpoint_connector", "_load_combined_loader_states")


@contextmanager
def one_line_errors(given: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Convert errors of the parser and of Lightning about bad input to `ActlabError`, and unwrap chained ones.

    Whatever is raised while a checkpoint is restored is bad input, too.

    Args:
        given: the config that is parsed, for the value that the parser rejected.

    Raises:
        ActlabError: with the key and the value.
    """
    try:
        yield
    except ArgumentError as error:
        raise bad_input(error) or explained(error, given or {}) from error
    except ActlabError:
        raise
    except Exception as error:
        known = isinstance(error, MisconfigurationException | ValueError | TypeError)
        if found := (bad_input(error) if known else None) or unrestored(error):
            raise found from error
        raise


def explained(error: ArgumentError, given: Mapping[str, Any]) -> ActlabError:
    """Return a parser error as one line: the key, the value, and what its class accepts.

    The parser nests its messages. Each names a key or a class; the innermost states the problem.

    Args:
        error: the error that the parser raised.
        given: the config.
    """
    causes = list(_causes(error))
    texts = [str(cause) for cause in causes]
    innermost = texts[-1]
    keys = [_KEY.match(str(cause)) for cause in causes if isinstance(cause, ArgumentError)]
    group = _GROUP.search(innermost)
    place = group[1] if group else ".".join(key[1] for key in keys if key)
    classes = [found[1] or found[2] for text in reversed(texts) if (found := _CLASS.search(text))]
    path = "pytorch_lightning.Trainer" if group or not classes else classes[0]
    value = get_dotted(given, place)
    if isinstance(value, Mapping) and (mistake := _misplaced_argument(place, value)) is not None:
        return mistake
    if rejected := _NOT_ACCEPTED.search(innermost):
        return _rejected_argument(place, value, rejected[1], path)
    if needed := _REQUIRED.search(innermost):
        return lacking(path, needed[1].partition(",")[0], place)
    if kind := _KIND.search(innermost):
        return ActlabError(f"{place} must name a class derived from {kind[2]}, got {kind[1]!r}")
    if isinstance(causes[-1], AttributeError | ImportError):
        try:
            locate(str(class_of(value) or path))
        except ActlabError as missing:
            return ActlabError(f"{place}: {missing}")
    wants = one_line(causes[-1])
    if taken := _parameters_of(path).get(place.rpartition(".")[2]):
        wants = f"{path} expects {formatannotation(taken.annotation).replace('typing.', '')}"
        if isinstance(value, bool | int | float | date) and str in kinds(taken.annotation):
            text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
            wants += f'. Put text in quotes: {place.rpartition(".")[2]}: "{text}"'
    dotted = import_path(str(class_of(value)))
    hint = f". A class is given by its import path: {dotted}" if dotted else ""
    return ActlabError(f"{place} {value!r}: {wants}{hint}")


def _misplaced_argument(place: str, value: Mapping[str, Any]) -> ActlabError | None:
    """Return an error for arguments next to a class path instead of under ``init_args``, if there are any."""
    beside = [key for key in value if key not in SPEC]
    if "class_path" not in value or not beside:
        return None
    return ActlabError(f"{place}.{beside[0]} is next to class_path: put it under init_args")


def _parameters_of(path: str) -> Mapping[str, Taken]:
    """Return the parameters of a class, or an empty mapping if there is no such class."""
    with suppress(ActlabError):
        return parameters(locate(path)) or {}
    return {}


def _rejected_argument(place: str, value: Any, name: str, path: str) -> ActlabError:
    """Return an error for an argument that a class does not accept."""
    key, known = f"{place}.{name}", _parameters_of(path)
    if key in sections.FOLLOWS_SEED:
        return sections.follows_seed(key)
    if name in known:
        return ActlabError(f"{key} cannot be set: actlab passes {name!r} to {path}")
    if not known and not class_of(value):
        return ActlabError(f"{place} has arguments but no class: give its class path first")
    return unknown("config key", name, set(known) - {"seed"}, f"In {path}.", place)


def bad_input(error: BaseException) -> ActlabError | None:
    """Return the first `ActlabError`, or Lightning error about bad input, among an error and its causes."""
    for cause in _causes(error):
        if isinstance(cause, ActlabError):
            return cause
        if isinstance(cause, MisconfigurationException):
            return ActlabError(one_line(cause))
    return None


def unrestored(error: BaseException) -> ActlabError | None:
    """Return an error for whatever is raised while Lightning restores a checkpoint; None for other errors."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__") in _RESTORING or frame.f_code.co_name in _RESTORING:
            return ActlabError(f"the checkpoint cannot be restored ({described(error)}): give another file")
    return None


def unbuilt(error: BaseException) -> ActlabError:
    """Return an error for what a constructor raised, with the classes under construction, outermost first."""
    first = next((c for c in _causes(error) if not _raised_by_parser(c)), error)
    frames = (frame for frame, _ in traceback.walk_tb(first.__traceback__))
    built = (f.f_locals.get("self") for f in frames if f.f_code.co_name == "__init__")
    names = dict.fromkeys(type(one).__qualname__ for one in built if not isinstance(one, LightningCLI | None))
    return ActlabError(f"{' → '.join([*names, described(first)])}")


def _raised_by_parser(error: BaseException) -> bool:
    """Return whether the parser itself raised an error, rather than code that it called."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_globals.get("__name__", "").startswith("jsonargparse")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, outermost first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
