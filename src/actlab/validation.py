"""Check the arguments of public functions and constructors against their annotations."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

from annotated_types import Ge, MinLen  # a dependency of pydantic that imports fast

from actlab.errors import ActlabError
from actlab.errors.messages import alternatives, expectation, short_repr

if TYPE_CHECKING:
    from pydantic import ConfigDict, ValidationError

P = ParamSpec("P")
Returned = TypeVar("Returned")
Count = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]
Shape = Annotated[Sequence[Count], MinLen(1)]
_CONFIG: ConfigDict = {
    "strict": True,
    "arbitrary_types_allowed": True,
    "allow_inf_nan": False,
}


def validated(function: Callable[P, Returned]) -> Callable[P, Returned]:
    """Decorate a public function or ``__init__``: check its arguments by their annotations.

    Texts are not read as numbers. Arrays, numbers and shapes of NumPy and torch become Python's
    where the annotation demands it, and paths become text.

    Raises:
        ActlabError: for a missing, unknown or repeated argument, or one of a wrong type.

    >>> @validated
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> double(2)
    4
    >>> double("2")
    Traceback (most recent call last):
    actlab.errors.ActlabError: double: number: expected a whole number, got '2'
    """
    return validated_but()(function)


def validated_but(
    *names: str,
) -> Callable[[Callable[P, Returned]], Callable[P, Returned]]:
    """Return `validated` for a function that checks the named arguments itself.

    Its own messages about them are better.
    """

    def decorate(function: Callable[P, Returned]) -> Callable[P, Returned]:
        @cache
        def checker() -> Callable[..., None]:
            from pydantic import validate_call  # imported lazily: takes time

            @wraps(function)
            def signature(*_: Any, **__: Any) -> None: ...

            # Arguments of type Any pass every check
            unchecked = dict.fromkeys(names, Any)
            signature.__annotations__ = {**function.__annotations__, **unchecked}
            return validate_call(config=_CONFIG)(signature)

        # Valid arguments reach the function unconverted
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Returned:
            from pydantic import ValidationError

            try:
                checker()(*args, **kwargs)
            except ValidationError as error:
                # Check again with Python's numbers and lists
                plain_args: Any = [_plain(value) for value in args]
                plain_kwargs: Any = {
                    name: _plain(value) for name, value in kwargs.items()
                }
                try:
                    checker()(*plain_args, **plain_kwargs)
                except ValidationError:
                    raise _one_line(function, args, kwargs, error) from None
                return function(*plain_args, **plain_kwargs)
            return function(*args, **kwargs)

        return call

    return decorate


def _plain(value: Any) -> Any:
    """Return arrays, numbers and shapes of NumPy or torch as Python's, and a path as text."""
    if hasattr(type(value), "tolist"):
        return value.tolist()
    if isinstance(value, tuple):
        return tuple(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value


def _one_line(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    error: ValidationError,
) -> ActlabError:
    """Return an error of pydantic as one line about the first argument that is wrong."""
    details = error.errors(include_url=False)
    kind = details[0]["type"]
    place = details[0]["loc"][0]  # a name, or the position among args
    parameters = [*inspect.signature(function).parameters]
    function_name = function.__qualname__.removesuffix(".__init__")

    # Arguments that the function does not have
    if kind in ("unexpected_keyword_argument", "unexpected_positional_argument"):
        fault = "too many arguments"
        if isinstance(place, str):
            fault = f"unknown argument {place}"
        allowed = ", ".join(name for name in parameters if name != "self")
        return ActlabError(f"{function_name}: {fault}. Allowed: {allowed or 'none'}.")

    # Missing and repeated arguments
    name = place if isinstance(place, str) else parameters[place]
    if kind.startswith("missing"):
        return ActlabError(f"{function_name}: {name} is missing")
    if kind.startswith("multiple"):
        return ActlabError(
            f"{function_name}: {name} has two values. Remove one of them."
        )

    # Wrong types and values, with all that the annotation allows
    descriptions = [_allowed(detail) for detail in details if detail["loc"][0] == place]
    allowed = alternatives(descriptions)
    value = args[place] if isinstance(place, int) else kwargs[name]
    return ActlabError(
        f"{function_name}: {name}: expected {allowed}, got {short_repr(value)}"
    )


def _allowed(detail: Any) -> str:
    """Return what one error of pydantic allows, in our words."""
    _, *parts = detail["loc"]
    if "[key]" in parts:
        return "a mapping with texts as keys"
    if any(isinstance(part, int) for part in parts):
        return "a list of these"
    return expectation(detail["msg"])
