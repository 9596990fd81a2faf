"""Whether runs are stacked is decided by times of updates that are given here."""

import math

import pytest

from actlab.engines.timing import chosen


@pytest.mark.parametrize(
    ("seconds", "size", "reason"),
    [
        ({15: 3.0, 5: 2.0, 1: 1.0}, 0, ""),
        ({15: 9.0, 5: 2.0, 1: 1.0}, 5, ""),
        ({15: 13.5, 5: 5.0, 1: 1.0}, 0, ""),  # as large a share as allowed
        ({15: 15.0, 5: 4.6, 1: 1.0}, 1, "a stack of 5 takes 0.92 of the time alone"),
        ({15: math.inf, 5: 2.0, 1: 1.0}, 5, ""),  # too large for the memory
        ({15: math.inf, 5: math.inf, 1: 1.0}, 0, ""),
        ({2: 3.0, 1: math.inf}, 0, ""),
    ],
    ids=str,
)
def test_the_best_size_of_stacks(seconds, size, reason):
    assert chosen(seconds) == {"size": size, "reason": reason}
