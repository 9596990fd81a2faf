"""What other libraries, and other authors' classes, raise about bad input: as one line of our own."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import formatannotation
from typing import Any

from jsonargparse import ArgumentError
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.cli import LightningCLI

from actlab.config import sections
from actlab.config.keys import SPEC, class_of, get_dotted
from actlab.config.signatures import Taken, locate, parameters
from actlab.errors import ActlabError, described, one_line, unknown

# What jsonargparse says, one in the other.
_KEY = re.compile(r'Parser key "([^"]+)"')
_CLASS = re.compile(r"given class_path '([^']+)'|class_path='([^']+)'")
_GROUP = re.compile(r"Group '([^']+)' does not accept option")
_NOT_ACCEPTED = re.compile(r"[Oo]ption '([^']+)'")
_REQUIRED = re.compile(r"arguments are required: (.+)")
_KIND = re.compile(r"Expected '([^']+)' to be a subclass of <class '(?:.*\.)?([^'.]+)'>")


@contextmanager
def one_line_errors(given: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn errors of the parser and of Lightning about bad input into `ActlabError`, and unwrap our own.

    Args:
        given: the config that is parsed, to find the value that its parameter's type refuses.

    Raises:
        ActlabError: naming the key and the value.
    """
    try:
        yield
    except ArgumentError as error:
        raise bad_input(error) or explained(error, given or {}) from error
    except (MisconfigurationException, ValueError, TypeError) as error:
        if found := bad_input(error):
            raise found from error
        raise


def explained(error: ArgumentError, given: Mapping[str, Any]) -> ActlabError:
    """An error of the parser as one line: the key, the value, and what its class takes.

    The parser nests its messages, one in the other: each names a key or a class, the innermost says what is
    wrong.

    Args:
        error: what it raised.
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
    if isinstance(value, Mapping) and (mistake := _without_class(place, value)) is not None:
        return mistake
    if rejected := _NOT_ACCEPTED.search(innermost):
        return _not_taken(place, value, rejected[1], path)
    if needed := _REQUIRED.search(innermost):
        name = needed[1].partition(",")[0]
        return ActlabError(f"{path} needs {name!r}: give {place}.{name}")
    if kind := _KIND.search(innermost):
        return ActlabError(f"{place} must name a class derived from {kind[2]}, which {kind[1]!r} is not")
    if isinstance(causes[-1], AttributeError | ImportError):
        try:
            locate(str(class_of(value) or path))
        except ActlabError as missing:
            return ActlabError(f"{place}: {missing}")
    wants = one_line(causes[-1])
    if taken := _takes(path).get(place.rpartition(".")[2]):
        wants = f"{path} wants {formatannotation(taken.annotation).replace('typing.', '')}"
    return ActlabError(f"{place} {value!r}: {wants}")


def _without_class(place: str, value: Mapping[str, Any]) -> ActlabError | None:
    """An error for arguments that stand beside the class which they are of."""
    beside = [key for key in value if key not in SPEC]
    if "class_path" not in value or not beside:
        return None
    return ActlabError(f"{place}.{beside[0]} stands beside class_path: put it under init_args")


def _takes(path: str) -> Mapping[str, Taken]:
    """The parameters of a class; none where there is no such class."""
    with suppress(ActlabError):
        return parameters(locate(path)) or {}
    return {}


def _not_taken(place: str, value: Any, name: str, path: str) -> ActlabError:
    """An error for an argument that a class does not take."""
    key, known = f"{place}.{name}", _takes(path)
    if key in sections.FOLLOWS_SEED:
        return ActlabError(f"{key} cannot be set: it follows {sections.SEED}; give that")
    if name in known:
        return ActlabError(f"{key} cannot be set: {path} is given its {name!r} when it is built")
    if not known and not class_of(value):
        return ActlabError(f"{place} has arguments but no class: give its class path first")
    return unknown("config key", name, set(known) - {"seed"}, f"In {path}.")


def bad_input(error: BaseException) -> ActlabError | None:
    """Our own error among the causes of an error, or Lightning's one about bad input."""
    for cause in _causes(error):
        if isinstance(cause, ActlabError):
            return cause
        if isinstance(cause, MisconfigurationException):
            return ActlabError(one_line(cause))
    return None


def unbuilt(error: BaseException) -> ActlabError:
    """What a constructor raised, with the classes that were being built, outer ones first."""
    first = next((c for c in _causes(error) if not _is_parsers(c)), error)
    frames = (frame for frame, _ in traceback.walk_tb(first.__traceback__))
    built = (f.f_locals.get("self") for f in frames if f.f_code.co_name == "__init__")
    names = dict.fromkeys(type(one).__qualname__ for one in built if not isinstance(one, LightningCLI | None))
    return ActlabError(f"{' → '.join([*names, described(first)])}")


def _is_parsers(error: BaseException) -> bool:
    """Whether the parser has raised an error, rather than what it calls."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_globals.get("__name__", "").startswith("jsonargparse")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it, outermost first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
