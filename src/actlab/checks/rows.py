"""The rows of `actlab check`, for the process that prints them, which never loads torch."""

from __future__ import annotations

from typing import NamedTuple

OUTPUT = "output"
REQUIRED = (OUTPUT, "gradient", "gradient against differences")
COST = "time and memory"
NAMES = (
    *REQUIRED,
    "wide inputs",
    "bfloat16",
    "float16",
    "second derivative",
    "third derivative",
    "state",
    "in stacks",
    COST,
)


class Property(NamedTuple):
    """One row of the table.

    ``ok`` is False if a requirement or an expectation is violated, and None for information, such
    as that a row cannot be measured. Studies reject an activation that violates what is
    ``required``.
    """

    name: str
    text: str
    ok: bool | None = None
    required: bool = False
