"""User-defined activations: import from a module or file, check the parameters and build a module."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial, reduce
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from actlab.errors import ActlabError, described, unknown
from actlab.runtime.third_party import calling
from actlab.storage.files import regular


class Function(nn.Module):
    """A module that calls a plain function tensor → tensor.

    The function may declare attributes ``elementwise`` and ``stochastic``, which otherwise are unknown, and
    ``surrogate_gradient``.

    Args:
        function: receives the input, of any shape, and ``params``.
        params: keyword arguments of each call.
    """

    def __init__(self, function: Callable[..., Tensor], params: Mapping[str, Any]) -> None:
        super().__init__()
        self.function = function
        self.params = dict(params)

    @property
    def elementwise(self) -> bool:
        """The function's declaration; False when it declares nothing."""
        return getattr(self.function, "elementwise", False) is True

    @property
    def stochastic(self) -> bool:
        """The function's declaration; True, the safe assumption, when it declares nothing."""
        return getattr(self.function, "stochastic", True) is not False

    @property
    def surrogate_gradient(self) -> bool:
        """The function's declaration; False when it declares nothing."""
        return getattr(self.function, "surrogate_gradient", False) is True

    def forward(self, x: Tensor) -> Tensor:
        """Return the function's value; the same call in training and evaluation."""
        return self.function(x, **self.params)

    def extra_repr(self) -> str:
        """Return the function's name and parameters, for printing."""
        name = getattr(self.function, "__name__", repr(self.function))
        return ", ".join([name, *(f"{key}={value!r}" for key, value in self.params.items())])


@calling()
def resolve(name: str) -> Any:
    """Return the object that ``package.module:attribute`` or ``path/to/file.py:attribute`` names.

    A file is imported once per resolved path and content.
    """
    source, _, attribute = name.rpartition(":")
    module = _import_file(Path(source)) if source.endswith(".py") else _import_module(source)
    try:
        return reduce(getattr, attribute.split("."), module)
    except AttributeError:
        public = [key for key, value in vars(module).items() if not key.startswith("_") and callable(value)]
        near = public if len(public) <= 20 else get_close_matches(attribute, public)
        raise unknown(f"attribute of {source}", attribute, near) from None


def absolute(name: str) -> str:
    """Return ``name`` with a file path made absolute, so that it is valid in any working directory."""
    source, colon, attribute = name.rpartition(":")
    return f"{Path(source).resolve()}{colon}{attribute}" if source.endswith(".py") else name


def _import_module(source: str) -> types.ModuleType:
    try:
        return importlib.import_module(source)
    except Exception as error:  # a third-party module may raise anything on import
        remedy = "Install it, or write ./file.py:Name for your own file."
        raise ActlabError(f"cannot import {source!r}: {described(error)}. {remedy}") from error


def _import_file(path: Path) -> types.ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise ActlabError(f"no such file: {path}. Paths of activations are relative to the current folder.")
    content = regular(path).read_bytes()  # an edited file becomes a new module
    told = hashlib.blake2b(os.fsencode(path) + content, digest_size=4)
    name = f"actlab_user_{path.stem}_{told.hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ActlabError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before execution: pickle and dataclasses look up a class's module here
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's file may raise anything
        del sys.modules[name]
        raise ActlabError(f"cannot import {path}: {described(error)}") from error
    return module


def module_from(label: str, target: Any, params: Mapping[str, Any]) -> nn.Module:
    """Build a module from a module class, a function returning a module, or a function tensor → tensor.

    A function tensor → tensor receives ``params`` at each call. ``label`` names the activation in messages.

    >>> module_from("clip", lambda x, most: x.clamp(max=most), {"most": 1.0})(torch.tensor([0.0, 2.0])).tolist()
    [0.0, 1.0]
    """
    if isinstance(target, nn.Module):
        raise ActlabError(
            f"{label} is an instance of {type(target).__name__}, which layers cannot share; name its class"
        )
    if not callable(target) or (isinstance(target, type) and not issubclass(target, nn.Module)):
        what = "a class" if isinstance(target, type) else f"of type {type(target).__name__}"
        raise ActlabError(f"{label} is {what}, neither an nn.Module class nor a function")
    missing = _check_params(label, target, params)
    # the only missing parameter of a function is its input, unless its type says otherwise
    plain = missing and len(missing) == 1 and _hints(target).get(missing[0]) not in (bool, int, float, str)
    if not isinstance(target, type) and (missing is None or plain):
        return _wrap_function(label, target, params, missing)
    if missing:
        example = f"{{name: {label}, {missing[0]}: …}}"
        raise ActlabError(f"{label} needs a value for {', '.join(map(repr, missing))}; write {example}")
    module = _call(label, target, params)
    if not isinstance(module, nn.Module):
        raise ActlabError(f"{label} returned {type(module).__name__}, not an nn.Module")
    return module


def parameters(target: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """Return the parameters of a class or function by name, or None when it has no readable signature."""
    try:
        return dict(inspect.signature(target).parameters)
    except ValueError:  # functions written in C
        return None


def _check_params(label: str, target: Callable[..., Any], params: Mapping[str, Any]) -> list[str] | None:
    """Check ``params`` against the signature; return missing parameters, or None without a signature."""
    known = parameters(target)
    if known is None:
        return None
    kinds = {parameter.kind for parameter in known.values()}
    named = {k: p for k, p in known.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    hints = _hints(target)
    for key, value in params.items():
        if key not in named and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise unknown(f"parameter of {label}", key, named, "" if named else f"{label} takes none.")
        if not _matches_hint(value, hints.get(key, Any)):
            wanted, given = _hint_text(hints[key]), f"{value!r} ({type(value).__name__})"
            allowed = ", ".join(named)
            raise ActlabError(
                f"parameter {key!r} of {label} must be {wanted}, not {given}. Allowed parameters: {allowed}."
            )
    required = (p for p in known.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    return [p.name for p in required if p.default is p.empty and p.name not in params]


def _hints(target: Any) -> dict[str, Any]:
    try:
        return get_type_hints(vars(target).get("__init__", target) if isinstance(target, type) else target)
    except (NameError, TypeError):  # annotations that cannot be evaluated at run time
        return {}


def _matches_hint(value: object, hint: Any) -> bool:
    """Whether ``value`` has the annotated type; True for annotations that this check does not cover."""
    if get_origin(hint) in (Union, types.UnionType):
        return any(_matches_hint(value, option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return any(value == option and type(value) is type(option) for option in get_args(hint))
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint) if hint in (bool, str, type(None)) else True


def _hint_text(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(map(_hint_text, get_args(hint)))
    return "null" if hint is type(None) else getattr(hint, "__name__", str(hint))


def _wrap_function(label: str, target: Any, params: Mapping[str, Any], missing: list[str] | None) -> nn.Module:
    """Wrap a function tensor → tensor in a `Function` after a trial on a small input."""
    x = torch.zeros(2, 4)
    with torch.no_grad():
        y = _call(label, partial(target, x), params)
    if not isinstance(y, Tensor) or y.shape != x.shape:
        what = f"a tensor of shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        needs = f", or give a value for {missing[0]!r}" if missing else ""
        raise ActlabError(
            f"{label}, given a (2, 4) tensor, returned {what}, not a (2, 4) tensor; "
            f"return a tensor of the input's shape{needs}"
        )
    return Function(target, params)


@calling()
def _call(label: str, target: Callable[..., Any], params: Mapping[str, Any]) -> Any:
    try:
        return target(**params)
    except ActlabError:
        raise
    except Exception as error:  # third-party code may raise anything
        raise ActlabError(f"cannot build {label} with {dict(params)}: {described(error)}") from error
