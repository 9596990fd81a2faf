"""torchvision beside a torch that its native extension fits and does not fit, each in a copy of one process."""

import subprocess
import sys


def test_missing_operators_are_defined_and_those_of_an_extension_stay(programs):
    words = [sys.executable, programs / "torchvision_operators.py"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["real True True", "loads False False", "does_not_load True True"], (
        done.stderr
    )
