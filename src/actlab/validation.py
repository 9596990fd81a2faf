"""Check the arguments of public functions and constructors against their annotations."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

from annotated_types import Ge, MinLen  # a dependency of pydantic that imports fast

from actlab.errors import ActlabError
from actlab.errors.messages import shown

if TYPE_CHECKING:
    from pydantic import ConfigDict, ValidationError

P = ParamSpec("P")
Found = TypeVar("Found")
Count = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]
Shape = Annotated[Sequence[Count], MinLen(1)]
_CONFIG: ConfigDict = {"strict": True, "arbitrary_types_allowed": True, "allow_inf_nan": False}
_WORDS = {  # pydantic's words → ours
    "a valid string": "text",
    "an instance of Spec": "text",
    "a valid boolean": "true or false",
    "a valid integer": "a whole number",
    "a valid mapping": "a mapping",
    "a valid dictionary": "a mapping",
    "callable": "a class or a function",
    "an instance of Path": "a path",
    "an instance of Sequence": "a list",
    "an instance of range": "a range",
    "a valid list": "a list",
}


def validated(function: Callable[P, Found]) -> Callable[P, Found]:
    """Decorate a public function or ``__init__``: check its arguments by their annotations, then call it.

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


def validated_but(*names: str) -> Callable[[Callable[P, Found]], Callable[P, Found]]:
    """Return `validated` for a function that checks the named arguments itself, with a better message."""

    def decorated(function: Callable[P, Found]) -> Callable[P, Found]:
        @cache
        def checked() -> Callable[..., None]:
            from pydantic import validate_call  # imported lazily: takes time

            @wraps(function)
            def bound(*_: Any, **__: Any) -> None: ...

            bound.__annotations__ = {**function.__annotations__, **dict.fromkeys(names, Any)}
            return validate_call(config=_CONFIG)(bound)

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> Found:
            from pydantic import ValidationError

            try:
                checked()(*args, **kwargs)
            except ValidationError as error:
                plain: Any = (
                    [*map(_plain, args)],
                    {name: _plain(value) for name, value in kwargs.items()},
                )
                try:
                    checked()(*plain[0], **plain[1])
                except ValidationError:
                    raise _one_line(function, args, kwargs, error) from None
                return function(*plain[0], **plain[1])
            return function(*args, **kwargs)

        return called

    return decorated


def _plain(value: Any) -> Any:
    """Return arrays, numbers and shapes of NumPy or torch as Python's, and a path as text."""
    if hasattr(type(value), "tolist"):
        return value.tolist()
    if isinstance(value, tuple):
        return tuple(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _one_line(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    error: ValidationError,
) -> ActlabError:
    errors = error.errors(include_url=False)
    kind, place = errors[0]["type"], errors[0]["loc"][0]
    known, called = (
        [*inspect.signature(function).parameters],
        function.__qualname__.removesuffix(".__init__"),
    )
    if kind in ("unexpected_keyword_argument", "unexpected_positional_argument"):
        what = f"unknown argument {place}" if isinstance(place, str) else "too many arguments"
        allowed = ", ".join(name for name in known if name != "self")
        return ActlabError(f"{called}: {what}; allowed: {allowed or 'none'}")
    name = place if isinstance(place, str) else known[place]
    if kind.startswith("missing"):
        return ActlabError(f"{called}: {name} is missing")
    if kind.startswith("multiple"):
        return ActlabError(f"{called}: {name} is given twice")
    allowed = " or ".join(
        dict.fromkeys(_allowed(detail) for detail in errors if detail["loc"][0] == place)
    )
    value = args[place] if isinstance(place, int) else kwargs[name]
    return ActlabError(f"{called}: {name}: expected {allowed}, got {shown(value)}")


def _allowed(error: Any) -> str:
    message, (_, *inside) = error["msg"].removeprefix("Input should be "), error["loc"]
    if "[key]" in inside:
        return "a mapping with texts as keys"
    if any(isinstance(part, int) for part in inside):
        return "a list of these"
    allowed: str = _WORDS.get(message, message)
    return f"a number {allowed}" if allowed.startswith(("greater than", "less than")) else allowed
