"""The arguments with which a program called a class, as plain values that a checkpoint holds."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor
from torchmetrics import Metric

_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class UnnamedError(Exception):
    """Raised for a value that no import path names, such as a lambda: it cannot be built from a file."""


class Arguments(NamedTuple):
    """Arguments of a class."""

    plain: dict[str, Any]
    missing: list[str]  # names of those that no import path names
    defaults: Mapping[str, Any] = {}  # of the others


def of_call(kind: type, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Return the arguments of a call of a class; none for a call that its signature rejects."""
    signature = inspect.signature(kind.__init__)  # type: ignore[misc]  # ``__new__`` passes everything on
    try:
        given = signature.bind(None, *args, **kwargs).arguments
    except TypeError:
        return Arguments({}, [])
    given.pop(next(iter(signature.parameters)))  # self
    known = signature.parameters.values()
    defaults = {p.name: p.default for p in known if p.default is not p.empty and p.name not in given}
    for name, parameter in signature.parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            given.update(given.pop(name, {}))
    return converted(given)._replace(defaults=converted(defaults).plain)


def converted(given: Mapping[str, Any]) -> Arguments:
    """Return values by name as plain values, and the names of those that no import path names."""
    found = Arguments({}, [])
    for name, value in given.items():
        try:
            found.plain[name] = plain(value)
        except UnnamedError:
            found.missing.append(name)
    return found


def plain(value: Any) -> Any:
    """Return a value as nested plain values, or raise `UnnamedError` if no import path names a part of it."""
    for kind in (bool, int, float, str):
        if isinstance(value, kind) and not isinstance(value, Enum):
            return kind(value)  # numbers of NumPy, too
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {key if isinstance(key, int) else str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, partial) and not value.args:
        return {"class_path": path_of(value.func), "init_args": plain(value.keywords)}
    if inspect.isclass(value) or inspect.isroutine(value):
        return path_of(value)
    return {"class_path": path_of(type(value)), "init_args": _of_object(value)}


def _of_object(value: Any) -> dict[str, Any]:
    if isinstance(value, Tensor | partial):
        raise UnnamedError
    try:
        taken = inspect.signature(type(value)).parameters.values()
        # Further arguments of metrics say how devices exchange states.
        if any(p.kind in _VARIADIC for p in taken) and not isinstance(value, Metric):
            raise UnnamedError
        return {p.name: plain(getattr(value, p.name)) for p in taken if p.kind not in _VARIADIC}
    except (AttributeError, ValueError) as error:
        raise UnnamedError from error


def path_of(value: Any) -> str:
    """Return the import path of a class or function, in its package if the package exports it.

    There is none for a lambda, and none for what a function or the running program defines.

    >>> import torch
    >>> path_of(torch.optim.SGD)
    'torch.optim.SGD'
    """
    module, name = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", "")
    for place in (module.rpartition(".")[0], module):
        found: Any = sys.modules.get(place)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is value and place != "__main__":
            return f"{place}.{name}"
    raise UnnamedError
