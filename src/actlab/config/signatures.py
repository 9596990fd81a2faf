"""Import paths and signatures: what a path names, and the parameters of classes and functions."""

from __future__ import annotations

import collections.abc
import importlib
import inspect
import pkgutil
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from inspect import Parameter
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import jsonargparse._typehints as hints
from jsonargparse import ArgumentParser

from actlab.config.class_paths import class_of, import_path
from actlab.config.paths import inside
from actlab.errors import ActlabError
from actlab.errors.imports import importing
from actlab.errors.messages import described, unknown
from actlab.storage.spec import Spec

# Arguments that in all of actlab's classes and the Trainer take text and no numbers or
# booleans: words of the command line stay text there, and no class is imported. A test
# compares the names with the signatures.
TEXT_ARGUMENTS = {
    "accelerator",
    "activation",
    "block",
    "by",
    "cache_dir",
    "ckpt_path",
    "column",
    "dataset",
    "default_root_dir",
    "fit",
    "flip",
    "gradient_clip_algorithm",
    "head",
    "image",
    "label",
    "max_time",
    "metric",
    "mode",
    "model_registry",
    "name",
    "profiler",
    "revision",
    "scheduler_interval",
    "setting",
    "strategy",
    "test_set",
    "test_split",
    "train_split",
    "val_split",
    "variant",
    "vectors",
}
# Packages whose arguments `TEXT_ARGUMENTS` covers
_LIBRARIES = ("actlab", "pytorch_lightning", "lightning", "torch", "torchmetrics")
_OTHER_LIGHTNING = "Replace lightning.pytorch with pytorch_lightning in its imports."
# An annotation may use names imported only for type checkers; ValueError: there is no
# signature.
_NO_SIGNATURE = (NameError, AttributeError, TypeError, SyntaxError, ValueError)


# Not public: if a release lacks it, the release's order stays, and
# tests/config/test_batches.py fails.
_order: Callable[..., Sequence[Any]] = getattr(
    hints, "sort_subtypes_for_union", lambda *_: ()
)


def _whole_first(*args: Any) -> Sequence[Any]:
    """Return jsonargparse's order of the types of a union, with int before float.

    So 200 stays an int. Python caches ``int | float`` and ``float | int`` as one union, so earlier
    imports decide the order.
    """
    ordered = [*_order(*args)]
    if {int, float} <= {*ordered} and ordered.index(float) < ordered.index(int):
        ordered.remove(int)
        ordered.insert(ordered.index(float), int)
    return ordered


hints.sort_subtypes_for_union = _whole_first

# Functions as factories of modules: the parser accepts only classes for a factory, and
# calls a function itself.

# Number of arguments of the factory that is parsed
_passed: ContextVar[int] = ContextVar("passed", default=0)
_parsing: Any = hints  # not public: a release without these functions fails at once
_import, _adapt = _parsing.import_object, _parsing.adapt_typehints
_class_parser = _parsing.cached_get_class_parser


def module_class(target: Any, passed: int) -> Any:
    """Return a class for a function that builds modules, and anything else unchanged.

    ``passed`` is the number of arguments that a factory is called with; the function gets as many
    of these as it takes by position. One whose first parameter has a default builds a factory.
    """
    if not passed or not inspect.isfunction(target):
        return target
    parameter = next(iter(inspect.signature(target).parameters.values()), None)
    if parameter is None or parameter.default is not Parameter.empty:
        return target
    return _class_of(target, passed)


