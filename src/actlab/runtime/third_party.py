"""Calls of third-party code: what it raises is not taken for something else, and torch's default type stays."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

import torch

from actlab.errors import RunError, described

P = ParamSpec("P")
Found = TypeVar("Found")
# What the callers of a step take for something else: Lightning's loops end at a StopIteration as at the end of
# the data, and an OSError stands for a disk that is full or files that are gone.
_AMBIGUOUS = (StopIteration, OSError)


class Calling:
    """A block that calls third-party code.

    Raises:
        RunError: for an exception that callers would take for something else, and for another default type
            of floating-point numbers than before: all that is computed later in the process would have it.
    """

    def __enter__(self) -> None:
        self.dtype = torch.get_default_dtype()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        changed = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        if isinstance(error, _AMBIGUOUS):
            raise RunError(f"an activation, network or task raised {described(error)}") from error
        if changed != self.dtype and (error is None or isinstance(error, Exception)):
            raise RunError(
                f"an activation, network or task set torch's default type to {changed}, from {self.dtype}: "
                "leave it as it is, and give trainer.precision in the config"
            ) from error


def calling(step: Callable[P, Found]) -> Callable[P, Found]:
    """A function that calls third-party code, as a `Calling` block."""

    @wraps(step)
    def called(*args: P.args, **kwargs: P.kwargs) -> Found:
        with Calling():
            return step(*args, **kwargs)

    return called
