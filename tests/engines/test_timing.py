"""The size of stacks is decided by times of updates that are given here."""

import math

import pytest

from actlab.engines.timing import chosen


@pytest.mark.parametrize(
    ("seconds", "size", "reason"),
    [
        ({15: 3.0, 5: 2.0, 1: 1.0}, 15, ""),
        ({15: 9.0, 5: 2.0, 1: 1.0}, 5, ""),
        ({15: 9.0, 5: 2.9, 1: 1.0}, 15, ""),  # so little may be chance
        ({15: 15.0, 5: 4.9, 1: 1.0}, 15, ""),
        ({15: 16.0, 5: 5.5, 1: 1.0}, 1, "a stack of 15 takes 1.07 of the time alone"),
        ({15: math.inf, 5: 2.0, 1: 1.0}, 5, ""),  # too large for the memory
        ({15: math.inf, 5: math.inf, 1: 1.0}, 1, "a stack of 15 takes inf of the time alone"),
        ({2: 3.0, 1: math.inf}, 2, ""),
        ({2: math.inf, 1: math.inf}, 2, ""),
    ],
    ids=str,
)
def test_the_best_size_of_stacks(seconds, size, reason):
    assert chosen(seconds) == (size, reason)
