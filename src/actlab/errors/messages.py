"""Texts of messages: values and errors in one line, and suggestions for unknown values."""

import linecache
import os
import re
import traceback
import types
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from inspect import formatannotation
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Union, get_args, get_origin

from actlab.errors import ActlabError

# Allowed values that a message lists; of more it names the nearest three.
MOST_ALLOWED = 12
LONGEST_MESSAGE = 300  # characters of an error of another library
# What pydantic expects, and what our messages say.
_EXPECTATIONS = {
    "a valid string": "text",
    "an instance of Spec": "text",
    "a valid boolean": "true or false",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid mapping": "a mapping",
    "a valid dictionary": "a mapping",
    "callable": "a class or a function",
    "an instance of Path": "a path",
    "an instance of Sequence": "a list",
    "an instance of range": "a range",
    "a valid list": "a list",
    "Field required": "a value",
}
# What an annotation accepts.
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    type(None): "null",
}
# Folders of Python and of actlab.
_LIBRARIES = {Path(os.__file__).parent, Path(__file__).parents[1]}
_PACKAGES = {"site-packages", "dist-packages"}
# A frame in the text of an error, which a data loader copies from the traceback in its
# process.
_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in .*$', re.MULTILINE)


def unknown(
    kind: str,
    value: str,
    allowed: Iterable[str],
    remedy: str = "",
    place: str = "",
    synonyms: Mapping[str, str] = MappingProxyType({}),
    command: str = "",
) -> ActlabError:
    """Return an error for a value that is not allowed, which suggests the nearest allowed values.

    It lists the allowed values. If they are many, it names the nearest three.

    Args:
        kind: what the value is.
        value: the value.
        allowed: the allowed values.
        remedy: the end of the message.
        place: the dotted key above the value, which is then compared by its first part and shown
            in full.
        synonyms: allowed values by words in lower case that have the same meaning.
        command: what lists the allowed values, named in place of a list.

    >>> print(unknown("config key", "optimzer.lr", ["optimizer"], place="model"))
    unknown config key 'model.optimzer.lr'; did you mean 'model.optimizer.lr'? Allowed: optimizer.
    """
    allowed = sorted(allowed)
    prefix = ""
    suffix = ""
    # Compare the first part of the key, and show all of it
    if place:
        prefix = f"{place}."
        value, dot, keys_below = value.partition(".")
        suffix = dot + keys_below

    # Suggest the nearest values
    lowered = {name.lower(): name for name in reversed(allowed)}
    matches = get_close_matches(value.lower(), lowered, n=3, cutoff=0.55)
    suggestions = [lowered[match] for match in matches]
    # A synonym is surer than a similar spelling
    if value.lower() in synonyms:
        suggestions = [synonyms[value.lower()]]
    text = f"unknown {kind} {_shorten(prefix + value + suffix)!r}"
    if suggestions:
        names = " or ".join(repr(prefix + name + suffix) for name in suggestions)
        text += f"; did you mean {names}?"
    else:
        text += "."

    # List the allowed values
    if command:
        text += f" `{command}` lists all."
    elif 0 < len(allowed) <= MOST_ALLOWED:
        text += f" Allowed: {', '.join(allowed)}."
    # A long list would hide the nearest values
    elif allowed and not suggestions:
        nearest = get_close_matches(value.lower(), lowered, n=3, cutoff=0.0)
        names = ", ".join(lowered[match] for match in nearest)
        text += f" Allowed: {names} and {len(allowed) - len(nearest)} more."
    if remedy:
        text += f" {remedy}"
    return ActlabError(text)


def not_a_class(value: Any, key: str) -> ActlabError:
    """Return an error for the value of a config key that does not name a class."""
    return ActlabError(
        f"{key}: expected a class, got {short_repr(value)}. Use {{class_path: …, init_args: …}}."
    )


def expectation(message: str) -> str:
    """Return what a message of pydantic expects, in our words.

    >>> expectation("Input should be a valid integer"), expectation("Input should be less than 3")
    ('a whole number', 'a number less than 3')
    """
    text = message.removeprefix("Input should be ")
    if text.startswith(("greater than", "less than")):
        return f"a number {text}"
    text = text.replace("String should match", "text that matches")
    text = text.replace("List should have", "a list with")
    text = re.split(" or instance of |, unable to |, got a ", text)[0]
    return _EXPECTATIONS.get(text, text)