@cache
def _class_of(function: Callable[..., Any], passed: int) -> type:
    from torch import nn  # plans of studies need no torch

    # Parameters by position, filled up to those that are passed
    by_position, by_keyword = [], []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD:
            by_position.append(parameter)
        else:
            by_keyword.append(parameter)
    unused = range(max(0, passed - len(by_position)))
    for number in unused:
        name = f"_unused_{number}"
        by_position.append(
            Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None)
        )

    def build(cls: type, *args: Any, **kwargs: Any) -> Any:
        return function(*args[: len(args) - len(unused)], **kwargs)

    # A class that the parser reads as it reads any other
    cls = Parameter("cls", Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([cls, *by_position, *by_keyword])
    build.__signature__ = signature  # type: ignore[attr-defined]
    names = {"__module__": function.__module__, "__qualname__": function.__qualname__}
    return type(function.__name__, (nn.Module,), {"__new__": build, **names})


def _import_in_context(*args: Any, **kwargs: Any) -> Any:
    target = _import(*args, **kwargs)
    passed = _passed.get()
    if passed:
        target = module_class(target, passed)
    return target


def _adapt_in_context(value: Any, annotation: Any, *args: Any, **kwargs: Any) -> Any:
    """Parse a value, and note meanwhile with how many arguments a factory of modules is called.

    An activation is parsed already.
    """
    if isinstance(value, Spec):
        return value

    # The arguments and the result of a callable
    arguments, result = (*get_args(annotation), None, None)[:2]
    passed = 0
    is_factory = isinstance(arguments, list) and inspect.isclass(result)
    if is_factory and result.__module__.startswith("torch.nn."):
        passed = len(arguments)

    # The number holds only while this value is parsed
    token = _passed.set(passed)
    try:
        return _adapt(value, annotation, *args, **kwargs)
    finally:
        _passed.reset(token)


def _class_parser_of_functions(val_class: Any, **kwargs: Any) -> Any:
    """Return a parser of the arguments of a class, which may be named by its path."""
    if isinstance(val_class, str):
        val_class = module_class(_import(val_class), 1)
    return _class_parser(val_class=val_class, **kwargs)


_parsing.import_object, _parsing.adapt_typehints = _import_in_context, _adapt_in_context
_parsing.cached_get_class_parser = _class_parser_of_functions


def lacking(path: str, name: str, location: str) -> ActlabError:
    """Return an error for a class that is given without a required argument."""
    return ActlabError(f"{path} requires {name!r}. Set {location}.{name}.")


PLAIN = (bool, int, float, str, type(None))
_CONTAINERS = (
    dict,
    list,
    tuple,
    set,
    Mapping,
    collections.abc.MutableMapping,
    Iterable,
    Collection,
    collections.abc.Sequence,
)


class Taken(NamedTuple):
    """A parameter of a class or function that a config can set."""

    annotation: Any
    default: Any

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is Parameter.empty

    @property
    def untyped(self) -> bool:
        """Whether there is no annotation."""
        return self.annotation is Parameter.empty

    @property
    def is_text(self) -> bool:
        """Whether it takes text and neither numbers nor booleans, such as ``str | None``."""
        options = kinds(self.annotation)
        return str in options and not options & {int, float, bool, Any}


def kinds(annotation: Any) -> set[Any]:
    """Return the types that an annotation allows; a literal counts as the type of its values.

    Any stands for an annotation that is missing or cannot be evaluated, and for ``object``.

    >>> kinds(str | None) == {str, type(None)}, kinds(Literal["a", 1]) == {str, int}
    (True, True)
    >>> kinds(Parameter.empty)
    {typing.Any}
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return set().union(*map(kinds, inner))
    if origin is Annotated:
        return kinds(inner[0])
    if origin is Literal:
        return {type(value) for value in inner}
    if annotation in (Parameter.empty, object) or isinstance(annotation, str):
        return {Any}
    return {annotation}


def inner_type(annotation: Any, name: str | None = None) -> Any:
    """Return the annotation of what a value holds: items of a container, or a class's argument.

    >>> inner_type(dict[str, float] | None), inner_type(list | int)
    (<class 'float'>, typing.Any)
    """
    # A union may have several containers and classes
    inner: list[Any] = []
    for option in kinds(annotation):
        container = get_origin(option) or option
        if container in _CONTAINERS:
            items = get_args(option)
            if issubclass(container, Mapping):
                items = items[-1:]
            inner += [item for item in items if item is not ...]
        elif (
            name is not None and inspect.isclass(option) and option not in (Any, *PLAIN)
        ):
            owner: Callable[..., Any] = option
            argument = (parameters(owner) or {}).get(name)
            if argument is None:
                return Any
            inner.append(argument.annotation)

    if not inner or Any in inner:
        return Any
    return Union[tuple(inner)]  # noqa: UP007 - from a tuple


def classes_in(annotation: Any) -> Iterator[type]:
    """Yield the base classes of the objects that an annotation accepts, also as results."""
    for option in kinds(annotation):
        if is_callable(option):
            arguments = get_args(option)
            if arguments:
                yield from classes_in(arguments[-1])
        elif option in (Any, *PLAIN, *_CONTAINERS):
            continue
        elif get_origin(option) is None and inspect.isclass(option):
            yield option


def is_callable(option: Any) -> bool:
    """Return whether a type is the type of a function."""
    return collections.abc.Callable in (option, get_origin(option))


def takes_text(config: Mapping[str, Any], key: str) -> bool:
    """Return whether a dotted config key takes text, and neither numbers nor booleans."""
    # Neither `+` nor init_args names an argument
    *owner, name = [
        part for part in key.removesuffix("+").split(".") if part != "init_args"
    ]

    # The object that takes the argument
    node: Any = config
    for part in owner:
        if not isinstance(node, dict):
            node = None
            break
        node = inside(node, part).get(part)
        if isinstance(node, list) and node:
            # A key below a list refers to its last item.
            node = node[-1]
    path = class_of(node)

    # In the libraries, names of arguments decide
    if owner in ([], ["trainer"]):
        return name in TEXT_ARGUMENTS
    if not isinstance(path, str):
        return False
    package, dot, _ = path.partition(".")
    if package in _LIBRARIES or not dot:
        return name in TEXT_ARGUMENTS

    # Third-party code may raise anything; building the config reports it
    with suppress(Exception):
        argument = (parameters(locate(path)) or {}).get(name)
        return argument is not None and argument.is_text
    return False


def takes_activation_name(owner: Any) -> bool:
    """Return whether a class takes an activation as a name or a mapping, as actlab's tasks do."""
    if not inspect.isclass(owner):
        return False
    task: Callable[..., Any] = owner
    # By its annotation: tasks declare ``str | dict``
    argument = (parameters(task) or {}).get("activation")
    if argument is None:
        return False

    options = kinds(argument.annotation)
    classes = [kind for kind in map(_origin, options) if inspect.isclass(kind)]
    return str in options and any(issubclass(kind, Mapping) for kind in classes)


def _origin(kind: Any) -> Any:
    return get_origin(kind) or kind


@cache
def parameters(owner: Callable[..., Any]) -> dict[str, Taken] | None:
    """Return the parameters of a class or function by name, also through ``**kwargs``.

    None if they are unknown.
    """
    # Some callables written in C have no signature
    signature = _signature(owner)
    if signature is None:
        return None
    accepted = dict(signature.parameters)

    # Follow ``**kwargs`` through the source
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in accepted.values()):
        parser = ArgumentParser(exit_on_error=False)
        add = parser.add_function_arguments
        if inspect.isclass(owner):
            add = parser.add_class_arguments
        try:
            names = list(add(owner, fail_untyped=False))
        except ValueError:
            return None
        inherited = _of_bases(owner) | accepted  # the nearest class takes precedence
        bare = Parameter("any", Parameter.KEYWORD_ONLY, default=None)
        for name in names:
            accepted[name] = inherited.get(name, bare)

    # Leave out `*args` and `**kwargs` themselves
    taken = {}
    for name, parameter in accepted.items():
        if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            taken[name] = Taken(parameter.annotation, parameter.default)
    return taken


