"""Import paths and signatures: the class that a path names, and the parameters of a class or function."""

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

# Arguments that in all of actlab's classes and the Trainer take text and no numbers or booleans:
# words of the command line stay text there, and no class is imported. A test compares the names
# with the signatures.
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
# In `TEXT_ARGUMENTS`
_LIBRARIES = (
    "actlab",
    "pytorch_lightning",
    "lightning",
    "torch",
    "torchmetrics",
)
_OTHER_LIGHTNING = ": write pytorch_lightning in place of lightning.pytorch in its imports"
# An annotation may use names imported only for type checkers; ValueError: there is no signature.
_NO_SIGNATURE = (NameError, AttributeError, TypeError, SyntaxError, ValueError)


# Not public: where a release lacks it, its own order stays, and tests/config/test_batches.py fails.
_order: Callable[..., Sequence[Any]] = getattr(hints, "sort_subtypes_for_union", lambda *_: ())


def _whole_first(*args: Any) -> Sequence[Any]:
    """Return jsonargparse's order of the types of a union with int before float, so that 200 stays an int."""
    # Python caches ``int | float`` and ``float | int`` as one union: earlier imports decide the
    # order
    ordered = [*_order(*args)]
    if {int, float} <= {*ordered} and ordered.index(float) < ordered.index(int):
        ordered.remove(int)
        ordered.insert(ordered.index(float), int)
    return ordered


hints.sort_subtypes_for_union = _whole_first

# Functions as factories of modules: the parser only takes classes there, and calls a function
# itself.
# Number of arguments of the factory that is parsed
_passed: ContextVar[int] = ContextVar("passed", default=0)
_parsing: Any = hints  # not public: a release without these functions fails at once
_import, _adapt = _parsing.import_object, _parsing.adapt_typehints
_class_parser = _parsing.cached_get_class_parser


def module_class(named: Any, passed: int) -> Any:
    """Return a class for a function that builds modules, and anything else unchanged.

    ``passed`` is the number of arguments that a factory is called with; the function gets as many
    of these as it takes by position. One whose first parameter has a default builds a factory.
    """
    if not passed or not inspect.isfunction(named):
        return named
    first = next(iter(inspect.signature(named).parameters.values()), None)
    return (
        named if first is None or first.default is not Parameter.empty else _class_of(named, passed)
    )


