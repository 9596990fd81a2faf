"""Calls of third-party code: converts ambiguous exceptions and protects torch's default dtype."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from actlab.errors import RunError
from actlab.errors.messages import described

# Callers would misinterpret these: Lightning's loops treat StopIteration as the end of
# the data, and an OSError stands for a full disk or missing files.
_AMBIGUOUS = (StopIteration, OSError)


@contextmanager
def calling() -> Iterator[None]:
    """Run third-party code; raise `RunError` for a changed default dtype or unclear exceptions."""
    dtype = torch.get_default_dtype()
    try:
        yield
    except _AMBIGUOUS as error:
        raise RunError(
            f"an activation, network or task raised {described(error)}"
        ) from error
    finally:
        changed = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        if changed != dtype:  # whatever was raised may follow from it
            raise RunError(
                f"an activation, network or task set torch's default dtype to {changed}, from "
                f"{dtype}. Set trainer.precision in the config instead."
            )