def alternatives(texts: Iterable[str]) -> str:
    """Return the texts of what is allowed as one, without a whole number next to a number.

    >>> alternatives(["text", "a whole number", "a number"])
    'text or a number'
    """
    distinct = dict.fromkeys(texts)
    if "a number" in distinct:
        distinct.pop("a whole number", None)
    return " or ".join(distinct)


def in_words(annotation: Any) -> str:
    """Return what an annotation accepts, in words.

    >>> in_words(int | None), in_words(Literal["min", "max"])
    ('a whole number or null', "'min' or 'max'")
    """
    if get_origin(annotation) in (Union, types.UnionType):
        return alternatives(map(in_words, get_args(annotation)))
    if get_origin(annotation) is Literal:
        return " or ".join(map(repr, get_args(annotation)))
    if isinstance(annotation, type) and annotation in _WORDS:
        return _WORDS[annotation]
    return formatannotation(annotation).replace("typing.", "")


def one_line(error: BaseException, longest: int = LONGEST_MESSAGE) -> str:
    """Return the message of an error in one line, or its type if the message is empty.

    A message that is longer than ``longest`` characters loses its middle.
    """
    text = _text(error)

    # The message follows the last frame of a copied traceback, and is not indented
    frames = [*_FRAME.finditer(text)]
    if frames:
        after_frames = text[frames[-1].end() :]
        message = re.search(r"^\S.*", after_frames, re.MULTILINE | re.DOTALL)
        if message:
            text = message[0]

    # A message of torch may have several lines
    line = " ".join(text.split())
    return _shorten(line, longest) or type(error).__name__


def _text(error: BaseException) -> str:
    """Return the message of an error."""
    try:
        return str(error)
    except Exception as raised:  # the __str__ of a third-party error may raise
        return f"{type(error).__name__}, whose text raises {type(raised).__name__}"


def reason(error: BaseException) -> str:
    """Return why a file cannot be read, without the path that an OSError repeats."""
    return getattr(error, "strerror", None) or one_line(error)


def described(error: BaseException, longest: int = LONGEST_MESSAGE) -> str:
    """Return the type and message of an error in one line, with the `last_line` of the user's code.

    >>> described(ValueError("no such  thing")), described(BrokenPipeError())
    ('ValueError: no such thing', 'BrokenPipeError')
    """
    name = type(error).__name__
    text = one_line(error, longest)
    if not text.startswith(name) and type(error) is not ActlabError:
        text = f"{name}: {text}"
    line = last_line(error)
    if line:
        text += f" ({line})"
    return text


def last_line(error: BaseException) -> str:
    """Return the last line of the user's code that an error passed through; empty without one."""
    # List the frames of this process, and those that a data loader copies
    frames = []
    for frame, number in traceback.walk_tb(error.__traceback__):
        frames.append((frame.f_code.co_filename, number))
    for file, digits in _FRAME.findall(_text(error)):
        frames.append((file, int(digits)))

    # Return the last one that is outside libraries
    for file, number in reversed(frames):
        path = Path(file)
        if (
            file.startswith("<")
            or _LIBRARIES & {*path.parents}
            or _PACKAGES & {*path.parts}
        ):
            continue

        # Short, as the user would name it
        current_folder = Path.cwd()
        if path.is_relative_to(current_folder):
            path = path.relative_to(current_folder)
        code = linecache.getline(file, number).strip()
        return f"{path}, line {number}: {_shorten(code, 100)}"
    return ""


def short_repr(value: object, longest: int = 80) -> str:
    """Return the ``repr`` of a value in one line, shortened, or its type if that fails.

    >>> short_repr([1, 2]), short_repr("x" * 100, longest=10)
    ('[1, 2]', "'xxxx … xxxx'")
    """
    try:
        text = repr(value)
    except Exception:  # the __repr__ of a third-party class may raise
        text = object.__repr__(value)
    return _shorten(" ".join(text.split()), longest)


def _shorten(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """Return a text without its middle if it is longer than ``longest`` characters."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} … {text[-half:]}"