@cache
def _class_of(function: Callable[..., Any], passed: int) -> type:
    from torch import nn  # plans of studies need no torch

    # Parameters by position, filled up to those that are passed
    known = [*inspect.signature(function).parameters.values()]
    by_position = [one for one in known if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
    others = [one for one in known if one.kind is not Parameter.POSITIONAL_OR_KEYWORD]
    unused = range(max(0, passed - len(by_position)))
    for number in unused:
        by_position.append(
            Parameter(f"_unused_{number}", Parameter.POSITIONAL_OR_KEYWORD, default=None)
        )

    def build(cls: type, *args: Any, **kwargs: Any) -> Any:
        return function(*args[: len(args) - len(unused)], **kwargs)

    own = Parameter("cls", Parameter.POSITIONAL_OR_KEYWORD)
    build.__signature__ = inspect.Signature([own, *by_position, *others])  # type: ignore[attr-defined]
    names = {"__module__": function.__module__, "__qualname__": function.__qualname__}
    return type(function.__name__, (nn.Module,), {"__new__": build, **names})


def _import_in_context(*args: Any, **kwargs: Any) -> Any:
    named, passed = _import(*args, **kwargs), _passed.get()
    return module_class(named, passed) if passed else named


def _adapt_in_context(value: Any, wanted: Any, *args: Any, **kwargs: Any) -> Any:
    """Parse a value, and note meanwhile with how many arguments a factory of modules is called.

    An activation is parsed already.
    """
    if isinstance(value, Spec):
        return value
    taken, made = (*get_args(wanted), None, None)[:2]  # of a callable, its arguments as a list
    is_factory = (
        isinstance(taken, list)
        and inspect.isclass(made)
        and made.__module__.startswith("torch.nn.")
    )
    token = _passed.set(len(taken) if is_factory else 0)
    try:
        return _adapt(value, wanted, *args, **kwargs)
    finally:
        _passed.reset(token)


def _class_parser_of_functions(val_class: Any, **kwargs: Any) -> Any:
    """Return a parser of the arguments of a class; its path is given where another class takes its place."""
    named = module_class(_import(val_class), 1) if isinstance(val_class, str) else val_class
    return _class_parser(val_class=named, **kwargs)


_parsing.import_object, _parsing.adapt_typehints = _import_in_context, _adapt_in_context
_parsing.cached_get_class_parser = _class_parser_of_functions


def lacking(path: str, name: str, where: str) -> ActlabError:
    """Return an error for a class that is given without a required argument."""
    return ActlabError(f"{path} needs {name!r}: give {where}.{name}")


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

    Any stands for an annotation that is missing or cannot be evaluated.

    >>> kinds(str | None) == {str, type(None)}, kinds(Parameter.empty), kinds(Literal["a", 1]) == {str, int}
    (True, {typing.Any}, True)
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return set().union(*map(kinds, inner))
    if origin is Annotated:
        return kinds(inner[0])
    if origin is Literal:
        return {type(value) for value in inner}
    is_unknown = annotation in (Parameter.empty, object) or isinstance(annotation, str)
    return {Any if is_unknown else annotation}


def inner_type(annotation: Any, name: str | None = None) -> Any:
    """Return the annotation of what a value holds: the items of a container, or an argument of a class.

    >>> inner_type(dict[str, float] | None), inner_type(list | int)
    (<class 'float'>, typing.Any)
    """
    inner: list[Any] = []
    for option in kinds(annotation):
        origin = get_origin(option) or option
        if origin in _CONTAINERS:
            inner += [
                a
                for a in get_args(option)[-1 if issubclass(origin, Mapping) else 0 :]
                if a is not ...
            ]
        elif name is not None and inspect.isclass(option) and option not in (Any, *PLAIN):
            known: Callable[..., Any] = option
            taken = (parameters(known) or {}).get(name)
            inner.append(Any if taken is None else taken.annotation)
    return Union[tuple(inner)] if inner and Any not in inner else Any  # noqa: UP007 - from a tuple


def classes_in(annotation: Any) -> Iterator[type]:
    """Yield the base classes of the objects that an annotation accepts, also as results of a callable."""
    for option in kinds(annotation):
        if is_callable(option):
            yield from classes_in(get_args(option)[-1]) if get_args(option) else ()
        elif get_origin(option) is None and inspect.isclass(option):
            yield from () if option in (Any, *PLAIN, *_CONTAINERS) else (option,)


def is_callable(option: Any) -> bool:
    """Return whether a type is that of a function."""
    return collections.abc.Callable in (option, get_origin(option))


def takes_text(config: Mapping[str, Any], key: str) -> bool:
    """Return whether a dotted config key is an argument that takes text and neither numbers nor booleans."""
    *owner, name = [part for part in key.removesuffix("+").split(".") if part != "init_args"]
    node: Any = config
    for part in owner:
        node = inside(node, part).get(part) if isinstance(node, dict) else None
        if isinstance(node, list) and node:  # a key below a list refers to its last item
            node = node[-1]
    path = class_of(node)
    of_library = isinstance(path, str) and (path.partition(".")[0] in _LIBRARIES or "." not in path)
    if owner in ([], ["trainer"]) or of_library:
        return name in TEXT_ARGUMENTS
    if not isinstance(path, str):
        return False
    with suppress(Exception):  # third-party code may raise anything; building the config reports it
        taken = (parameters(locate(path)) or {}).get(name)
        return taken is not None and taken.is_text
    return False


def takes_activation_name(owner: Any) -> bool:
    """Return whether a class takes an activation as a name or a mapping, as actlab's tasks do."""
    if not inspect.isclass(owner):
        return False
    known: Callable[..., Any] = owner
    taken = (parameters(known) or {}).get("activation")
    if taken is None:
        return False

    options = kinds(taken.annotation)
    classes = filter(inspect.isclass, (get_origin(kind) or kind for kind in options))
    return str in options and any(issubclass(kind, Mapping) for kind in classes)


@cache
def parameters(owner: Callable[..., Any]) -> dict[str, Taken] | None:
    """Return the parameters of a class or function by name, also through ``**kwargs``; None if unknown."""
    signature = _signature(owner)
    if signature is None:
        return None
    taken = dict(signature.parameters)
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in taken.values()):
        signatures = [_signature(base) for base in reversed(getattr(owner, "__mro__", ())[1:-1])]
        of_bases = {
            name: parameter for s in signatures if s for name, parameter in s.parameters.items()
        }
        parser = ArgumentParser(exit_on_error=False)
        add = (
            parser.add_class_arguments if inspect.isclass(owner) else parser.add_function_arguments
        )
        try:
            names = list(add(owner, fail_untyped=False))  # follows `**kwargs` through the source
        except ValueError:
            return None
        known = of_bases | taken  # the nearest class takes precedence
        bare = Parameter("any", Parameter.KEYWORD_ONLY, default=None)
        taken |= {name: known.get(name, bare) for name in names}
    return {
        name: Taken(parameter.annotation, parameter.default)
        for name, parameter in taken.items()
        if parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    }


