"""Check the arguments of public functions against their annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from actlab.errors import ActlabError, shown

if TYPE_CHECKING:
    from pydantic import ValidationError

P = ParamSpec("P")
Found = TypeVar("Found")
_WORDS = {  # pydantic's words → ours
    "a valid string": "text",
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
    """Decorate a public function: check its arguments by its annotations, without converting any, then call it.

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
            from pydantic import ConfigDict, validate_call  # imported lazily: takes time

            @wraps(function)
            def bound(*_: Any, **__: Any) -> None: ...

            bound.__annotations__ = {**function.__annotations__, **dict.fromkeys(names, Any)}
            return validate_call(config=ConfigDict(strict=True, arbitrary_types_allowed=True))(bound)

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> Found:
            from pydantic import ValidationError

            try:
                checked()(*args, **kwargs)
            except ValidationError as error:
                raise _one_line(function, args, kwargs, error) from None
            return function(*args, **kwargs)

        return called

    return decorated


def _one_line(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], error: ValidationError
) -> ActlabError:
    errors = error.errors(include_url=False)
    kind, place = errors[0]["type"], errors[0]["loc"][0]
    known = inspect.signature(function).parameters
    if kind in ("unexpected_keyword_argument", "unexpected_positional_argument"):
        what = f"unknown argument {place}" if isinstance(place, str) else "too many arguments"
        elsewhere = "; runs_dir is an argument of run_study and results" if place == "runs_dir" else ""
        return ActlabError(f"{function.__name__}: {what}; allowed: {', '.join(known) or 'none'}{elsewhere}")
    name = place if isinstance(place, str) else [*known][place]
    if kind.startswith("missing"):
        return ActlabError(f"{function.__name__}: {name} is missing")
    if kind.startswith("multiple"):
        return ActlabError(f"{function.__name__}: {name} is given twice")
    allowed = " or ".join(dict.fromkeys(_allowed(one) for one in errors if one["loc"][0] == place))
    value = args[place] if isinstance(place, int) else kwargs[name]
    return ActlabError(f"{function.__name__}: {name}: expected {allowed}, got {shown(value)}")


def _allowed(error: Any) -> str:
    message, (_, *inside) = error["msg"].removeprefix("Input should be "), error["loc"]
    if "[key]" in inside:
        return "a mapping with texts as keys"
    if any(isinstance(part, int) for part in inside):
        return "a list of these"
    return _WORDS.get(message, f"a number {message}" if message.startswith("greater than") else message)
