"""The one exception type that the command line turns into a single clear line."""

import argparse
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

LONGEST_MESSAGE = 300  # characters of another library's error


class ActlabError(Exception):
    """Bad input. The message names the value, what is allowed and the remedy.

    ``actlab`` prints it as one line and exits with code 2; in a script it is an ordinary exception.
    """


class RunError(ActlabError):
    """What ends one run; the other runs of a study can still be trained."""


def unknown(kind: str, value: str, allowed: Iterable[str], remedy: str = "") -> ActlabError:
    """An error for a ``value`` that is none of the ``allowed``, with the nearest of them first."""
    allowed = sorted(allowed)
    near = get_close_matches(value, allowed, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    listing = f" Allowed: {', '.join(allowed)}." if allowed else ""
    return ActlabError(
        f"unknown {kind} {_without_middle(value)!r}{hint}{listing}{' ' + remedy if remedy else ''}"
    )


def one_line(error: BaseException, longest: int = LONGEST_MESSAGE) -> str:
    """The message of an error in one line, without the middle of a long one; its type where there is none."""
    try:
        text = str(error)
    except Exception as second:  # third-party errors have a __str__ of their own
        text = f"{type(error).__name__}, whose text raises {type(second).__name__}"
    return _without_middle(" ".join(text.split()), longest) or type(error).__name__


def described(error: BaseException, longest: int = LONGEST_MESSAGE) -> str:
    """The type of an error and its message, in one line.

    >>> described(ValueError("no such  thing")), described(BrokenPipeError())
    ('ValueError: no such thing', 'BrokenPipeError')
    """
    name, text = type(error).__name__, one_line(error, longest)
    return text if text.startswith(name) else f"{name}: {text}"


def _without_middle(text: str, longest: int = LONGEST_MESSAGE) -> str:
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]} … {text[-half:]}"


class _Help(argparse.HelpFormatter):
    """Folds texts to the terminal, but leaves examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLES) else super()._fill_text(text, width, indent)


_EXAMPLES = "examples:"


class Parser(argparse.ArgumentParser):
    """argparse that raises the one-line error instead of printing its usage, and shows examples.

    Args:
        examples: command lines that its help ends with.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **options: Any) -> None:
        if examples:
            options["epilog"] = "\n".join([_EXAMPLES, *(f"  {example}" for example in examples)])
        super().__init__(*args, **{"formatter_class": _Help, **options})

    def error(self, message: str) -> NoReturn:
        """Raise `ActlabError`."""
        raise ActlabError(f"{message} (see {self.prog} --help)")