def _of_bases(owner: Any) -> dict[str, Parameter]:
    """Return the parameters of the base classes of a class; nearer classes take precedence."""
    accepted: dict[str, Parameter] = {}
    for base in reversed(getattr(owner, "__mro__", ())[1:-1]):
        signature = _signature(base)
        if signature:
            accepted |= signature.parameters
    return accepted


def _signature(owner: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature, with evaluated annotations if possible."""
    for evaluated in (True, False):
        with suppress(*_NO_SIGNATURE):
            signature = inspect.signature(owner, eval_str=evaluated)

            kinds_of_parameters = {p.kind for p in signature.parameters.values()}
            # ``__new__`` of tasks, for one, passes everything on to ``__init__``
            variable = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
            if inspect.isclass(owner) and kinds_of_parameters <= variable:
                constructor = inspect.signature(owner.__init__, eval_str=evaluated)
                arguments = [*constructor.parameters.values()][1:]
                return constructor.replace(parameters=arguments)
            return signature
    return None


def find(path: str, kinds: tuple[type, ...], location: str) -> Any:
    """Return the class, of certain ``kinds``, or the function that a path or a bare name means.

    A bare name means an imported class.
    """
    expected = "a class derived from " + " or ".join(kind.__name__ for kind in kinds)

    # A bare name: the first class of this name wins
    if not {".", ":"} & set(path) and object not in kinds:
        classes: dict[str, type] = {}
        for descendant in reversed([*_descendants(kinds)]):
            classes[descendant.__name__] = descendant
        if path not in classes:
            raise unknown("class", path, classes, f"Set {location} to {expected}.")
        return classes[path]

    # An import path
    try:
        owner = locate(path, kinds)
    except ActlabError as error:
        raise ActlabError(f"{location}: {error}") from error
    if not callable(owner) or (inspect.isclass(owner) and not issubclass(owner, kinds)):
        message = f"{location}: expected {expected}, got {path!r}."
        for base in getattr(owner, "__mro__", ()):
            if base.__module__.startswith("lightning."):
                raise ActlabError(f"{message} {_OTHER_LIGHTNING}")
        raise ActlabError(message)
    return owner


def _descendants(kinds: Iterable[type]) -> Iterator[type]:
    for kind in kinds:  # except private ones
        if "._" not in f"{kind.__module__}.{kind.__name__}":
            yield kind
        yield from _descendants(type.__subclasses__(kind))


def locate(path: str, kinds: tuple[type, ...] = (object,)) -> Any:
    """Return the object that ``package.module.name`` names.

    If it does not exist, the error suggests classes of some ``kinds``.
    """
    parts = path.split(".")
    if not all(map(str.isidentifier, parts)):
        example = import_path(path) or "torch.optim.Adam"
        raise ActlabError(f"{path!r} is not an import path. Use one such as {example}.")

    # A module, and names in it
    owner, names = _module(parts)
    for number, name in enumerate(names):
        if not hasattr(owner, name):
            is_last = number == len(names) - 1
            raise _missing(owner, name, kinds if is_last else ())
        owner = getattr(owner, name)
    return owner


def imported(path: str) -> Any:
    """Return what an import path names if its module is imported already, else None."""
    module, _, name = path.rpartition(".")
    if module not in sys.modules:
        return None
    return getattr(sys.modules[module], name, None)


def _module(parts: list[str]) -> tuple[Any, list[str]]:
    """Import the longest prefix of a path that is a module; return it and the names behind it."""
    path = ".".join(parts)
    for length in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:length])
        try:
            with importing(name):
                return importlib.import_module(name), parts[length:]
        except (ImportError, SyntaxError) as error:
            # Without this module, a shorter prefix may be one
            missing = f"{getattr(error, 'name', '')}."
            if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(
                missing
            ):
                continue
            message = f"{path} cannot be imported: {error}"
            if missing.startswith("lightning."):
                message += f". {_OTHER_LIGHTNING}"
            raise ActlabError(message) from error
        except Exception as error:  # third-party code may raise anything
            raise ActlabError(
                f"{path} cannot be imported: {described(error)}"
            ) from error
    raise ActlabError(
        f"{path!r} cannot be imported, because there is no module {parts[0]!r}. Install it, or run "
        "the command in the folder of your file, or add this folder to PYTHONPATH."
    )


def _missing(owner: Any, name: str, kinds: tuple[type, ...]) -> ActlabError:
    # Inside the path, only modules count
    if not kinds:
        names = [
            module.name
            for module in pkgutil.iter_modules(getattr(owner, "__path__", ()))
        ]
        return unknown(f"module of {owner.__name__}", name, names)

    # The last name must be a public class
    classes = []
    for key, value in vars(owner).items():
        if (
            inspect.isclass(value)
            and issubclass(value, kinds)
            and not key.startswith("_")
        ):
            classes.append(key)
    return unknown(f"class of {owner.__name__}", name, classes)
