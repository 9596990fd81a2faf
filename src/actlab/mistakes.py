"""What other libraries, and other authors' classes, raise about bad input: as one line of our own."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from jsonargparse import ArgumentError
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.cli import LightningCLI

from actlab import configs
from actlab.errors import LONGEST_MESSAGE, ActlabError, described, one_line


@contextmanager
def one_line_errors(given: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Turn errors of the parser and of Lightning about bad input into `ActlabError`, and unwrap our own.

    Args:
        given: the config that is parsed, to find the value that its parameter's type refuses.

    Raises:
        ActlabError: naming the key and the value.
    """
    try:
        yield
    except ArgumentError as error:
        raise (
            bad_input(error) or configs.explain(given or {}) or ActlabError(_parser_message(error))
        ) from error
    except (MisconfigurationException, ValueError, TypeError) as error:
        if found := bad_input(error):
            raise found from error
        raise


def _parser_message(error: ArgumentError) -> str:
    """The parser's message: how it opens, which names the outer key, and its innermost cause."""
    parsers = [cause for cause in _causes(error) if isinstance(cause, ArgumentError)]
    outer, inner = one_line(error), one_line(parsers[-1])
    return outer if outer == inner else f"{outer[: LONGEST_MESSAGE // 3]} … {inner}"


def bad_input(error: BaseException) -> ActlabError | None:
    """Our own error among the causes of an error, or Lightning's one about bad input."""
    for cause in _causes(error):
        if isinstance(cause, ActlabError):
            return cause
        if isinstance(cause, MisconfigurationException):
            return ActlabError(one_line(cause))
    return None


def unbuilt(error: BaseException) -> ActlabError:
    """What a constructor raised, with the classes that were being built, outer ones first."""
    first = next((c for c in _causes(error) if not _is_parsers(c)), error)
    frames = (frame for frame, _ in traceback.walk_tb(first.__traceback__))
    built = (f.f_locals.get("self") for f in frames if f.f_code.co_name == "__init__")
    names = dict.fromkeys(type(one).__qualname__ for one in built if not isinstance(one, LightningCLI | None))
    return ActlabError(f"{' → '.join([*names, described(first)])}")


def _is_parsers(error: BaseException) -> bool:
    """Whether the parser has raised an error, rather than what it calls."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_globals.get("__name__", "").startswith("jsonargparse")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what led to it, outermost first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
