"""Power of the paired test after correction: how many paired runs a difference needs.

The sign-flip test of the mean has the power of the paired t-test, up to a few percent, once at
least 16 of its patterns are extreme enough for its level (`fewest_pairs`). The correction is
Bonferroni's, which is at least as strict as Holm's: ``hypotheses`` comparisons share the level of
0.05. An ``effect`` is a true mean difference in standard deviations of the paired differences.
"""

from __future__ import annotations

import math
from bisect import bisect_left

from actlab.analysis.statistics import LEVEL, pairs_needed

POWER = 0.8  # chance that a true difference is found
MOST_PAIRS = 100_000


def fewest_pairs(hypotheses: int = 1) -> int:
    """Return the fewest pairs for which the power of the t-test is accurate for the sign-flip test.

    >>> fewest_pairs(), fewest_pairs(12)
    (9, 12)
    """
    return pairs_needed(hypotheses) + 3


def power(pairs: int, effect: float, hypotheses: int = 1) -> float:
    """Return the chance that a paired two-sided t-test finds a true difference.

    Args:
        pairs: at least 2.
        effect: the true mean difference in standard deviations.
        hypotheses: number of comparisons that share the level.
    """
    from scipy.stats import nct, t  # imported lazily: it takes a second

    freedom = pairs - 1
    shift = abs(effect) * math.sqrt(pairs)
    limit = float(t.ppf(1 - LEVEL / hypotheses / 2, freedom))
    chance = float(nct.sf(limit, freedom, shift) + nct.cdf(-limit, freedom, shift))

    # scipy's nct has nan far from 0, where the power is 1.
    if not math.isfinite(chance):
        return 1.0
    return chance


def pairs_to_detect(effect: float, hypotheses: int = 1) -> int | None:
    """Return the fewest pairs that show an effect above 0 with 80 % power.

    None above `MOST_PAIRS`.
    """
    candidates = range(fewest_pairs(hypotheses), MOST_PAIRS + 1)
    index = bisect_left(
        candidates, POWER, key=lambda pairs: power(pairs, effect, hypotheses)
    )
    if index == len(candidates):
        return None
    return candidates[index]


def detectable(pairs: int, hypotheses: int = 1) -> float | None:
    """Return the smallest effect that the pairs show with 80 % power.

    None below `fewest_pairs`.
    """
    if pairs < fewest_pairs(hypotheses):
        return None
    from scipy.optimize import brentq  # imported lazily, as in `power`

    # Bracket the effect, then find it.
    high = 1.0
    while power(pairs, high, hypotheses) < POWER:
        high *= 2
    return float(
        brentq(lambda effect: power(pairs, effect, hypotheses) - POWER, 0, high)
    )
