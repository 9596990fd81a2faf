"""User-defined activations: import from a module or file, check the parameters and build a module."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, reduce, wraps
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import torch
from torch import Tensor, nn

from actlab.errors import ActlabError
from actlab.errors.imports import importing
from actlab.errors.messages import described, unknown
from actlab.runtime.third_party import calling
from actlab.storage.files import regular
from actlab.storage.spec import Spec

WIDTHS = (  # required parameters of these names receive the number of features at a site
    *(
        "channels",
        "in_channels",
        "in_channel",
        "num_channels",
        "num_features",
        "in_features",
        "features",
    ),
    *("width", "dim", "num_parameters", "c1"),
)
WIDTH = "width"  # stands for this number as the value of a parameter that does not take text
# Of trial inputs; a function may accept only one of them
_SHAPES = (
    (2, 4),
    (2, 4, 4),
    (2, 4, 4, 4),
)
_width: ContextVar[int | None] = ContextVar("_width", default=None)


class WidthError(ActlabError):
    """Raised for an activation that needs the number of features at its site, which is not known."""


@contextmanager
def site(width: int | None) -> Iterator[None]:
    """Build activations for a site with ``width`` features in a block; None keeps that of an outer block."""
    token = _width.set(_width.get() if width is None else width)
    try:
        yield
    finally:
        _width.reset(token)


class Function(nn.Module):
    """A module that calls a plain function tensor → tensor.

    The function may declare attributes ``elementwise``, ``stochastic`` and ``surrogate_gradient``.
    A function without declarations counts as stochastic.

    Args:
        function: receives the input, of any shape, and ``params``.
        params: keyword arguments of each call.
    """

    def __init__(self, function: Callable[..., Tensor], params: Mapping[str, Any]) -> None:
        super().__init__()
        self.function = function
        self.params = dict(params)
        self.elementwise = getattr(function, "elementwise", False) is True
        self.stochastic = getattr(function, "stochastic", True) is not False
        self.surrogate_gradient = getattr(function, "surrogate_gradient", False) is True

    def forward(self, x: Tensor) -> Tensor:
        """Return the function's value; the same call in training and evaluation."""
        y: Tensor = applied(self.function)(x, **self.params)
        return y

    def extra_repr(self) -> str:
        """Return the function's name and parameters, for printing."""
        name = getattr(self.function, "__name__", repr(self.function))
        return ", ".join([name, *(f"{key}={value!r}" for key, value in self.params.items())])


@calling()
def resolve(spec: Spec) -> Any:
    """Return the class or function that an importable activation names.

    A file is imported once per resolved path and content.
    """
    is_file = spec.source.endswith(".py")
    module = _import_file(Path(spec.source)) if is_file else _import_module(spec.source)
    try:
        return reduce(getattr, spec.name.split("."), module)
    except AttributeError:
        public = [
            key
            for key, value in vars(module).items()
            if not key.startswith("_") and callable(value)
        ]
        raise unknown(f"attribute of {spec.source}", spec.name, public) from None


def _import_module(source: str) -> types.ModuleType:
    try:
        with importing(source):
            return importlib.import_module(source)
    except Exception as error:  # a third-party module may raise anything on import
        remedy = "Install it, or write ./file.py:Name for your own file."
        raise ActlabError(f"cannot import {source!r}: {described(error)}. {remedy}") from error


def _import_file(path: Path) -> types.ModuleType:
    path = path.resolve()
    if not path.is_file():
        raise ActlabError(
            f"no such file: {path}. Paths of activations are relative to the current folder."
        )
    content = regular(path).read_bytes()  # an edited file becomes a new module
    told = hashlib.blake2b(os.fsencode(path) + content, digest_size=4)
    name = f"actlab_user_{path.stem}_{told.hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ActlabError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = (
        module  # before execution: pickle and dataclasses look up a class's module here
    )
    try:
        with importing(str(path)):
            spec.loader.exec_module(module)
    except Exception as error:  # the user's file may raise anything
        del sys.modules[name]
        raise ActlabError(f"cannot import {path}: {described(error)}") from error
    return module


def builder(spec: Spec, target: Any) -> Builder:
    """Return what builds modules of a class, a function returning a module, or a function tensor → tensor.

    A function tensor → tensor receives the parameters at each call. The class of an
    ``autograd.Function`` means its ``apply``. Required parameters named in `WIDTHS`, and those set
    to `WIDTH`, receive the width of the `site`. A function with one required parameter, or of
    ``*args``, is first called with a tensor. ``spec`` names the activation in messages.

    >>> clip = lambda x, most: x.clamp(max=most)
    >>> builder(Spec("", "clip", {"most": 1.0}), clip).build()(torch.tensor([0.0, 2.0])).tolist()
    [0.0, 1.0]
    >>> with site(3):
    ...     builder(Spec("", "slope"), lambda channels: nn.PReLU(channels)).build()
    PReLU(num_parameters=3)
    """
    if isinstance(target, nn.Module):
        raise ActlabError(
            f"{spec.path} is an instance of {type(target).__name__}, which layers cannot share; "
            "name its class, or a function that returns a new one"
        )
    is_class = isinstance(target, type) and not issubclass(target, torch.autograd.Function)
    if not callable(target) or (is_class and not issubclass(target, nn.Module)):
        what = "a class" if is_class else f"of type {type(target).__name__}"
        raise ActlabError(f"{spec.path} is {what}, neither an nn.Module class nor a function")
    if isinstance(target, torch.jit.ScriptFunction):  # which cannot be copied
        target = wraps(target)(lambda *args, _call=target, **kwargs: _call(*args, **kwargs))
    call = target if is_class else applied(target)
    hints, known = _hints(call), parameters(call)
    at_width, missing = ([], []) if known is None else _check_params(spec, known, hints)
    widths, others = [n for n in missing if n in WIDTHS], [n for n in missing if n not in WIDTHS]
    inputs = others or widths
    variadic = not missing and any(p.kind is p.VAR_POSITIONAL for p in (known or {}).values())
    # the only missing parameter of a function is its input, unless its type says otherwise
    plain = len(inputs) == 1 and hints.get(inputs[0]) not in (bool, int, float, str)
    takes_tensor = not is_class and (known is None or variadic or plain)
    return Builder(spec, target, call, known is not None, at_width, widths, others, takes_tensor)


