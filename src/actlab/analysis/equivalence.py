"""Tests that two sides match, or that one is not worse, against a margin that was set before the runs."""

from __future__ import annotations

import math
from collections.abc import Iterable

from actlab.analysis.statistics import Array, sign_flip_p
from actlab.errors import ActlabError


def equivalent(differences: Iterable[float], margin: float, tie: float | Array = 0.0) -> float | None:
    """The p of equivalence: two one-sided sign-flip tests that the mean difference lies within ±``margin``.

    Args:
        differences: one per pair, in the unit of ``margin``.
        margin: above 0; set before the runs.
        tie: as of `sign_flip_p`.

    Returns:
        The larger of the two p, or None where `sign_flip_p` has none; equivalent when below 0.05.

    Raises:
        ActlabError: for a margin that is not above 0.

    >>> equivalent([0.1, -0.2, 0.0, 0.1, -0.1, 0.2], margin=1)
    0.015625
    >>> equivalent([0.1, -0.2, 0.0, 0.1, -0.1, 0.2], margin=0.05) < 0.05
    False
    """
    d = list(differences)
    above = sign_flip_p([x + _positive(margin) for x in d], "greater", tie=tie)
    below = not_worse(d, margin, tie)
    return None if above is None or below is None else max(above, below)


def not_worse(differences: Iterable[float], margin: float, tie: float | Array = 0.0) -> float | None:
    """The p of non-inferiority of a quantity that should be small: mean difference below ``margin``.

    Raises:
        ActlabError: for a margin that is not above 0.

    >>> not_worse([-1, -2, 0, -1, -3, -2], margin=0.5)
    0.015625
    """
    return sign_flip_p([x - _positive(margin) for x in differences], "less", tie=tie)


def _positive(margin: float) -> float:
    if not 0 < margin < math.inf:
        raise ActlabError(f"a margin of {margin!r} cannot be tested against: give a number above 0")
    return margin
