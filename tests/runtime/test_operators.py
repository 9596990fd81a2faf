"""torchvision beside a torch that its native extension fits and does not fit, each in a process of its own."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("case", "defined"),
    [("real", "True True"), ("loads", "False False"), ("does not load", "True True")],
)
def test_missing_operators_are_defined_and_those_of_an_extension_stay(programs, case, defined):
    words = [sys.executable, programs / "torchvision_operators.py", case]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout.strip() == defined, done.stderr