class Builder(NamedTuple):
    """What the signature of an activation's class or function says, for its modules at all sites."""

    spec: Spec
    target: Any
    call: Callable[..., Any]
    has_signature: bool
    at_width: list[str]  # parameters that are set to `WIDTH`
    widths: list[str]  # required parameters that receive the width
    others: list[str]  # other required parameters without a value
    takes_tensor: bool  # whether it is first called with a tensor

    def build(self) -> nn.Module:
        """Return a fresh module for the `site`; see `builder`."""
        spec, widths, others, fault = self.spec, self.widths, self.others, None
        params = dict(spec.params)
        for name in self.at_width:
            params[name] = _site_width(spec, name)
        if self.takes_tensor:
            try:
                given = params | {name: _site_width(spec, name) for name in widths if others}
                return _wrap_function(spec, self.target, given)
            except ActlabError as error:
                if others or not self.has_signature:
                    raise
                fault = error
        if others:
            example = f"{{name: {spec.path}, {others[0]}: …}}"
            raise ActlabError(
                f"{spec.path} needs a value for {', '.join(map(repr, others))}; write {example}, with {WIDTH} "
                "for the number of features at each site"
            )
        try:
            for name in widths:
                params[name] = _site_width(spec, name)
            module = _call(spec, self.call, params)
        except ActlabError as error:
            if fault is None or widths:
                raise
            raise ActlabError(f"{fault}. Without a tensor: {error}") from error
        if isinstance(module, nn.Module):  # scripted modules accept no hooks
            return Function(module, {}) if isinstance(module, torch.jit.ScriptModule) else module
        if callable(module):
            return builder(Spec(spec.source, spec.name), module).build()
        raise ActlabError(f"{spec.path} returned {type(module).__name__}, not an nn.Module")


def applied(function: Any) -> Any:
    """Return what calls a function: of the class of an ``autograd.Function`` its ``apply``."""
    return function.apply if isinstance(function, type) else function  # type: ignore[attr-defined]


def _site_width(spec: Spec, name: str) -> int:
    if (width := _width.get()) is None:
        raise WidthError(
            f"{spec.path} needs the number of features at its site for {name!r}: call act(width) in the "
            "network, example=INPUT in actlab.replace, or give a value, as in "
            f"{{name: {spec.path}, {name}: 64}}"
        )
    return width


def parameters(target: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """Return the parameters of a class or function by name, or None when it has no readable signature."""
    try:
        return dict(inspect.signature(target).parameters)
    except ValueError:  # functions written in C
        return None


def _check_params(
    spec: Spec, known: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Check parameters against a signature; return those set to `WIDTH`, and those that are missing."""
    at_width = []
    kinds = {parameter.kind for parameter in known.values()}
    named = {k: p for k, p in known.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    for key, value in spec.params.items():
        if key not in named and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise unknown(
                f"parameter of {spec.path}", key, named, "" if named else f"{spec.path} takes none."
            )
        options = _options(hints.get(key))
        if not isinstance(value, str) or str in options or value in options:
            continue
        if value == WIDTH and not (key in named and isinstance(named[key].default, str)):
            at_width.append(key)
        elif any(one in (bool, int, float) or isinstance(one, str) for one in options):
            # torch takes "1e-3" for a number, and Python "no" for true
            wanted = inspect.formatannotation(hints[key]).replace(" | ", " or ")
            raise ActlabError(f"parameter {key!r} of {spec.path}: expected {wanted}, got {value!r}")
    required = (p for p in known.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    return at_width, [
        p.name for p in required if p.default is p.empty and p.name not in spec.params
    ]


def _options(hint: Any) -> list[Any]:
    """Return an annotation and all that it names: types and the words of a ``Literal``."""
    options = [hint]
    for part in get_args(hint):
        options += _options(part)
    return options


def _hints(target: Any) -> dict[str, Any]:
    try:
        return get_type_hints(
            vars(target).get("__init__", target) if isinstance(target, type) else target
        )
    except (NameError, TypeError):  # annotations that cannot be evaluated at run time
        return {}


def _wrap_function(spec: Spec, target: Any, params: Mapping[str, Any]) -> nn.Module:
    """Wrap a function tensor → tensor in a `Function` if it accepts one of a few small inputs."""
    faults = []
    for x in map(torch.zeros, _SHAPES):
        try:
            with torch.no_grad():
                y = _call(spec, partial(applied(target), x), params)
            if isinstance(y, Tensor) and y.shape == x.shape:
                return Function(target, params)
            what = (
                f"a tensor of shape {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
            )
            given = f"a {tuple(x.shape)} tensor"
            raise ActlabError(
                f"{spec.path}, given {given}, returned {what}, not {given}; return a tensor of the "
                "input's shape"
            )
        except ActlabError as error:
            faults.append(error)
    raise faults[0]


@calling()
def _call(spec: Spec, target: Callable[..., Any], params: Mapping[str, Any]) -> Any:
    try:
        return target(**params)
    except ActlabError:
        raise
    except Exception as error:  # third-party code may raise anything
        raise ActlabError(
            f"cannot build {spec.path} with {dict(params)}: {described(error)}"
        ) from error
