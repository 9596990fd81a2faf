"""Exceptions for bad input, which the command line prints as one line, and helpers for their messages."""

import argparse
import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

MOST_ALLOWED = 12  # allowed values that a message lists beside its suggestions
MOST_WITHOUT_SUGGESTION = 120  # allowed values that a message lists if none is near
LONGEST_MESSAGE = 300  # characters of an error of another library
_EXAMPLES = "examples:"
_LIBRARIES = (f"{Path(os.__file__).parent}{os.sep}", f"{Path(__file__).parent}{os.sep}")  # Python, actlab
_PACKAGES = {"site-packages", "dist-packages"}
# A frame in the text of an error, which a data loader copies from the traceback in its process.
_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in .*$', re.MULTILINE)


class ActlabError(Exception):
    """Raised for bad input. The message states the value, the allowed values and the remedy.

    ``actlab`` prints it as one line and exits with code 2; in a script it is an ordinary exception.
    """


class RunError(ActlabError):
    """Raised for an error that ends one run; the other runs of a study can still be trained."""


class LostDeviceError(ActlabError):
    """Raised where an accelerator has failed so that no further call of this process on it succeeds."""


def unknown(
    kind: str,
    value: str,
    allowed: Iterable[str],
    remedy: str = "",
    place: str = "",
    synonyms: Mapping[str, str] = MappingProxyType({}),
    command: str = "",
) -> ActlabError:
    """Return an error for a ``value`` that is not allowed; the message suggests the nearest allowed values.

    If the value is one of ``synonyms``, in lower case, the message suggests the allowed value that it means.

    It lists the ``allowed`` values, unless they are many and some are near or a ``command`` lists them, which
    it then names. It ends with ``remedy``. ``place`` is the dotted key above ``value``, which is then compared
    by its first part and shown in full.

    >>> print(unknown("config key", "optimzer.lr", ["network", "optimizer"], place="model"))
    unknown config key 'model.optimzer.lr'; did you mean 'model.optimizer.lr'? Allowed: network, optimizer.
    """
    allowed = sorted(allowed)
    value, dot, rest = value.partition(".") if place else (value, "", "")
    before, after = f"{place}." if place else "", dot + rest
    lowered = {name.lower(): name for name in reversed(allowed)}
    near = [lowered[name] for name in get_close_matches(value.lower(), lowered, n=3, cutoff=0.5)]
    if value.lower() in synonyms:
        near = [synonyms[value.lower()]]
    hint = f"; did you mean {' or '.join(repr(before + name + after) for name in near)}?" if near else "."
    most = MOST_ALLOWED if near else MOST_WITHOUT_SUGGESTION
    listing = ""
    if command:
        listing = f" `{command}` lists all."
    elif 0 < len(allowed) <= most:
        listing = f" Allowed: {', '.join(allowed)}."
    return ActlabError(
        f"unknown {kind} {_shorten(before + value + after)!r}{hint}{listing}{' ' + remedy if remedy else ''}"
    )


@contextmanager
def importing(source: str) -> Iterator[None]:
    """Import third-party code in a block as if it were run without arguments: its ``argv`` is ``[source]``.

    Raises:
        ActlabError: the code ends the process, as code that requires arguments does.
    """
    before, sys.argv = sys.argv, [source]
    try:
        yield
    except SystemExit as error:
        if not error.code:  # as for --help
            raise
        raise ActlabError(f"{source} ends the process when it is imported, with code {error.code}") from error
    finally:
        sys.argv = before


@contextmanager
def needing(package: str, extra: str, wants: str) -> Iterator[None]:
    """Name the ``extra`` of actlab that installs a ``package``, an import name, where ``wants`` lacks it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ActlabError(
            f"{wants} requires the package {package.replace('_', '-')}, which is not installed. Install the "
            f"extra `{extra}`: pip install 'actlab[{extra}]'."
        ) from error


def one_line(error: BaseException, longest: int = LONGEST_MESSAGE) -> str:
    """Return the message of an error in one line without its middle, or its type when the message is empty."""
    text = _text(error)
    for frame in [*_FRAME.finditer(text)][-1:]:  # the message follows the last one, and is not indented
        message = re.search(r"^\S.*", text[frame.end() :], re.MULTILINE | re.DOTALL)
        text = message[0] if message else text
    return _shorten(" ".join(text.split()), longest) or type(error).__name__


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # the __str__ of a third-party error may raise
        return f"{type(error).__name__}, whose text raises {type(second).__name__}"


def reason(error: BaseException) -> str:
    """Return why a file cannot be read, without the path that an OSError repeats."""
    return getattr(error, "strerror", None) or one_line(error)


def described(error: BaseException, longest: int = LONGEST_MESSAGE) -> str:
    """Return the type and message of an error in one line, with the `last_line` of the user's code, if any.

    >>> described(ValueError("no such  thing")), described(BrokenPipeError())
    ('ValueError: no such thing', 'BrokenPipeError')
    """
    name, text, line = type(error).__name__, one_line(error, longest), last_line(error)
    text = text if text.startswith(name) or type(error) is ActlabError else f"{name}: {text}"
    return f"{text} ({line})" if line else text


def last_line(error: BaseException) -> str:
    """Return the last line of the user's code that an error passed through; empty without one."""
    frames = [(frame.f_code.co_filename, number) for frame, number in traceback.walk_tb(error.__traceback__)]
    frames += [(file, int(number)) for file, number in _FRAME.findall(_text(error))]
    for file, number in reversed(frames):
        path = Path(file)
        if not (file.startswith(("<", *_LIBRARIES)) or _PACKAGES & {*path.parts}):
            known = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            return f"{known}, line {number}: {_shorten(linecache.getline(file, number).strip(), 100)}"
    return ""


def shown(value: object, longest: int = 80) -> str:
    """Return the ``repr`` of a value in one line for a message, shortened, or its type if that fails.

    >>> shown([1, 2]), shown("x" * 100, longest=10)
    ('[1, 2]', "'xxxx … xxxx'")
    """
    try:
        text = repr(value)
    except Exception:  # the __repr__ of a third-party class may raise
        text = object.__repr__(value)
    return _shorten(" ".join(text.split()), longest)


def _shorten(text: str, longest: int = LONGEST_MESSAGE) -> str:
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]} … {text[-half:]}"


class _Help(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLES) else super()._fill_text(text, width, indent)


class Parser(argparse.ArgumentParser):
    """A parser that raises `ActlabError` instead of printing its usage, and shows example commands."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **options: Any) -> None:
        if examples:
            options["epilog"] = "\n".join([_EXAMPLES, *(f"  {example}" for example in examples)])
        super().__init__(*args, **{"formatter_class": _Help, **options})

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = "/".join(action.option_strings) or f"command of {self.prog}"
            raise unknown(kind, str(value), map(str, action.choices))

    def error(self, message: str) -> NoReturn:
        """Raise `ActlabError`."""
        raise ActlabError(f"{message} (see {self.prog} --help)")
