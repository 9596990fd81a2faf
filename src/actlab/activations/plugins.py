"""User-defined activations: import from a module or file, check of parameters, construction."""

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

# Required parameters of these names receive the number of features at a site.
WIDTHS = (
    "channels",
    "in_channels",
    "in_channel",
    "num_channels",
    "num_features",
    "in_features",
    "features",
    "width",
    "dim",
    "num_parameters",
    "c1",
)
# Stands for this number as the value of a parameter that does not take text
WIDTH = "width"
# Shapes of trial inputs; a function may accept only one of them
_SHAPES = ((2, 4), (2, 4, 4), (2, 4, 4, 4))
_width: ContextVar[int | None] = ContextVar("_width", default=None)


class WidthError(ActlabError):
    """Raised for an activation that needs the number of features at its site, if it is unknown."""


@contextmanager
def site(width: int | None) -> Iterator[None]:
    """Build activations for a site with ``width`` features in a ``with`` block.

    None keeps the width of an outer block.
    """
    if width is None:
        width = _width.get()
    token = _width.set(width)
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

    def __init__(
        self, function: Callable[..., Tensor], params: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.function = function
        self.params = dict(params)
        self.elementwise = getattr(function, "elementwise", False) is True
        # Only True and False count, whatever a library stores under these names
        self.stochastic = getattr(function, "stochastic", True) is not False
        self.surrogate_gradient = getattr(function, "surrogate_gradient", False) is True

    def forward(self, x: Tensor) -> Tensor:
        """Return the function's value; the same call in training and evaluation."""
        y: Tensor = applied(self.function)(x, **self.params)
        return y

    def extra_repr(self) -> str:
        """Return the function's name and parameters, for printing."""
        name = getattr(self.function, "__name__", repr(self.function))
        params = [f"{key}={value!r}" for key, value in self.params.items()]
        return ", ".join([name, *params])


@calling()
def resolve(spec: Spec) -> Any:
    """Return the class or function that an importable activation names.

    A file is imported once per resolved path and content.
    """
    # Files are modules under names of their own
    if spec.source.endswith(".py"):
        module = _import_file(Path(spec.source))
    else:
        module = _import_module(spec.source)

    # Suggest similar names for a name that the module lacks.
    try:
        return reduce(getattr, spec.name.split("."), module)
    except AttributeError:
        public = {
            name: value
            for name, value in vars(module).items()
            if not name.startswith("_")
        }
        callables = [name for name, value in public.items() if callable(value)]
        raise unknown(f"name in {spec.source}", spec.name, callables) from None


def _import_module(source: str) -> types.ModuleType:
    try:
        with importing(source):
            return importlib.import_module(source)
    except Exception as error:  # a third-party module may raise anything on import
        remedy = "Install it, or use ./file.py:Name for your own file."
        raise ActlabError(
            f"cannot import {source!r}: {described(error)}. {remedy}"
        ) from error


def _import_file(path: Path) -> types.ModuleType:
    # Different spellings of a path give one module
    path = path.resolve()
    if not path.is_file():
        raise ActlabError(
            f"no such file: {path}. Paths of activations are relative to the current folder."
        )

    # An edited file becomes a new module.
    content = regular(path).read_bytes()
    digest = hashlib.blake2b(os.fsencode(path) + content, digest_size=4).hexdigest()
    name = f"actlab_user_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]

    # Pickle and dataclasses look up a class's module while the file is executed.
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ActlabError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with importing(str(path)):
            spec.loader.exec_module(module)
    except Exception as error:  # the user's file may raise anything
        # The next attempt executes the file again
        del sys.modules[name]
        raise ActlabError(f"cannot import {path}: {described(error)}") from error
    return module


def builder(spec: Spec, target: Any) -> Builder:
    """Return the builder of an activation from its class or function.

    ``target`` is a module class, a function that returns a module, or a function tensor → tensor.

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
    # One instance at several sites would share its parameters
    if isinstance(target, nn.Module):
        raise ActlabError(
            f"{spec.path}: expected a class or a function, got an instance of "
            f"{type(target).__name__}, which layers cannot share. Use its class, or a function "
            "that returns a new instance."
        )
    is_class = isinstance(target, type) and not issubclass(
        target, torch.autograd.Function
    )
    # Layers need modules, which other classes do not make
    if not callable(target) or (is_class and not issubclass(target, nn.Module)):
        description = "another class" if is_class else type(target).__name__
        raise ActlabError(
            f"{spec.path}: expected a class of nn.Module or a function, got {description}"
        )
    # A run's task is copied, and so are its activations
    if isinstance(target, torch.jit.ScriptFunction):
        target = _copyable(target)

    # Read the signature.
    call = target if is_class else applied(target)
    signature = parameters(call)
    if signature is None:
        return Builder(spec, target, call, False, [], [], [], takes_tensor=not is_class)
    hints = _hints(call)
    at_width, missing = _check_params(spec, signature, hints)

    # Required parameters are given by the site, by a tensor, or missing
    widths = [name for name in missing if name in WIDTHS]
    unset = [name for name in missing if name not in WIDTHS]

    # The only missing parameter of a function is its input, unless its type says
    # otherwise.
    inputs = unset or widths
    has_input = len(inputs) == 1 and hints.get(inputs[0]) not in (bool, int, float, str)
    if not missing:
        kinds = [parameter.kind for parameter in signature.values()]
        has_input = inspect.Parameter.VAR_POSITIONAL in kinds
    takes_tensor = has_input and not is_class
    return Builder(spec, target, call, True, at_width, widths, unset, takes_tensor)


def _copyable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a Python function that calls a scripted function, which cannot be copied itself."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


class Builder(NamedTuple):
    """Builds the modules of an activation at all sites, by the signature of its class or function.

    It does not import the activation, see `resolve`, or look it up, see `actlab.activations.entry`.
    """

    spec: Spec
    target: Any
    call: Callable[..., Any]
    has_signature: bool
    at_width: list[str]  # parameters that are set to `WIDTH`
    widths: list[str]  # required parameters that receive the width
    unset: list[str]  # other required parameters without a value
    takes_tensor: bool  # whether it is first called with a tensor

    def build(self) -> nn.Module:
        """Return a fresh module for the `site`; see `builder`."""
        spec = self.spec
        params = {**spec.params, **self._site_widths(self.at_width)}

        # Try it as a function tensor → tensor. Its input may have a name in `WIDTHS`.
        fault = None
        if self.takes_tensor:
            try:
                widths = self._site_widths(self.widths) if self.unset else {}
                return _wrap_function(spec, self.target, params | widths)
            except ActlabError as error:
                # A call without a tensor cannot succeed either
                if self.unset or not self.has_signature:
                    raise
                fault = error

        # Call it without a tensor.
        if self.unset:
            names = ", ".join(map(repr, self.unset))
            example = f"{{name: {spec.path}, {self.unset[0]}: …}}"
            raise ActlabError(
                f"{spec.path}: expected a value for {names}, got none. Use {example}, with {WIDTH} "
                "for the number of features at each site."
            )
        try:
            activation = _call(spec, self.call, params | self._site_widths(self.widths))
        except ActlabError as error:
            if fault is None or self.widths:
                raise
            raise ActlabError(f"{fault}. Without a tensor: {error}") from error

        # Make a module of what it returned. Scripted modules accept no hooks.
        if isinstance(activation, torch.jit.ScriptModule):
            return Function(activation, {})
        if isinstance(activation, nn.Module):
            return activation
        # Wrap the function that a factory returned.
        if callable(activation):
            return builder(Spec(spec.source, spec.name), activation).build()
        raise ActlabError(
            f"{spec.path}: expected an nn.Module as result, got {type(activation).__name__}"
        )

    def _site_widths(self, names: list[str]) -> dict[str, int]:
        """Return the width of the `site` for each of some parameters."""
        if not names:
            return {}
        return dict.fromkeys(names, _site_width(self.spec, names[0]))


def applied(function: Any) -> Any:
    """Return a function as it is called: of an ``autograd.Function`` the method ``apply``."""
    return function.apply if isinstance(function, type) else function  # type: ignore[attr-defined]


def _site_width(spec: Spec, name: str) -> int:
    width = _width.get()
    if width is None:
        raise WidthError(
            f"{spec.path}: expected the number of features at its site for {name!r}, got none. "
            "Call act(width) in the network, pass example=INPUT to actlab.replace, or set a value, "
            f"as in {{name: {spec.path}, {name}: 64}}."
        )
    return width


def parameters(target: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """Return the parameters of a class or function by name, or None without a signature."""
    try:
        return dict(inspect.signature(target).parameters)
    except ValueError:  # functions written in C
        return None


def _check_params(
    spec: Spec, signature: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Check parameters against a signature.

    Return the parameters that are set to `WIDTH`, and the required parameters that are missing.
    """
    # Separate named parameters from *args and **kwargs.
    keywords: dict[str, inspect.Parameter] = {}
    missing = []
    accepts_any = False
    for name, parameter in signature.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            accepts_any = True
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            if parameter.default is parameter.empty and name not in spec.params:
                missing.append(name)
            if parameter.kind is not parameter.POSITIONAL_ONLY:
                keywords[name] = parameter

    # Check the values. Text may be `WIDTH`, but not a number.
    at_width = []
    for name, value in spec.params.items():
        if name not in keywords and not accepts_any:
            remedy = "" if keywords else f"{spec.path} accepts none."
            raise unknown(f"parameter of {spec.path}", name, keywords, remedy)
        # Only text in place of a number needs a check.
        if not isinstance(value, str) or _accepts_text(hints.get(name), value):
            continue
        has_text = name in keywords and isinstance(keywords[name].default, str)
        if value == WIDTH and not has_text:
            at_width.append(name)
        else:
            _check_text(spec, name, value, hints)
    return at_width, missing


def _accepts_text(hint: Any, text: str) -> bool:
    options = _options(hint)
    return str in options or text in options


def _check_text(spec: Spec, name: str, text: str, hints: Mapping[str, Any]) -> None:
    """Reject text for a number, which torch may accept, and Python as true."""
    for option in _options(hints.get(name)):
        if option in (bool, int, float) or isinstance(option, str):
            expected = inspect.formatannotation(hints[name]).replace(" | ", " or ")
            raise ActlabError(
                f"parameter {name!r} of {spec.path}: expected {expected}, got {text!r}"
            )


def _options(hint: Any) -> list[Any]:
    """Return an annotation and all that it names: types, and the texts of a ``Literal``."""
    options = [hint]
    for part in get_args(hint):
        options += _options(part)
    return options


def _hints(target: Any) -> dict[str, Any]:
    """Return the annotations of a class's constructor or of a function, by parameter."""
    function = target
    if isinstance(target, type):
        # A class without constructor has its annotations itself
        function = vars(target).get("__init__", target)
    try:
        return get_type_hints(function)
    except (NameError, TypeError):  # annotations that cannot be evaluated at run time
        return {}


def _wrap_function(spec: Spec, target: Any, params: Mapping[str, Any]) -> nn.Module:
    """Wrap a function tensor → tensor in a `Function` if it accepts one of a few small inputs."""
    # The message is about the first shape, the usual one
    faults = []
    for shape in _SHAPES:
        # Call the function.
        x = torch.zeros(shape)
        try:
            with torch.no_grad():
                y = _call(spec, partial(applied(target), x), params)
        except ActlabError as error:
            faults.append(error)
            continue

        # Check what it returned.
        if isinstance(y, Tensor) and y.shape == x.shape:
            return Function(target, params)
        result = type(y).__name__
        if isinstance(y, Tensor):
            result = f"a tensor of shape {tuple(y.shape)}"
        fault = ActlabError(
            f"{spec.path}: expected a tensor of the input's shape {shape} as result, got {result}"
        )
        faults.append(fault)
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