def _signature(owner: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature, with evaluated annotations if possible."""
    for evaluated in (True, False):
        with suppress(*_NO_SIGNATURE):
            signature = inspect.signature(owner, eval_str=evaluated)
            variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
            # ``__new__`` of tasks, for one, passes everything on to ``__init__``.
            if inspect.isclass(owner) and all(
                p.kind in variable for p in signature.parameters.values()
            ):
                made = inspect.signature(owner.__init__, eval_str=evaluated)
                return made.replace(parameters=[*made.parameters.values()][1:])
            return signature
    return None


def find(path: str, kinds: tuple[type, ...], where: str) -> Any:
    """Return the class, of certain ``kinds``, or function at an import path, or of an imported class's name."""
    wants = f"{where} must name a class derived from {' or '.join(kind.__name__ for kind in kinds)}"
    if not {".", ":"} & set(path) and object not in kinds:
        # The first one wins
        known = {owner.__name__: owner for owner in reversed([*_descendants(kinds)])}
        if path not in known:
            raise unknown("class", path, known, f"{wants}.")
        return known[path]
    try:
        owner = locate(path, kinds)
    except ActlabError as error:
        raise ActlabError(f"{where}: {error}") from error
    if not callable(owner) or (inspect.isclass(owner) and not issubclass(owner, kinds)):
        of_lightning = any(
            base.__module__.startswith("lightning.") for base in getattr(owner, "__mro__", ())
        )
        raise ActlabError(f"{wants}, got {path!r}{_OTHER_LIGHTNING if of_lightning else ''}")
    return owner


def _descendants(kinds: Iterable[type]) -> Iterator[type]:
    for kind in kinds:
        if "._" not in f"{kind.__module__}.{kind.__name__}":
            yield kind
        yield from _descendants(type.__subclasses__(kind))


def locate(path: str, kinds: tuple[type, ...] = (object,)) -> Any:
    """Return the object that ``package.module.name`` names; if it does not exist, suggest some ``kinds``."""
    parts = path.split(".")
    if not all(map(str.isidentifier, parts)):
        raise ActlabError(
            f"{path!r} is not an import path such as {import_path(path) or 'torch.optim.Adam'}"
        )
    owner, rest = _module(parts)
    for number, part in enumerate(rest):
        if not hasattr(owner, part):
            raise _missing(owner, part, kinds if number == len(rest) - 1 else ())
        owner = getattr(owner, part)
    return owner


def imported(path: str) -> Any:
    """Return what an import path names if its module is imported already, else None."""
    module, _, name = path.rpartition(".")
    return getattr(sys.modules[module], name, None) if module in sys.modules else None


def _module(parts: list[str]) -> tuple[Any, list[str]]:
    """Import the longest prefix of a path that is a module; return the module and the rest of the path."""
    for length in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:length])
        try:
            with importing(name):
                return importlib.import_module(name), parts[length:]
        except (ImportError, SyntaxError) as error:
            if not (
                isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
            ):
                remedy = (
                    _OTHER_LIGHTNING
                    if f"{getattr(error, 'name', '')}.".startswith("lightning.")
                    else ""
                )
                raise ActlabError(
                    f"{'.'.join(parts)} cannot be imported: {error}{remedy}"
                ) from error
        except Exception as error:  # third-party code may raise anything
            raise ActlabError(
                f"{'.'.join(parts)} cannot be imported: {described(error)}"
            ) from error
    raise ActlabError(
        f"{'.'.join(parts)!r} cannot be imported: there is no module {parts[0]!r}; "
        "if it is a file of yours, run the command in its folder or add the folder to PYTHONPATH"
    )


def _missing(owner: Any, name: str, kinds: tuple[type, ...]) -> ActlabError:
    if kinds:
        classes = {key: value for key, value in vars(owner).items() if inspect.isclass(value)}
        names = [
            key
            for key, value in classes.items()
            if issubclass(value, kinds) and not key.startswith("_")
        ]
    else:
        names = [module.name for module in pkgutil.iter_modules(getattr(owner, "__path__", ()))]
    return unknown("class" if kinds else "module", name, names, f"In {owner.__name__}.")
