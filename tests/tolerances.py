"""How far two computations of one thing may differ, with any processor, library or threads.

These add float32 numbers in different orders: a sum of n terms differs by some √n roundings of
6e-8, and each update carries the difference on. So there are three rules:

- Where runs must be equal after training they train in float64, `EXACT`: differences of 1e-16 flip
  neither a mask nor a decision. Means that a run keeps in float32 agree to `ROUNDED`, relatively.
- Quantities measured twice with the same weights, such as a mean loss, agree to `ROUNDED`, too.
- Counts with the same weights, such as an error, agree up to the samples whose two largest outputs
  are equal to rounding, of which a thousand samples have one at most: `counted`.
"""

import pytest

EXACT = "trainer.precision=64-true"
ROUNDED = 1e-5


def counted(expected, of=1000, boundary=1):
    """Equals fractions that ``boundary`` samples ``of`` so many move; half a sample is rounding."""
    return pytest.approx(expected, rel=0, abs=(boundary + 0.5) / of)
