"""Calls of third-party code: converts ambiguous exceptions and protects torch's default dtype."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

import torch

from actlab.errors import RunError, described

P = ParamSpec("P")
Found = TypeVar("Found")
# Callers would misinterpret these: Lightning's loops treat StopIteration as the end of the data, and an OSError
# stands for a full disk or missing files.
_AMBIGUOUS = (StopIteration, OSError)


class Calling:
    """A context manager around calls of third-party code.

    Raises:
        RunError: the code raised an exception that callers would misinterpret, or changed torch's default
            dtype, which would affect all later computation in the process.
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
                f"an activation, network or task set torch's default dtype to {changed}, from {self.dtype}: "
                "do not change the default; set trainer.precision in the config instead"
            ) from error


def calling(step: Callable[P, Found]) -> Callable[P, Found]:
    """Decorate a function that calls third-party code: run it in a `Calling` block."""

    @wraps(step)
    def called(*args: P.args, **kwargs: P.kwargs) -> Found:
        with Calling():
            return step(*args, **kwargs)

    return called
